"""Which sessions are served where not all find room: shares of tenants, weights, and the order in which they wait."""

import asyncio
from itertools import pairwise

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S, others_first
from appliance.domain.errors import TooManySessions
from appliance.domain.session import (
    AccuracyPromise,
    DeviceReport,
    LatencyPromise,
    NoticeKind,
    Promise,
)
from appliance.domain.states import SessionState
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.link import LinkEstimate
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import key_of
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet, box_with, steady


@story
async def test_tenant_gets_share_from_sessions_beyond_share_of_others() -> None:
    """One tenant has all of a worker; sessions of another one come, one after the other, up to four ninths of it. Each
    is let in, for one of the first's that is beyond its share by then, and stays served from its first plan on."""
    cost, promise = {320: Cost(run_ms=40)}, LatencyPromise(200.0, 2.0)
    async with box_with(cost, tenant="first") as (fleet, gate):
        other = fleet.add(cost, tenant="second", name="other")
        first, _ = await fleet.fill(gate, promise, mbps=50)
        assert len(first) >= 9
        await fleet.cameras(4 * len(first) // 9, other, promise, mbps=50, every_s=0.8)
        await fleet.pass_s(5)
        theirs, second = fleet.devices[: len(first)], fleet.devices[len(first) :]
        assert {device.live.state for device in second} == {SessionState.SERVED}
        assert sum(device.told[NoticeKind.REMOVED] for device in second) == 0
        gone = [at for at, device in enumerate(theirs) if device.told[NoticeKind.REMOVED]]
        assert gone
        assert min(gone) >= len(first) // 2


@story
async def test_sessions_beyond_tenant_share_give_way_to_other_tenant() -> None:
    """One tenant has bought all while there was no other; another one gets its half, and the first is told."""
    promise = LatencyPromise(150.0, 10.0)
    async with box_with({640: Cost(run_ms=20)}, tenant="one") as (fleet, one):
        two = fleet.add({640: Cost(run_ms=20)}, tenant="two", name="two")
        mine, _ = await fleet.fill(one, promise, mbps=50)
        assert len(mine) >= 3
        await fleet.pass_s(3)
        assert (await fleet.camera(two, promise, mbps=50)).state is SessionState.SERVED
        await fleet.pass_s(2)
        waiting = [live for live in mine if live.state is SessionState.WAITING]
        assert waiting
        assert all(live.reason.startswith("share: ") for live in waiting)


@story
async def test_heavier_latency_session_is_removed_last() -> None:
    """When another tenant wants its share, the first one's light sessions give way, and not the newest, which is
    heavy; when links narrow so that not all find room, too.
    """
    promise = LatencyPromise(150.0, 10.0)
    async with box_with({640: Cost(run_ms=20)}, tenant="one") as (fleet, one):
        two = fleet.add({640: Cost(run_ms=20)}, tenant="two", name="two")
        mine = [await fleet.camera(one, promise, mbps=50, weight=weight) for weight in (1.0, 1.0, 1.0, 5.0)]
        heavy = mine[-1]
        await fleet.pass_s(3)
        await fleet.camera(two, promise, mbps=50)
        await fleet.pass_s(2)
        assert heavy.state is SessionState.SERVED
        assert SessionState.WAITING in fleet.states
        served = [live for live in mine if live.state is SessionState.SERVED]
        for live in served:
            live.beyond_share = False
        key, planning = key_of(heavy), fleet.sessions.planning

        def victim() -> LiveSession:
            return planning.latency.victim(key, served, [heavy.id], planning.zoos.of(key))

        assert victim().session.weight == 1.0
        heavy.link = LinkEstimate(1e4)
        assert victim() is heavy, "nothing would serve it on such a link"


@story
async def test_heavier_accuracy_session_is_removed_last() -> None:
    """When what devices see begins to move, and not all find room any more, the heavier session stays, though it is the
    newest and takes most.
    """
    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        for drop_max, weight in ((0.08, 1.0), (0.08, 1.0), (0.08, 1.0), (0.075, 5.0)):
            live = await fleet.camera(gate, AccuracyPromise(drop_max), mbps=50, weight=weight)
            live.report(DeviceReport(drop_rate=0.015))
            await fleet.pass_s(1)
        assert set(fleet.states) == {SessionState.SERVED}
        for device in fleet.devices:
            device.live.report(DeviceReport(drop_rate=0.029))
        await fleet.pass_s(4)
        assert live.state is SessionState.SERVED
        waiting = [device.live for device in fleet.devices if device.live.state is SessionState.WAITING]
        assert waiting
        assert all(one.reason.startswith("processor: ") for one in waiting)


@pytest.mark.parametrize(
    "promise",
    [
        LatencyPromise(150.0, 15.0),
        pytest.param(AccuracyPromise(0.05), marks=pytest.mark.nightly("a long story of many plans")),
    ],
    ids=["latency", "accuracy"],
)
@story
async def test_heavier_waiting_session_is_admitted_first(promise: Promise) -> None:
    """Whichever session's turn it is to be tried: when there is room, it is the heavier one's."""
    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        served = []
        while (live := await fleet.join(gate, promise, mbps=50, wait=True)).state is SessionState.SERVED:
            served.append(live)
            fleet.stream(live, steady(50), drop_rate=0.01)
            await fleet.pass_s(5)  # its link is known by then
        heavy = await fleet.camera(gate, promise, mbps=50, drop_rate=0.01, wait=True, weight=5.0)
        await fleet.pass_s(4.3)  # so short that what is kept free has not become less by one session
        late = [await fleet.join(gate, promise, mbps=50, wait=True) for _ in range(3)]
        assert heavy.tries > 1
        await fleet.sessions.end(served[0])
        for _ in range(40):
            if heavy.state is SessionState.WAITING:
                await fleet.pass_s(0.1)
        assert heavy.state is SessionState.SERVED
        assert all(one.state is SessionState.WAITING for one in (live, *late))


@story
async def test_waiting_session_is_served_when_there_is_room() -> None:
    """With `wait` the device is told why it waits, and goes on when another one leaves."""
    promise = LatencyPromise(150.0, 15.0)
    async with box_with({640: Cost(run_ms=40)}) as (fleet, gate):
        first = await fleet.join(gate, promise, mbps=50)
        second = await fleet.camera(gate, promise, mbps=50, wait=True)
        assert (first.state, second.state) == (SessionState.SERVED, SessionState.WAITING)
        assert second.reason.startswith("processor: ")
        await fleet.pass_s(2)
        assert second.counts.sent == 0
        await fleet.sessions.end(first)
        await fleet.pass_s(1.1)
        assert fleet.states == [SessionState.SERVED]
        assert fleet.devices[0].told[NoticeKind.SERVED] == 1
        await fleet.pass_s(2)
        assert second.counts.answered > 10


@story
async def test_admissions_of_tenant_delay_other_tenant_by_one_decision() -> None:
    """Each of a hundred refusals is a dozen decisions: another tenant's device waits for none of the others, nor for
    the offers of that refusal.
    """
    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        other = fleet.add({640: Cost(run_ms=20)}, name="other", tenant="u")
        with fleet.deciding("adapt", lambda: fleet.pass_s(0.05)):
            many = [asyncio.create_task(fleet.join(gate, LatencyPromise(5.0, 15.0))) for _ in range(100)]
            await fleet.pass_s(0.02)
            began_ns = fleet.clock.now_ns()
            live = await fleet.join(other, LatencyPromise(1000.0, 1.0), mbps=50)
            assert live.state is SessionState.SERVED
            assert fleet.clock.now_ns() - began_ns <= 5 * 50 * NS_PER_MS
            assert not any(one.done() for one in many)
            for one in many:
                one.cancel()
            await asyncio.gather(*many, return_exceptions=True)


@story
async def test_latency_promises_do_not_wait_for_accuracy_planner() -> None:
    """Of many promises of accuracy a plan takes seconds: promises of latency are made, and planned, meanwhile; what one
    kind was sold in that time the other does not get.
    """
    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        with fleet.deciding("offloads", lambda: fleet.pass_s(5)):
            asked = asyncio.create_task(fleet.join(gate, AccuracyPromise(0.02), fps=30.0, mbps=50, wait=True))
            await fleet.pass_s(1)
            began_ns = fleet.clock.now_ns()
            lives, _ = await fleet.fill(gate, LatencyPromise(150.0, 15.0), mbps=50)
            assert fleet.clock.now_ns() - began_ns < NS_PER_S
            assert len(lives) >= 2
            assert not asked.done()
            before = [live.plan.number for live in lives if live.plan is not None]
            await fleet.pass_s(2)
            assert not asked.done()
            assert all(
                live.plan is not None and live.plan.number > old for live, old in zip(lives, before, strict=True)
            )
            other = await asked
            assert other.state is SessionState.WAITING
            assert set(fleet.states) == {SessionState.SERVED}


@story
async def test_event_loop_turns_between_decisions_of_refusal() -> None:
    """Offers are found by a dozen decisions, each short enough for the event loop, together not."""
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(deciding.count)
            await others_first()

    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        deciding = fleet.sessions.planning.deciding
        looking = asyncio.create_task(look())
        await fleet.refused(gate, LatencyPromise(5.0, 15.0))
        looking.cancel()
    assert deciding.count > 8
    assert max(after - before for before, after in pairwise(seen)) <= 2


@story
async def test_session_beyond_limit_is_refused_with_name_of_limit() -> None:
    """Two of a tenant, three of all: the refusal says which of the two limits it is, and nothing of other tenants."""
    fleet = Fleet()
    fleet.sessions.register.limits = Limits(per_tenant_max=2, all_max=3)
    gates = [fleet.add({160: Cost(run_ms=1)}, name=f"gate-{at}", tenant=f"t{at}") for at in range(3)]
    promise = LatencyPromise(500.0, 1.0)
    async with fleet.working():
        for gate in (gates[0], gates[0], gates[1]):
            last = await fleet.join(gate, promise)
        with pytest.raises(TooManySessions, match="tenant 't0' has 2 sessions"):
            await fleet.join(gates[0], promise)
        with pytest.raises(TooManySessions, match="the box has 3 sessions"):
            await fleet.join(gates[2], promise)
        await fleet.sessions.end(last)
        await fleet.join(gates[2], promise)
