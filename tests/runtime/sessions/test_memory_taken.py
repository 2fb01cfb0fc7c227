"""Memory takes a variant away that sessions use: for requests of others where a smaller one keeps the promise, and for
what is guaranteed to another tenant meanwhile (X-05)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Application, Quota, Tenant
from appliance.domain.session import AccuracyPromise, Cause, LatencyPromise, NoticeKind, Promise, Reference
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Device, Fleet, box_with

BUDGET = 400
LARGE = Cost(run_ms=10, resident_bytes=200, load_ms=900)
SMALL = Cost(run_ms=40, resident_bytes=40, load_ms=900)
FOREIGN = Cost(run_ms=5, resident_bytes=250, load_ms=900)
ACCURACY = [AccuracyPromise(0.15), AccuracyPromise(0.15, Reference.DEDICATED)]


@asynccontextmanager
async def box_with_two_sizes(
    promise: Promise, smaller_points: float
) -> AsyncIterator[tuple[Fleet, Application, LiveSession]]:
    """A session that is served by the larger of two variants, whose device has sent for five seconds; and another
    tenant's application, which has room beside the smaller variant only.
    """
    sizes = {128: LARGE, 64: SMALL}
    async with box_with(sizes, accuracies=(50.0, smaller_points), workers=2, budget=BUDGET) as (fleet, gate):
        other = fleet.bench.add({"big": FOREIGN}, name="other", tenant="u")
        await fleet.bench.availability.load(gate, "v64")
        live = await fleet.camera(gate, promise, fps=15, mbps=100, drop_rate=0.004)
        await fleet.pass_s(5)
        assert (live.variant, fleet.devices[0].news) == ("v128", [])
        yield fleet, other, live


@asynccontextmanager
async def guaranteed(fleet: Fleet, other: Application) -> AsyncIterator[None]:
    """The other tenant asks its application, one request after the other, and is guaranteed the memory for it."""
    catalogue = fleet.bench.catalogue
    catalogue.put_tenant(Tenant("u", Quota(memory_guarantee_bytes=FOREIGN.resident_bytes)))
    async with fleet.asked(other, every_ms=50):
        yield
    catalogue.put_tenant(Tenant("u"))


def assert_moved(device: Device) -> None:
    """The device was told once, of the smaller variant."""
    assert (device.live.state, device.live.variant) == (SessionState.SERVED, "v64")
    (notice,) = device.news
    assert (notice.kind, notice.plan and notice.plan.variant) == (NoticeKind.VARIANT, "v64")
    assert notice.reason == "memory has no room for v128"


@pytest.mark.parametrize("promise", ACCURACY, ids=str)
@story
async def test_session_without_memory_moves_to_resident_variant_within_promise(promise: Promise) -> None:
    """The device is told at once, before a frame has waited in vain."""
    async with box_with_two_sizes(promise, 45.0) as (fleet, other, live):
        async with fleet.asked(other, every_ms=50):
            await fleet.pass_s(20)
        assert_moved(fleet.devices[0])
        assert live.counts.answered >= live.counts.sent - 2


@pytest.mark.parametrize("eviction", ["expected-utility", "iws-bfe"])
@pytest.mark.parametrize("can_sleep", [False, True])
@pytest.mark.parametrize("promise", [LatencyPromise(800.0, 5.0, 45.0), *ACCURACY], ids=str)
@story
async def test_session_gets_smaller_variant_where_memory_is_short_and_nobody_takes_turns(
    promise: Promise, can_sleep: bool, eviction: str
) -> None:
    """Another application, asked four times a second, has no room beside the larger variant, and has beside the
    smaller one. All loads are quick: each frame could have the larger one back in time. The device is told at once, no
    frame is lost, and only the first request of the others is cold.
    """
    usual = Cost(run_ms=10, load_ms=20, **({"asleep_bytes": 1, "wake_ms": 5.0} if can_sleep else {}))  # type: ignore[arg-type]
    large, small, foreign = (replace(usual, resident_bytes=size) for size in (200, 40, 250))
    bench = EngineBench(BUDGET, workers=2, eviction=eviction)
    async with box_with({128: large, 64: small}, accuracies=(50.0, 45.0), bench=bench) as (fleet, gate):
        other = bench.add({"big": foreign}, name="other")
        live = await fleet.camera(gate, promise, fps=5, mbps=100, drop_rate=0.004)
        await fleet.pass_s(5)
        assert (live.variant, fleet.devices[0].news) == ("v128", [])
        answers = []
        for _ in range(30):
            answers.append(await bench.infer(application=other.id))
            await bench.pause(250)
        assert [answer.warm for answer in answers] == [False] + 29 * [True]
        assert_moved(fleet.devices[0])
    assert live.counts.answered == live.counts.sent


@pytest.mark.parametrize("promise", [*ACCURACY, LatencyPromise(300.0, 5.0, 45.0)], ids=str)
@story
async def test_session_without_memory_or_other_variant_waits(promise: Promise) -> None:
    """The session waits for memory that another tenant is guaranteed now, and is served when there is some again."""
    async with box_with_two_sizes(promise, 30.0) as (fleet, other, live):
        assert live.counts.answered == live.counts.sent
        async with guaranteed(fleet, other):
            await fleet.pass_s(3)
            assert fleet.states == [SessionState.WAITING]
            kept = live.kept
            await fleet.pass_s(11)
            assert (live.kept, live.windows > kept) == (kept, True)
        lost = live.counts.dropped + live.counts.late
        await fleet.pass_s(20)
        assert (live.state, live.variant) == (SessionState.SERVED, "v128")
        removed, served = fleet.devices[0].news
        assert (removed.kind, served.kind) == (NoticeKind.REMOVED, NoticeKind.SERVED)
        assert removed.reason.startswith("memory: ")
        assert lost <= 3


@pytest.mark.gate("a whole engine for minutes of virtual time")
@pytest.mark.parametrize("promise", [ACCURACY[0], LatencyPromise(300.0, 5.0, 45.0)], ids=str)
@story
async def test_session_without_memory_is_not_let_in_and_removed_by_turns(promise: Promise) -> None:
    """Others hold the memory for two minutes: the device is told once that it waits, and once that
    it is served again.
    """
    async with box_with_two_sizes(promise, 30.0) as (fleet, other, live):
        (device,) = fleet.devices
        async with guaranteed(fleet, other):
            await fleet.pass_s(120)
            assert [notice.kind for notice in device.news] == [NoticeKind.REMOVED]
            assert live.reason.startswith("memory: ")
        await fleet.pass_s(120)
        assert (live.state, live.variant) == (SessionState.SERVED, "v128")
        assert [notice.kind for notice in device.news] == [NoticeKind.REMOVED, NoticeKind.SERVED]


@story
async def test_session_that_fits_only_without_guards_is_refused() -> None:
    """The variant takes 200 of 400, and guards take 250: the refusal says that memory has no room. Beside a planner,
    which ends for the session, it is served.
    """
    promise = LatencyPromise(300.0, 5.0)
    async with box_with({128: LARGE}, budget=BUDGET) as (fleet, gate):
        memory = fleet.bench.memory
        memory.set_overhead(250)
        refused = await fleet.refused(gate, promise, fps=15, mbps=100)
        assert refused.cause == Cause.MEMORY.value
        assert refused.reason.endswith("fits into memory, of 0.0004 MB beside guards 0.00025 MB")
        memory.set_overhead(150)
        async with fleet.bench.core.planner_processes.process("adaptation", 90).beginning():
            pass
        await fleet.pass_s(1)
        live = await fleet.join(gate, promise, fps=15, mbps=100)
        assert (live.state, live.variant) == (SessionState.SERVED, "v128")
        assert memory.resident_set() == [fleet.bench.build("v128", gate.id)]
        assert memory.overheads() == {"guards": 150}
