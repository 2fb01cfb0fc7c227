"""What happens to plans and promises while a planner decides: sessions change and go, models change."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.errors import PromiseNotPossible
from appliance.domain.session import AccuracyPromise, FrameHead, LatencyPromise
from appliance.domain.states import SessionState
from appliance.runtime.sessions.adapting import FrameOverhead, client_of, rate_of
from appliance.runtime.sessions.deciding import DecisionSlow
from appliance.runtime.sessions.pools import key_of
from appliance.runtime.sessions.zoo import Zoo
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.harness.reach import alive
from tests.runtime.sessions.fleet import Fleet

ZOO = {320: Cost(run_ms=13), 160: Cost(run_ms=6)}
DECIDES_MS = 20.0


def deciding(fleet: Fleet, name: str, meanwhile: Callable[[], Awaitable[object]]) -> Any:
    """A planner of the fleet that takes its time."""
    decide = getattr(fleet.sessions.planning.deciding, name)

    async def slowly(problem: Any) -> Any:
        plan = await decide(problem)
        await meanwhile()
        return plan

    return slowly


@story
async def test_promise_changes_kind_between_two_plans_only() -> None:
    """Not in the middle of a plan that counts with it: a session that joins just then is served, and so is the one that
    changes.
    """
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    planners = fleet.sessions.planning.deciding
    async with fleet.working():
        one = await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planners, "adapt", deciding(fleet, "adapt", lambda: fleet.bench.pause(DECIDES_MS)))
            joining = asyncio.create_task(fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20))
            await fleet.bench.pause(1.5 * DECIDES_MS)  # its first plan is made
            changing = asyncio.create_task(fleet.sessions.change(one, promise=AccuracyPromise(0.3)))
            other = await joining
            assert await changing is one
        assert [live.state for live in (one, other)] == [SessionState.SERVED] * 2
        assert isinstance(one.promise, AccuracyPromise)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planners, "offloads", deciding(fleet, "offloads", lambda: fleet.bench.pause(DECIDES_MS)))
            joining = asyncio.create_task(fleet.join(gate, AccuracyPromise(0.3), mbps=20))
            await fleet.bench.pause(0.5 * DECIDES_MS)
            await fleet.sessions.change(one, promise=LatencyPromise(150.0, 5.0))
            await joining
        assert one.state is SessionState.SERVED


@pytest.mark.parametrize("sizes", [(320,), (320, 160)], ids=["nothing is left", "another one is left"])
def test_promise_is_judged_anew_when_variant_goes_during_decision(sizes: tuple[int, ...]) -> None:
    """What was decided with the variant holds no more: the promise is judged by the variants that are left."""

    @story
    async def told() -> None:
        fleet = Fleet(workers=1)
        gate = fleet.add({size: ZOO[size] for size in sizes})
        planning = fleet.sessions.planning
        asked = 0

        async def refusing() -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                planning.refused(gate.id, "v320")

        async with fleet.working():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(planning.deciding, "offloads", deciding(fleet, "offloads", refusing))
                if len(sizes) == 1:
                    with pytest.raises(PromiseNotPossible):
                        await fleet.join(gate, AccuracyPromise(0.3), mbps=20)
                else:
                    live = await fleet.join(gate, AccuracyPromise(0.3), mbps=20)
                    assert live.variant == "v160"
            assert asked

    told()


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
    fleet = Fleet(workers=1)
    gate = fleet.add({320: Cost(run_ms=13)})
    async with fleet.working():
        lives = []
        for rate in (15.0, 5.0, 1.0):
            with suppress(PromiseNotPossible):
                while True:
                    lives.append(await fleet.join(gate, LatencyPromise(150.0, rate, 50.0), mbps=50))
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
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    async with fleet.working():
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
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    planning = fleet.sessions.planning
    async with fleet.working():
        one, other = [await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20) for _ in range(2)]
        await fleet.pass_s(1)

        async def removing() -> None:
            if one.state is SessionState.SERVED:
                one.become(SessionState.WAITING, "share: another tenant wants its own")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planning.deciding, "adapt", deciding(fleet, "adapt", removing))
            pool = planning.pools.pool(key_of(other))
            await planning.latency.plan(pool)
        assert one.state is SessionState.WAITING
        assert one.plan is None
        assert (one.load, one.least_load) == (0.0, None)
        assert planning.ledger.planned == pytest.approx(other.load)


@story
async def test_zoos_of_past_promises_are_not_kept() -> None:
    """However many accuracy floors are asked for."""
    fleet = Fleet(workers=1)
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
    fleet = Fleet(workers=1)
    gate = fleet.add(ZOO)
    planners = fleet.sessions.planning.deciding

    async def never(problem: Any) -> Any:
        await fleet.bench.pause(DECIDES_MS)
        raise DecisionSlow

    async with fleet.working():
        one = await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20)
        plan = one.plan
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planners, "adapt", never)
            with pytest.raises(PromiseNotPossible) as caught:
                await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20)
            assert "no plan was found in time" in str(caught.value)
            assert one.state is SessionState.SERVED
            assert one.plan is plan
        other = await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20)
        assert other.state is SessionState.SERVED
