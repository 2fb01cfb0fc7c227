"""What happens to plans and promises while a planner decides: sessions change and go, models change."""

import asyncio
from collections.abc import Hashable
from contextlib import suppress

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.errors import PromiseNotPossible
from appliance.domain.session import AccuracyPromise, FrameHead, LatencyPromise
from appliance.domain.states import SessionState
from appliance.runtime.sessions.adapting import FrameOverhead, client_of, rate_of
from appliance.runtime.sessions.deciding import DecisionSlow
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import key_of
from appliance.runtime.sessions.zoo import Zoo
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.harness.reach import alive
from tests.runtime.sessions.fleet import Fleet, box_with

ZOO = {320: Cost(run_ms=13), 160: Cost(run_ms=6)}
DECIDES_MS = 20.0


@story
async def test_promise_changes_kind_between_two_plans_only() -> None:
    """Not in the middle of a plan that counts with it: a session that joins just then is served, and so is the one that
    changes.
    """
    latency, accuracy = LatencyPromise(150.0, 5.0), AccuracyPromise(0.3)
    async with box_with(ZOO) as (fleet, gate):
        one = await fleet.join(gate, latency, mbps=20)
        with fleet.deciding("adapt", lambda: fleet.bench.pause(DECIDES_MS)):
            joining = asyncio.create_task(fleet.join(gate, latency, mbps=20))
            await fleet.bench.pause(1.5 * DECIDES_MS)  # its first plan is made
            changing = asyncio.create_task(fleet.sessions.change(one, promise=accuracy))
            other = await joining
            assert await changing is one
        assert [live.state for live in (one, other)] == [SessionState.SERVED] * 2
        assert one.promise == accuracy
        with fleet.deciding("offloads", lambda: fleet.bench.pause(DECIDES_MS)):
            joining = asyncio.create_task(fleet.join(gate, accuracy, mbps=20))
            await fleet.bench.pause(0.5 * DECIDES_MS)
            await fleet.sessions.change(one, promise=latency)
            await joining
        assert one.state is SessionState.SERVED


@pytest.mark.parametrize("sizes", [(320,), (320, 160)], ids=["nothing is left", "another one is left"])
@story
async def test_promise_is_judged_anew_when_variant_goes_during_decision(sizes: tuple[int, ...]) -> None:
    """What was decided with the variant holds no more: the promise is judged by the variants that are left."""
    asked = 0

    async def refusing() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            fleet.sessions.planning.refused(gate.id, "v320")

    async with box_with({size: ZOO[size] for size in sizes}) as (fleet, gate):
        with fleet.deciding("offloads", refusing):
            if len(sizes) == 1:
                await fleet.refused(gate, AccuracyPromise(0.3), mbps=20)
            else:
                assert (await fleet.join(gate, AccuracyPromise(0.3), mbps=20)).variant == "v160"
        assert asked


@story
async def test_accuracy_promise_sells_share_of_all_workers() -> None:
    """The share is sold when the session is let in, before the pool's next plan; as of promises of latency."""
    fleet = Fleet(workers=2)
    gate = fleet.add(ZOO)
    ledger = fleet.sessions.planning.ledger
    sold: list[float] = []
    sell = ledger.sell

    def selling(pool: Hashable, tenant: str, least: float) -> None:
        sold.append(least)
        sell(pool, tenant, least)

    async with fleet.working():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "sell", selling)
            live = await fleet.join(gate, AccuracyPromise(0.1), mbps=20)
        assert live.load == pytest.approx(ledger.planned)
        assert len(sold) == 1
        assert 0.0 < sold[0] <= live.load < 0.5


@story
async def test_full_box_takes_laxer_promise_of_served_session() -> None:
    """What the session has itself is not in the way of its new promise, though it is planned with others then."""
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        lives: list[LiveSession] = []
        for rate in (15.0, 5.0, 1.0):
            lives += (await fleet.fill(gate, LatencyPromise(150.0, rate, 50.0), mbps=50))[0]
        lives.sort(key=lambda live: rate_of(live))
        laxer = LatencyPromise(200.0, 10.0)
        await fleet.sessions.change(lives[-1], promise=laxer)
        assert lives[-1].promise == laxer
        assert lives[-1].state is SessionState.SERVED
        await fleet.sessions.change(lives[0], promise=AccuracyPromise(0.5))
        assert lives[0].state is SessionState.SERVED
        await fleet.pass_s(2)
        assert all(live.state is SessionState.SERVED for live in lives)


@story
async def test_changed_promise_is_judged_by_device_as_measured() -> None:
    """A device that lowers the quality, and whose frames wait before they are sent."""
    async with box_with(ZOO) as (fleet, gate):
        live = await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20)
        await fleet.bench.pause(40)
        now_ns = fleet.clock.now_ns()
        frame = fleet.sessions.frame_begins(
            live, FrameHead(0, now_ns, now_ns - 30 * NS_PER_MS, None, 1000, 320, quality=50)
        )
        frame.received(b"x" * 1000)
        draft = fleet.sessions.promises.draft(live, live.promise)
        assert live.lowers_quality
        assert live.head_delay_ms == pytest.approx(30.0)
        beside = FrameOverhead(0.0, 0.0)
        assert client_of(draft, 1.0, beside) == client_of(live, 1.0, beside)
        frame.lost()


@story
async def test_session_removed_during_plan_takes_no_load() -> None:
    """Nor do frames of others wait for its frames."""

    async def removing() -> None:
        if one.state is SessionState.SERVED:
            one.become(SessionState.WAITING, "share: another tenant wants its own")

    async with box_with(ZOO) as (fleet, gate):
        planning = fleet.sessions.planning
        one, other = [await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20) for _ in range(2)]
        await fleet.pass_s(1)
        with fleet.deciding("adapt", removing):
            await planning.latency.plan(planning.pools.pool(key_of(other)))
        assert one.state is SessionState.WAITING
        assert one.plan is None
        assert (one.load, one.least_load) == (0.0, None)
        assert planning.ledger.planned == pytest.approx(other.load)


@story
async def test_zoos_of_past_promises_are_not_kept() -> None:
    """However many accuracy floors are asked for."""
    fleet = Fleet()
    gate = fleet.add(ZOO)
    before = alive(Zoo)
    async with fleet.working():
        for number in range(50):
            with suppress(PromiseNotPossible):
                live = await fleet.join(gate, LatencyPromise(150.0, 1.0, 99.0 + number / 100.0), mbps=20)
                await fleet.sessions.end(live)
            await fleet.bench.pause(60)
        assert alive(Zoo) - before <= 4


@story
async def test_undecided_planner_refuses_new_promises_and_keeps_old_plan() -> None:
    """A new session is told to ask again; a served one keeps its promise, with the plan that there was; when the
    planner decides again all is as before.
    """

    async def never() -> None:
        await fleet.bench.pause(DECIDES_MS)
        raise DecisionSlow

    promise = LatencyPromise(150.0, 5.0)
    async with box_with(ZOO) as (fleet, gate):
        one = await fleet.join(gate, promise, mbps=20)
        plan = one.plan
        with fleet.deciding("adapt", never):
            assert "no plan was found in time" in str(await fleet.refused(gate, promise, mbps=20))
            assert one.state is SessionState.SERVED
            assert one.plan is plan
        assert (await fleet.join(gate, promise, mbps=20)).state is SessionState.SERVED
