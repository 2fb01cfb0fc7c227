"""The planners live: devices on emulated links, the whole engine, virtual time."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from appliance.clock import NS_PER_MS, NS_PER_S, others_first
from appliance.domain.errors import PromiseNotPossible, TooManySessions
from appliance.domain.session import (
    AccuracyPromise,
    Cause,
    DeviceReport,
    DropCause,
    LatencyPromise,
    NoticeKind,
    Promise,
    Reference,
)
from appliance.domain.states import SessionState
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.runtime.sessions import accuracy_plans, latency_plans
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.link import LinkEstimate
from appliance.runtime.sessions.pools import key_of
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet, promise_of, steady

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

ZOO = {
    640: Cost(run_ms=40),
    480: Cost(run_ms=24),
    320: Cost(run_ms=13),
    160: Cost(run_ms=6),
}


def kept_share(fleet: Fleet) -> float:
    """Of all windows of all devices."""
    windows = sum(device.live.windows for device in fleet.devices)
    return sum(device.live.kept for device in fleet.devices) / windows if windows else 0.0


@story
async def test_latency_sessions_of_four_cameras_keep_every_window() -> None:
    """4 × 15 frames a second within 150 ms on 15 Mbit/s: every window is kept, and not with the smallest variant."""
    fleet = Fleet(workers=2)
    gate = fleet.add(ZOO)
    async with fleet.working():
        for _ in range(4):
            live = await fleet.join(gate, LatencyPromise(150.0, 15.0), mbps=15)
            fleet.stream(live, steady(15))
        await fleet.pass_s(62)
        for device in fleet.devices:
            counts = device.live.counts
            assert counts.sent > 800
            assert counts.answered >= 0.99 * (counts.sent - counts.under_way), counts
            assert counts.captured == pytest.approx(device.captured, abs=3)
        assert kept_share(fleet) >= 0.99
        assert any(device.live.variant != "v160" for device in fleet.devices)


@story
async def test_session_on_narrower_link_gets_smaller_frames() -> None:
    """From 20 to 3 Mbit/s and back: the variant follows within a second, and the device is told."""
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    async with fleet.working():
        live = await fleet.join(gate, LatencyPromise(150.0, 10.0), mbps=20)
        device = fleet.stream(live, lambda s: 3e6 if 10 <= s < 20 else 20e6)
        await fleet.pass_s(9)
        before = live.variant
        await fleet.pass_s(2.5)
        narrow = live.variant
        await fleet.pass_s(6)
        assert int(narrow[1:]) < int(before[1:])
        await fleet.pass_s(6)
        assert int(live.variant[1:]) > int(narrow[1:])
        assert device.told[NoticeKind.VARIANT] >= 2
        assert live.counts.answered >= 0.9 * live.counts.sent


@story
async def test_plan_is_made_at_once_when_link_changes() -> None:
    """The session does not wait until the next plan is due anyway."""
    assert await _plans_in_20_s(40e6, 2e6) > 50


@story
async def test_plan_is_not_made_early_for_link_change_without_effect() -> None:
    """A wire carries a frame in a millisecond or two: its estimates change by a fifth all the time."""
    assert 35 <= await _plans_in_20_s(4e9, 200e6) <= 42


async def _plans_in_20_s(*rates_bps: float) -> int:
    """Of a device whose link changes every other second."""
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    async with fleet.working():
        live = await fleet.join(gate, LatencyPromise(300.0, 10.0), mbps=20)
        fleet.stream(live, lambda s: rates_bps[int(s / 2) % 2])
        await fleet.pass_s(5)
        before = fleet.sessions.planning.deciding.count
        await fleet.pass_s(20)
        return fleet.sessions.planning.deciding.count - before


@story
async def test_session_beyond_capacity_is_refused_and_breaks_no_promise() -> None:
    """Cameras join until a session is refused, with the processor as the cause; all that were let in keep their
    promise.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    refusal: PromiseNotPossible | None = None
    async with fleet.working():
        for number in range(30):
            try:
                live = await fleet.join(gate, LatencyPromise(100.0, 15.0), mbps=50)
            except PromiseNotPossible as error:
                refusal = error
                break
            fleet.stream(live, steady(50))
            await fleet.pass_s(1 + number % 3 / 10)
        assert refusal is not None
        assert refusal.cause == Cause.PROCESSOR
        assert refusal.offers
        assert 5 <= len(fleet.devices) < 30
        await fleet.pass_s(31)
        assert all(device.live.state is SessionState.SERVED for device in fleet.devices)
        assert all(device.told[NoticeKind.REMOVED] == 0 for device in fleet.devices)
        assert kept_share(fleet) >= 0.99


@pytest.mark.nightly("minutes of many devices")
@pytest.mark.parametrize("boxes", [2, pytest.param(12, marks=pytest.mark.nightly("the same with more boxes"))])
@story
async def test_counter_offers_taken_at_once_are_let_in(boxes: int) -> None:
    """Of random promises on random boxes that were refused, 95 of 100 counter-offers are possible when posted."""
    taken = asked = 0
    for seed in range(boxes):
        rng = random.Random(seed)
        fleet = Fleet(workers=rng.choice([1, 2]))
        gate = fleet.add(ZOO)
        async with fleet.working():
            for _ in range(25):
                promise: Promise = (
                    LatencyPromise(rng.choice([40.0, 75.0, 100.0, 150.0]), rng.choice([5.0, 15.0, 25.0]))
                    if rng.random() < 0.7
                    else AccuracyPromise(rng.choice([0.02, 0.05, 0.1]))
                )
                mbps, rtt = rng.choice([2.0, 10.0, 40.0]), rng.choice([5.0, 30.0])
                try:
                    live = await fleet.join(gate, promise, mbps=mbps, rtt_ms=rtt)
                    fleet.stream(live, steady(mbps), rtt_ms=rtt)
                except PromiseNotPossible as error:
                    for offer in error.offers:
                        asked += 1
                        try:
                            live = await fleet.join(gate, promise_of(dict(offer)), mbps=mbps, rtt_ms=rtt)
                        except PromiseNotPossible:
                            continue
                        taken += 1
                        await fleet.sessions.end(live)
                await fleet.pass_s(rng.uniform(0.1, 1.0))
    assert asked >= 20
    assert taken >= 0.95 * asked


@pytest.mark.nightly("a long story of many plans")
@story
async def test_accuracy_promises_are_kept() -> None:
    """60 frames a second, batches that gain: as many as are let in see drops within their promise."""
    fleet = Fleet(workers=1)
    depth = fleet.add(
        {320: Cost(run_ms=20, run_ms_by_batch={2: 26, 3: 33, 4: 40, 5: 48, 6: 55, 7: 63, 8: 70})}, name="depth"
    )
    async with fleet.working():
        for _ in range(60):
            try:
                live = await fleet.join(depth, AccuracyPromise(0.12), fps=60.0, mbps=40)
            except PromiseNotPossible:
                break
            fleet.stream(live, steady(40), drop_rate=0.006)
            await fleet.pass_s(0.3)
        assert len(fleet.devices) >= 3
        await fleet.pass_s(30)
        served = [device for device in fleet.devices if device.live.state is SessionState.SERVED]
        assert len(served) >= 0.9 * len(fleet.devices)
        assert sum(device.live.windows for device in served) >= 20 * len(served)
        assert kept_share(fleet) >= 0.98


@story
async def test_first_promise_counts_plain_requests_before_session() -> None:
    """Runs of 60 ms, one behind the other, of a caller without a session: 60 ms are not promised beside them, which
    alone would be kept with 13 ms. There is no session that would have waited for its turn meanwhile.
    """
    fleet = Fleet(workers=1)
    gate, plain = fleet.add(ZOO), fleet.bench.add({"p": Cost(run_ms=60)}, name="plain")

    async def asks() -> None:
        while True:
            await fleet.bench.infer(application=plain.id)

    async with fleet.working():
        asking = asyncio.create_task(asks())
        await fleet.pass_s(5.0)
        with pytest.raises(PromiseNotPossible):
            await fleet.join(gate, LatencyPromise(60.0, 5.0), mbps=50)
        asking.cancel()
        await fleet.pass_s(12.0)
        assert (await fleet.join(gate, LatencyPromise(60.0, 5.0), mbps=50)).state is SessionState.SERVED


@story
async def test_session_left_out_of_first_plan_is_refused_or_waits() -> None:
    """Others begin to take the processor in the midst of an admission: a session that does not want
    to wait is refused.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    planning = fleet.sessions.planning
    adapt = planning.deciding.adapt

    async def meanwhile(problem: AdaptationInput) -> AdaptationPlan:
        plan = await adapt(problem)
        planning.ledger.unplanned, planning.ledger.unplanned_run_ms = 0.3, 100.0
        return plan

    planning.deciding.adapt = meanwhile  # type: ignore[method-assign]
    with pytest.raises(PromiseNotPossible) as refused:
        await fleet.join(gate, LatencyPromise(60.0, 5.0), mbps=50)
    assert refused.value.cause == Cause.PROCESSOR
    assert not fleet.sessions.live
    planning.ledger.unplanned = 0.0
    assert (await fleet.join(gate, LatencyPromise(60.0, 5.0), mbps=50, wait=True)).state is SessionState.WAITING


@story
async def test_tenant_gets_share_from_sessions_beyond_share_of_others() -> None:
    """One tenant has all of a worker; sessions of another one come, one after the other, up to four ninths of it. Each
    is let in, for one of the first's that is beyond its share by then, and stays served from its first plan on."""
    fleet = Fleet(workers=1)
    cost = {320: Cost(run_ms=40)}
    gate, other = fleet.add(cost, tenant="first"), fleet.add(cost, tenant="second", name="other")
    async with fleet.working():
        first = []
        with suppress(PromiseNotPossible):
            while True:
                first.append(await fleet.join(gate, LatencyPromise(200.0, 2.0), mbps=50))
                fleet.stream(first[-1], steady(50))
        assert len(first) >= 9
        second = []
        for _ in range(4 * len(first) // 9):
            live = await fleet.join(other, LatencyPromise(200.0, 2.0), mbps=50)
            second.append(fleet.stream(live, steady(50)))
            await fleet.pass_s(0.8)
        await fleet.pass_s(5)
        assert [device.live.state for device in second] == [SessionState.SERVED] * len(second)
        assert sum(device.told[NoticeKind.REMOVED] for device in second) == 0
        gone = [device for device in fleet.devices if device.live in first and device.told[NoticeKind.REMOVED]]
        assert gone
        assert not {id(device.live) for device in gone}.intersection(map(id, first[: len(first) // 2]))


@pytest.mark.nightly("minutes of many devices")
@story
async def test_worker_without_sessions_keeps_network() -> None:
    """Three workers with 480, 320 and 160 (promises that allow no more); the session on 480 leaves, and then one comes
    for 640: it goes to the worker of 480, and the two others stay where they are (JF-18).
    """
    fleet = Fleet(workers=3)
    gate = fleet.add(ZOO)
    async with fleet.working():
        lives = [await fleet.join(gate, LatencyPromise(slo_ms, 15.0), mbps=500) for slo_ms in (70.0, 45.0, 28.0)]
        await fleet.pass_s(2.0)
        pool = fleet.sessions.planning.pools.pool(key_of(lives[0]))
        before = pool.previous
        assert sorted(map(str, before)) == ["v160", "v320", "v480"]
        await fleet.sessions.end(lives[0])
        await fleet.pass_s(2.0)
        assert pool.previous == before
        await fleet.join(gate, LatencyPromise(120.0, 15.0), mbps=500)
        await fleet.pass_s(2.0)
        assert pool.previous == tuple("v640" if name == "v480" else name for name in before)


@pytest.mark.nightly("a long story of many plans")
@story
async def test_promises_of_both_kinds_hold_beside_plain_requests() -> None:
    """Cameras of both kinds beside unplanned requests of another tenant."""
    fleet = Fleet(workers=1)
    gate, plain = fleet.add(ZOO), fleet.bench.add({"p": Cost(run_ms=5)}, name="plain", tenant="other")

    async def requests() -> None:
        while True:
            await fleet.bench.infer(application=plain.id, tenant="other")
            await fleet.bench.pause(45)

    async with fleet.working():
        asking = asyncio.create_task(requests())
        await fleet.pass_s(5)
        for promise in (LatencyPromise(150.0, 10.0), AccuracyPromise(0.2), LatencyPromise(100.0, 5.0)):
            live = await fleet.join(gate, promise, mbps=30)
            fleet.stream(live, steady(30))
        await fleet.pass_s(32)
        asking.cancel()
        assert kept_share(fleet) >= 0.98, [(d.live.promise, d.live.windows, d.live.kept) for d in fleet.devices]


@pytest.mark.nightly("a long story of many plans")
@story
async def test_session_beyond_promised_rate_breaks_no_promise() -> None:
    """A camera of a full box sends six times what it was promised: frames beyond run in gaps or are dropped with a
    cause of their own, and all promises are kept, that of the camera among them.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add({320: Cost(run_ms=13)})
    async with fleet.working():
        for number in range(4):
            live = await fleet.join(gate, LatencyPromise(150.0, 5.0 if number == 0 else 15.0), mbps=50)
            fleet.stream(live, steady(50), is_greedy=number == 0)
        await fleet.pass_s(32)
        greedy = fleet.devices[0].live
        counts = greedy.counts
        assert counts.sent > 5 * 150
        assert counts.unplanned == pytest.approx(counts.sent - 5 * 32, rel=0.1)
        assert counts.drops[DropCause.OVER_RATE] > 0
        assert counts.answered > 5 * 32  # there are gaps
        assert kept_share(fleet) >= 0.98, [(d.live.counts, d.live.windows, d.live.kept) for d in fleet.devices]


@story
async def test_waiting_session_is_served_when_there_is_room() -> None:
    """With `wait` the device is told why it waits, and goes on when another one leaves."""
    fleet = Fleet(workers=1)
    gate = fleet.add({640: Cost(run_ms=40)})
    async with fleet.working():
        first = await fleet.join(gate, LatencyPromise(150.0, 15.0), mbps=50)
        second = await fleet.join(gate, LatencyPromise(150.0, 15.0), mbps=50, wait=True)
        assert (first.state, second.state) == (SessionState.SERVED, SessionState.WAITING)
        assert second.reason.startswith("processor: ")
        device = fleet.stream(second, steady(50))
        await fleet.pass_s(2)
        assert second.counts.sent == 0
        await fleet.sessions.end(first)
        await fleet.pass_s(1.1)
        assert second.state is SessionState.SERVED
        assert device.told[NoticeKind.SERVED] == 1
        await fleet.pass_s(2)
        assert second.counts.answered > 10


@story
async def test_sessions_beyond_tenant_share_give_way_to_other_tenant() -> None:
    """One tenant has bought all while there was no other; another one gets its half, and the first is told."""
    fleet = Fleet(workers=1)
    one = fleet.add({640: Cost(run_ms=20)}, tenant="one")
    two = fleet.add({640: Cost(run_ms=20)}, tenant="two", name="two")
    async with fleet.working():
        mine = []
        for _ in range(10):
            try:
                mine.append(await fleet.join(one, LatencyPromise(150.0, 10.0), mbps=50))
            except PromiseNotPossible:
                break
            fleet.stream(mine[-1], steady(50))
        assert len(mine) >= 3
        await fleet.pass_s(3)
        theirs = await fleet.join(two, LatencyPromise(150.0, 10.0), mbps=50)
        assert theirs.state is SessionState.SERVED
        fleet.stream(theirs, steady(50))
        await fleet.pass_s(2)
        states = [live.state for live in mine]
        assert states.count(SessionState.WAITING) >= 1
        assert all(live.reason.startswith("share: ") for live in mine if live.state is SessionState.WAITING)


@story
async def test_heavier_latency_session_is_removed_last() -> None:
    """When another tenant wants its share, the first one's light sessions give way, and not the newest, which is
    heavy; when links narrow so that not all find room, too.
    """
    fleet = Fleet(workers=1)
    one = fleet.add({640: Cost(run_ms=20)}, tenant="one")
    two = fleet.add({640: Cost(run_ms=20)}, tenant="two", name="two")
    async with fleet.working():
        mine = []
        for weight in (1.0, 1.0, 1.0, 5.0):
            mine.append(await fleet.join(one, LatencyPromise(150.0, 10.0), mbps=50, weight=weight))
            fleet.stream(mine[-1], steady(50))
        await fleet.pass_s(3)
        fleet.stream(await fleet.join(two, LatencyPromise(150.0, 10.0), mbps=50), steady(50))
        await fleet.pass_s(2)
        states = [live.state for live in mine]
        assert states[-1] is SessionState.SERVED
        assert SessionState.WAITING in states
        served = [live for live in mine if live.state is SessionState.SERVED]
        for live in served:
            live.beyond_share = False
        key = key_of(served[0])
        zoo = fleet.sessions.planning.zoos.of(key)
        left_out = [mine[-1].id]
        assert fleet.sessions.planning.latency.victim(key, served, left_out, zoo).session.weight == 1.0
        mine[-1].link = LinkEstimate(1e4)
        assert fleet.sessions.planning.latency.victim(key, served, left_out, zoo) is mine[-1], (
            "nothing would serve it on such a link"
        )


@story
async def test_heavier_accuracy_session_is_removed_last() -> None:
    """When what devices see begins to move, and not all find room any more, the heavier session stays, though it is the
    newest and takes most.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add({640: Cost(run_ms=20)})
    async with fleet.working():
        lives = []
        for drop_max, weight in ((0.08, 1.0), (0.08, 1.0), (0.08, 1.0), (0.075, 5.0)):
            lives.append(await fleet.join(gate, AccuracyPromise(drop_max), mbps=50, weight=weight))
            fleet.stream(lives[-1], steady(50))
            lives[-1].report(DeviceReport(drop_rate=0.015))
            await fleet.pass_s(1)
        assert all(live.state is SessionState.SERVED for live in lives)
        for live in lives:
            live.report(DeviceReport(drop_rate=0.029))
        await fleet.pass_s(4)
        assert lives[-1].state is SessionState.SERVED
        assert SessionState.WAITING in [live.state for live in lives]
        assert all(live.reason.startswith("processor: ") for live in lives if live.state is SessionState.WAITING)


async def heavier_comes_first(promise: Promise) -> None:
    """Whoever's turn it is to be tried: when there is room, it is the heavier one's."""
    fleet = Fleet(workers=1)
    gate = fleet.add({640: Cost(run_ms=20)})
    async with fleet.working():
        served = []
        while (live := await fleet.join(gate, promise, mbps=50, wait=True)).state is SessionState.SERVED:
            served.append(live)
            fleet.stream(live, steady(50), drop_rate=0.01)
            await fleet.pass_s(5)  # its link is known by then
        heavy = await fleet.join(gate, promise, mbps=50, wait=True, weight=5.0)
        fleet.stream(heavy, steady(50), drop_rate=0.01)
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
async def test_heavier_session_waiting_for_latency_is_admitted_first() -> None:
    await heavier_comes_first(LatencyPromise(150.0, 15.0))


@pytest.mark.nightly("a long story of many plans")
@story
async def test_heavier_session_waiting_for_accuracy_is_admitted_first() -> None:
    await heavier_comes_first(AccuracyPromise(0.05))


@story
async def test_admissions_of_tenant_delay_other_tenant_by_one_decision() -> None:
    """Each of a hundred refusals is a dozen decisions: another tenant's device waits for none of the others, nor for
    the offers of that refusal.
    """
    fleet = Fleet(workers=1)
    gate, other = fleet.add({640: Cost(run_ms=20)}), fleet.add({640: Cost(run_ms=20)}, name="other", tenant="u")
    deciding = fleet.sessions.planning.deciding
    adapt = deciding.adapt

    async def slow(problem: AdaptationInput) -> AdaptationPlan:
        plan = await adapt(problem)
        await fleet.pass_s(0.05)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "adapt", slow)
        async with fleet.working():
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
async def test_event_loop_turns_between_decisions_of_refusal() -> None:
    """Offers are found by a dozen decisions, each short enough for the event loop, together not."""
    fleet = Fleet(workers=1)
    gate = fleet.add({640: Cost(run_ms=20)})
    deciding = fleet.sessions.planning.deciding
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(deciding.count)
            await others_first()

    async with fleet.working():
        looking = asyncio.create_task(look())
        with pytest.raises(PromiseNotPossible):
            await fleet.join(gate, LatencyPromise(5.0, 15.0))
        looking.cancel()
    assert deciding.count > 8
    assert max(after - before for before, after in pairwise(seen)) <= 2


@story
async def test_latency_promises_do_not_wait_for_accuracy_planner() -> None:
    """Of many promises of accuracy a plan takes seconds: promises of latency are made, and planned, meanwhile; what one
    kind was sold in that time the other does not get.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add({640: Cost(run_ms=20)})
    deciding = fleet.sessions.planning.deciding
    offloads = deciding.offloads

    async def slow(problem: OffloadInput) -> OffloadPlan:
        plan = await offloads(problem)
        await fleet.pass_s(5)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "offloads", slow)
        async with fleet.working():
            asked = asyncio.create_task(fleet.join(gate, AccuracyPromise(0.02), fps=30.0, mbps=50, wait=True))
            await fleet.pass_s(1)
            began_ns, lives = fleet.clock.now_ns(), []
            with suppress(PromiseNotPossible):
                while True:
                    lives.append(await fleet.join(gate, LatencyPromise(150.0, 15.0), mbps=50))
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
            assert all(live.state is SessionState.SERVED for live in lives)


@story
async def test_plan_avoids_variant_that_memory_has_refused() -> None:
    """A variant that finds no room is not planned with for a while; frames go on with the next one."""
    fleet = Fleet(workers=1, budget=100)
    gate = fleet.add({640: Cost(run_ms=20, resident_bytes=90), 320: Cost(run_ms=10, resident_bytes=20)})
    other = fleet.bench.add({"big": Cost(run_ms=5, resident_bytes=70)}, name="other", tenant="other")
    async with fleet.working():
        live = await fleet.join(gate, LatencyPromise(150.0, 10.0), mbps=50)
        assert live.variant == "v640"
        build = fleet.bench.build("big", other.id)
        servable = fleet.bench.catalogue.entry(other.id).servables["big"]
        pinned = await fleet.bench.memory.pin(build, servable.resident_bytes, servable.peak_bytes, None)
        fleet.stream(live, steady(50))
        await fleet.pass_s(5)
        assert live.variant == "v320"
        assert live.counts.answered > 20
        fleet.bench.memory.unpin(pinned)


@story
async def test_session_without_link_is_suspended_and_served_after_reconnect() -> None:
    """1.5 s without a link: suspended with its capacity kept, and answered again half a second
    after the link is back.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    async with fleet.working():
        live = await fleet.join(gate, LatencyPromise(150.0, 15.0), mbps=20)
        device = fleet.stream(live, steady(20))
        await fleet.pass_s(5)
        fleet.disconnect(device)
        await fleet.pass_s(1.5)
        states = [live.state]
        before = live.counts.answered
        fleet.stream(live, steady(20), from_frame=device.captured + 45)
        await fleet.pass_s(0.5)
        assert live.counts.answered > before
        fleet.disconnect(fleet.devices[-1])
        await fleet.pass_s(62)
        states.append(live.state)
        assert states == [SessionState.SUSPENDED, SessionState.ENDED]
        assert list(fleet.sessions.live) == []
        await fleet.pass_s(61)
        assert list(fleet.sessions.list("t")) == []


@pytest.mark.nightly("minutes of many devices")
@story
async def test_sessions_joining_and_leaving_at_random_keep_windows_and_counts() -> None:
    """Devices of both kinds and two tenants come, pause, lose their links and go, at random: every frame is counted
    once, nearly all windows are kept, and nothing is left at the end."""
    rng = random.Random(11)
    fleet = Fleet(workers=2)
    mine, theirs = fleet.add(ZOO, tenant="one"), fleet.add({320: Cost(run_ms=8)}, tenant="two", name="two")
    refused = 0
    async with fleet.working():
        for _ in range(70):
            there = [device for device in fleet.devices if device.live.state is not SessionState.ENDED]
            step = rng.random()
            if step < 0.5:
                promise: Promise = LatencyPromise(rng.choice([100.0, 200.0]), rng.choice([5.0, 10.0]))
                if rng.random() < 0.3:
                    promise = AccuracyPromise(rng.choice([0.1, 0.2]))
                try:
                    live = await fleet.join(rng.choice([mine, theirs]), promise, mbps=30)
                    fleet.stream(live, steady(30))
                except PromiseNotPossible:
                    refused += 1
            elif there and step < 0.8:
                await fleet.sessions.end(rng.choice(there).live)
            elif there and step < 0.9:
                fleet.disconnect(rng.choice(there))
            elif there:
                live = rng.choice(there).live
                await fleet.sessions.change(live, is_paused=not live.session.is_paused)
            await fleet.pass_s(rng.uniform(0.05, 1.5))
        assert len(fleet.devices) > 15
        for device in fleet.devices:
            await fleet.sessions.end(device.live)
        await fleet.pass_s(2)
        for device in fleet.devices:
            counts = device.live.counts
            assert counts.under_way == 0
            assert counts.sent == counts.answered + counts.late + counts.dropped + counts.lost
        assert fleet.sessions.planning.ledger.planned == 0.0
    assert kept_share(fleet) >= 0.97
    fleet.bench.assert_quiet()


@story
async def test_promise_of_dedicated_reference_is_judged_against_dedicated_box() -> None:
    """On a link whose transfer time alone loses more than is allowed against fresh results."""
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    async with fleet.working():
        promise = AccuracyPromise(0.05, Reference.DEDICATED)
        live = await fleet.join(gate, promise, mbps=20, rtt_ms=200.0)
        fleet.stream(live, steady(20), rtt_ms=200.0, drop_rate=0.02)
        await fleet.pass_s(6)
        assert live.windows >= 3
        assert live.kept == live.windows
        assert live.drop_of(live.reference_stride) > promise.drop_max


@story
async def test_pool_that_cannot_be_planned_stops_no_other_pool() -> None:
    """A promise that no planner can count with: the plans of other tenants' devices go on."""
    fleet = Fleet(workers=1)
    odd, gate = fleet.add(ZOO, name="a", tenant="a"), fleet.add(ZOO, name="b", tenant="b")
    async with AsyncExitStack() as stack:
        told = stack.enter_context(capture_logs())  # each would be drawn for seconds, with all that its stack holds
        await stack.enter_async_context(fleet.working())
        one = await fleet.join(odd, LatencyPromise(150.0, 5.0), mbps=20)
        other = await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20)
        fleet.stream(other, steady(20))
        await fleet.pass_s(1)
        await fleet.sessions.change(one, is_paused=True)
        await fleet.sessions.change(one, promise=LatencyPromise(150.0, 1e-310))
        with suppress(OverflowError, RuntimeWarning):  # of the counting itself
            await fleet.sessions.change(one, is_paused=False)
        await fleet.pass_s(1)
        assert other.plan is not None
        before = other.plan.number
        await fleet.pass_s(2)
        assert other.plan.number >= before + 2
        assert any(line["event"] == "a pool was not planned" for line in told)


@story
async def test_latency_planning_yields_to_event_loop_between_sessions() -> None:
    """However many sessions there are: the event loop turns between pools, and within a pool every few sessions."""
    fleet = Fleet(workers=1)
    gates = [fleet.add({160: Cost(run_ms=1)}, name=f"gate-{number}") for number in range(4)]
    for number in range(40):
        await fleet.join(gates[number % 4], LatencyPromise(500.0, 0.1), fps=1.0, mbps=50)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)  # noqa: TID251 - turns are counted, no time passes
            turns += 1

    counting = asyncio.create_task(count())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency_plans, "AT_ONCE", 4)
        await fleet.sessions.planning.adapt_all()
    counting.cancel()
    assert turns >= 4 + 40 // 4


@story
async def test_accuracy_planning_yields_to_event_loop_between_sessions() -> None:
    """A pool of promises of accuracy with many sessions is looked at in several turns, too."""
    fleet = Fleet(workers=1)
    gate = fleet.add({160: Cost(run_ms=1)})
    for _ in range(12):
        await fleet.join(gate, AccuracyPromise(0.4), fps=5.0, mbps=50)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)  # noqa: TID251 - turns are counted, no time passes
            turns += 1

    counting = asyncio.create_task(count())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy_plans, "AT_ONCE", 2)
        await fleet.sessions.planning.offload_all()
    counting.cancel()
    assert turns >= 12 // 2 - 1


@story
async def test_paused_session_has_no_weight_and_ends_after_a_day() -> None:
    """Meanwhile its tenant's share belongs to the others; a session that goes on in time is not taken for silent."""
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO, tenant="a")
    async with fleet.working():
        one, other = [await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20) for _ in range(2)]
        assert list(fleet.sessions.applications.active_weights()) == ["a"]
        for live in (one, other):
            await fleet.sessions.change(live, is_paused=True)
        assert fleet.sessions.applications.active_weights() == {}
        one.last_heard_ns -= 23 * 3600 * NS_PER_S
        other.last_heard_ns -= 24 * 3600 * NS_PER_S
        await fleet.pass_s(1)
        assert [live.state for live in (one, other)] == [SessionState.SUSPENDED, SessionState.ENDED]
        await fleet.sessions.change(one, is_paused=False)
        await fleet.pass_s(1)
        assert one.state is SessionState.SERVED


@story
async def test_planned_batches_begin_in_time_under_flood() -> None:
    """Another tenant asks without end, in runs that are longer than a batch's grace: no batch begins later than that,
    and the processor idles no more than its gaps are too short.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add({320: Cost(run_ms=20, run_ms_by_batch={2: 30, 4: 50})})
    fleet.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="flood", tenant="u")

    async def flood() -> None:
        while True:
            await fleet.bench.infer(application="u/flood", tenant="u")

    async with fleet.working():
        for _ in range(4):
            live = await fleet.join(gate, AccuracyPromise(0.035), mbps=20)
            fleet.stream(live, steady(20))
        await fleet.pass_s(2)
        callers = [asyncio.create_task(flood()) for _ in range(6)]
        (worker,) = fleet.bench.engine.workers
        before, busy_ns = fleet.sessions.planning.batch_counts(), worker.busy_ns
        await fleet.pass_s(5)
        counts = fleet.sessions.planning.batch_counts()
        assert counts.full - before.full > 40
        assert counts.late == before.late
        assert worker.busy_ns - busy_ns > 0.95 * 5 * NS_PER_S
        for caller in callers:
            caller.cancel()


@story
async def test_session_beyond_limit_is_refused_with_name_of_limit() -> None:
    """Two of a tenant, three of all: the refusal says which of the two limits it is, and nothing of other tenants."""
    fleet = Fleet(workers=1)
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
