"""Memory takes a variant away that sessions use: for requests of others where a smaller one keeps the promise, and for
what is guaranteed to another tenant meanwhile (X-05)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import PromiseNotPossible
from appliance.domain.session import AccuracyPromise, Cause, LatencyPromise, Notice, NoticeKind, Promise, Reference
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet, steady

BUDGET = 400
LARGE = Cost(run_ms=10, resident_bytes=200, load_ms=900)
SMALL = Cost(run_ms=40, resident_bytes=40, load_ms=900)
FOREIGN = Cost(run_ms=5, resident_bytes=250, load_ms=900)
GUARANTEE = 250


@asynccontextmanager
async def asking(fleet: Fleet, guarantee: int = 0) -> AsyncIterator[None]:
    """A caller without a session asks another application, one request after the other; there is room for that beside
    the smaller variant only. `guarantee`: bytes of memory that its tenant is guaranteed meanwhile."""
    other = fleet.bench.add({"big": FOREIGN}, name="other", tenant="u", quota=Quota(memory_guarantee_bytes=guarantee))

    async def ask() -> None:
        while True:
            await fleet.bench.infer(application=other.id, tenant="u")
            await fleet.bench.pause(50)

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        task.cancel()
        fleet.bench.catalogue.put_tenant(Tenant("u"))


@asynccontextmanager
async def heard(fleet: Fleet, live: LiveSession) -> AsyncIterator[list[Notice]]:
    """What a device is told but for plans of the same variant."""
    told: list[Notice] = []

    async def hear() -> None:
        with fleet.sessions.subscribe(live) as notices:
            async for notice in notices:
                if notice.kind is not NoticeKind.PLAN:
                    told.append(notice)

    task = asyncio.create_task(hear())
    try:
        yield told
    finally:
        task.cancel()


@pytest.mark.parametrize("promise", [AccuracyPromise(0.15), AccuracyPromise(0.15, Reference.DEDICATED)], ids=str)
def test_session_without_memory_moves_to_resident_variant_within_promise(promise: Promise) -> None:
    """The device is told at once, before a frame has waited in vain."""

    @story
    async def told() -> None:
        fleet = Fleet(workers=2, budget=BUDGET)
        gate = fleet.add({128: LARGE, 64: SMALL}, accuracies=(50.0, 45.0))
        async with fleet.working():
            await fleet.bench.availability.load(gate, "v64")
            live = await fleet.join(gate, promise, fps=15, mbps=100)
            async with heard(fleet, live) as notices:
                fleet.stream(live, steady(100), drop_rate=0.004)
                await fleet.pass_s(5)
                assert (live.variant, notices) == ("v128", [])
                async with asking(fleet):
                    await fleet.pass_s(20)
            assert (live.state, live.variant) == (SessionState.SERVED, "v64")
            assert [(notice.kind, notice.plan and notice.plan.variant) for notice in notices] == [
                (NoticeKind.VARIANT, "v64")
            ]
            assert notices[0].reason == "memory has no room for v128"
            assert live.counts.answered >= live.counts.sent - 2

    told()


@pytest.mark.parametrize("eviction", ["expected-utility", "iws-bfe"])
@pytest.mark.parametrize("can_sleep", [False, True])
@pytest.mark.parametrize(
    "promise",
    [LatencyPromise(800.0, 5.0, 45.0), AccuracyPromise(0.15), AccuracyPromise(0.15, Reference.DEDICATED)],
    ids=str,
)
def test_session_gets_smaller_variant_where_memory_is_short_and_nobody_takes_turns(
    promise: Promise, can_sleep: bool, eviction: str
) -> None:
    """Another application, asked four times a second, has no room beside the larger variant, and has beside the
    smaller one. All loads are quick: each frame could have the larger one back in time. The device is told at once, no
    frame is lost, and only the first request of the others is cold.
    """

    @story
    async def told() -> None:
        sleeps = {"asleep_bytes": 1, "wake_ms": 5.0} if can_sleep else {}
        costs = {
            name: Cost(run_ms=10, resident_bytes=size, load_ms=20, **sleeps)  # type: ignore[arg-type]
            for name, size in (("large", 200), ("small", 40), ("foreign", 250))
        }
        fleet = Fleet(bench=EngineBench(BUDGET, workers=2, eviction=eviction))
        gate = fleet.add({128: costs["large"], 64: costs["small"]}, accuracies=(50.0, 45.0))
        other = fleet.bench.add({"big": costs["foreign"]}, name="other")
        async with fleet.working():
            live = await fleet.join(gate, promise, fps=5, mbps=100)
            async with heard(fleet, live) as notices:
                fleet.stream(live, steady(100), drop_rate=0.004)
                await fleet.pass_s(5)
                assert (live.variant, notices) == ("v128", [])
                answers = []
                for _ in range(30):
                    answers.append(await fleet.bench.infer(application=other.id))
                    await fleet.bench.pause(250)
            assert [answer.warm for answer in answers] == [False] + 29 * [True]
            assert (live.state, live.variant) == (SessionState.SERVED, "v64")
            assert [(notice.kind, notice.plan and notice.plan.variant) for notice in notices] == [
                (NoticeKind.VARIANT, "v64")
            ]
            assert notices[0].reason == "memory has no room for v128"
        assert live.counts.answered == live.counts.sent

    told()


@pytest.mark.parametrize(
    "promise",
    [AccuracyPromise(0.15), AccuracyPromise(0.15, Reference.DEDICATED), LatencyPromise(300.0, 5.0, 45.0)],
    ids=str,
)
def test_session_without_memory_or_other_variant_waits(promise: Promise) -> None:
    """The session waits for memory that another tenant is guaranteed now, and is served when there is some again."""

    @story
    async def told() -> None:
        fleet = Fleet(workers=2, budget=BUDGET)
        gate = fleet.add({128: LARGE, 64: SMALL}, accuracies=(50.0, 30.0))
        async with fleet.working():
            live = await fleet.join(gate, promise, fps=15, mbps=100)
            async with heard(fleet, live) as notices:
                fleet.stream(live, steady(100), drop_rate=0.004)
                await fleet.pass_s(5)
                assert (live.variant, live.counts.answered, notices) == ("v128", live.counts.sent, [])
                async with asking(fleet, GUARANTEE):
                    await fleet.pass_s(3)
                    assert live.state is SessionState.WAITING
                    kept = live.kept
                    await fleet.pass_s(11)
                    assert (live.kept, live.windows > kept) == (kept, True)
                lost = live.counts.dropped + live.counts.late
                await fleet.pass_s(20)
            assert (live.state, live.variant) == (SessionState.SERVED, "v128")
            removed, served = notices
            assert (removed.kind, served.kind) == (NoticeKind.REMOVED, NoticeKind.SERVED)
            assert removed.reason.startswith("memory: ")
            assert lost <= 3

    told()


@pytest.mark.gate("a whole engine for minutes of virtual time")
@pytest.mark.parametrize("promise", [AccuracyPromise(0.15), LatencyPromise(300.0, 5.0, 45.0)], ids=str)
def test_session_without_memory_is_not_let_in_and_removed_by_turns(promise: Promise) -> None:
    """Others hold the memory for two minutes: the device is told once that it waits, and once that
    it is served again.
    """

    @story
    async def told() -> None:
        fleet = Fleet(workers=2, budget=BUDGET)
        gate = fleet.add({128: LARGE, 64: SMALL}, accuracies=(50.0, 30.0))
        async with fleet.working():
            live = await fleet.join(gate, promise, fps=15, mbps=100)
            async with heard(fleet, live) as notices:
                fleet.stream(live, steady(100), drop_rate=0.004)
                await fleet.pass_s(5)
                async with asking(fleet, GUARANTEE):
                    await fleet.pass_s(120)
                    assert [notice.kind for notice in notices] == [NoticeKind.REMOVED]
                    assert live.reason.startswith("memory: ")
                await fleet.pass_s(120)
            assert (live.state, live.variant) == (SessionState.SERVED, "v128")
            assert [notice.kind for notice in notices] == [NoticeKind.REMOVED, NoticeKind.SERVED]

    told()


@story
async def test_session_that_fits_only_without_guards_is_refused() -> None:
    """The variant takes 200 of 400, and guards take 250: the refusal says that memory has no room. Beside a planner,
    which ends for the session, it is served.
    """
    fleet = Fleet(budget=BUDGET)
    gate = fleet.add({128: LARGE})
    fleet.bench.memory.set_overhead(250)
    async with fleet.working():
        with pytest.raises(PromiseNotPossible) as refused:
            await fleet.join(gate, LatencyPromise(300.0, 5.0), fps=15, mbps=100)
        assert refused.value.cause == Cause.MEMORY.value
        assert refused.value.reason.endswith("fits into memory, of 0.0004 MB beside guards 0.00025 MB")
        fleet.bench.memory.set_overhead(150)
        async with fleet.bench.core.planner_processes.process("adaptation", 90).beginning():
            pass
        await fleet.pass_s(1)
        live = await fleet.join(gate, LatencyPromise(300.0, 5.0), fps=15, mbps=100)
        assert (live.state, live.variant) == (SessionState.SERVED, "v128")
        assert fleet.bench.memory.resident_set() == [fleet.bench.build("v128", gate.id)]
        assert fleet.bench.memory.overheads() == {"guards": 150}
