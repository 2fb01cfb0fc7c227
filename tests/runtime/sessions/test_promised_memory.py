"""The promises of several applications need memory together; what they need stays for them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from appliance.domain.catalogue import Application
from appliance.domain.errors import OutOfMemory
from appliance.domain.session import AccuracyPromise, Cause, DropCause, LatencyPromise, Promise
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet

BUDGET = 70_000_000
SIZES = {"a1": 21, "a2": 21, "b1": 21, "b2": 42}
"""Application → megabytes of its accurate variant; the other one takes an eighth of that."""
PROMISES: list[Promise] = [LatencyPromise(400.0, 5.0, 99.5), AccuracyPromise(0.05)]


def cost(resident_bytes: int) -> Cost:
    """A variant that takes longer to load than a frame may."""
    return Cost(run_ms=5, resident_bytes=resident_bytes, load_ms=900)


@asynccontextmanager
async def box_with_applications(**more: Any) -> AsyncIterator[tuple[Fleet, list[Application]]]:
    """A box of 70 MB at work with four applications of two tenants, each with one variant that is accurate enough for
    a promise.
    """
    fleet = Fleet(budget=BUDGET, **more)
    applications = [
        fleet.add(
            {128: cost(size * 10**6), 64: cost(size * 125_000)}, name=name, tenant=name[0], accuracies=(100.0, 80.0)
        )
        for name, size in SIZES.items()
    ]
    async with fleet.working():
        yield fleet, applications


@asynccontextmanager
async def asked(fleet: Fleet, *targets: Application, variant: str | None = None) -> AsyncIterator[Counter[str]]:
    """Callers without a session ask each application twice a second; yields how the requests ended."""
    ends: Counter[str] = Counter()

    async def ask(application: Application) -> None:
        while True:
            try:
                await fleet.bench.infer(application=application.id, tenant=application.tenant, variant=variant)
                ends["answered"] += 1
            except OutOfMemory as error:
                ends.update(str(one["why"]) for one in error.blockers)
            await fleet.bench.pause(500)

    tasks = [asyncio.create_task(ask(one)) for one in targets]
    try:
        yield ends
    finally:
        for task in tasks:
            task.cancel()


def dropped(live: LiveSession) -> dict[DropCause, int]:
    """Frames of a session that were not answered, by cause."""
    return {cause: count for cause, count in live.counts.drops.items() if count}


@pytest.mark.parametrize("promise", PROMISES, ids=str)
@story
async def test_session_whose_variant_does_not_fit_beside_those_of_others_is_refused(promise: Promise) -> None:
    """Three promises need 63 MB of 70, and the fourth would need 42."""
    async with box_with_applications(workers=2) as (fleet, (*first, last)):
        lives = [await fleet.join(one, promise, fps=15, mbps=100) for one in first]
        refused = await fleet.refused(last, promise, fps=15, mbps=100)
        assert refused.cause == Cause.MEMORY.value
        assert "v128 needs 42 MB of 70 MB for models, and 63 MB are promised to others" in refused.reason
        assert [live.state for live in lives] == [SessionState.SERVED] * 3
        waiting = await fleet.camera(last, promise, fps=15, mbps=100, wait=True)
        assert (waiting.state, waiting.reason.split(":")[0]) == (SessionState.WAITING, "memory")
        for live in lives[:2]:
            await fleet.sessions.end(live)
        await fleet.pass_s(2)
        assert fleet.states == [SessionState.SERVED]


@pytest.mark.parametrize("promise", PROMISES, ids=str)
@story
async def test_session_keeps_its_variant_while_others_ask_without_sessions(promise: Promise) -> None:
    async with box_with_applications(workers=2) as (fleet, (*first, last)):
        lives = [await fleet.camera(one, promise, fps=15, mbps=100, drop_rate=0.001) for one in first]
        async with asked(fleet, *first, last) as ends, asked(fleet, last, variant="v128"):
            await fleet.pass_s(30)
        assert [(live.state, dropped(live), live.counts.late) for live in lives] == [(SessionState.SERVED, {}, 0)] * 3
        assert all(live.counts.answered >= live.counts.sent - 1 > 20 for live in lives)
        assert ends["answered"] >= 150


@story
async def test_request_is_told_that_memory_is_promised_to_sessions() -> None:
    """Nothing that would answer fits beside what sessions need."""
    async with box_with_applications() as (fleet, (*first, last)):
        for one in first:
            await fleet.camera(one, PROMISES[0], fps=15, mbps=100)
        async with asked(fleet, last, variant="v128") as ends:
            await fleet.pass_s(30)
        assert (ends["answered"], ends["promised to sessions"] > 0) == (0, True)
        assert fleet.states == [SessionState.SERVED] * 3


@story
async def test_session_moves_to_smaller_variant_that_keeps_its_promise_for_another_session() -> None:
    """Either variant keeps the promise of the first one; the other sessions need what the larger one would take."""
    async with box_with_applications(workers=2) as (fleet, (small, _, _, large)):
        first = await fleet.camera(large, LatencyPromise(400.0, 5.0), fps=15, mbps=100)
        await fleet.pass_s(5)
        assert first.variant == "v128"
        third = fleet.add({128: cost(30 * 10**6)}, name="c", tenant="c", accuracies=(100.0,))
        for one in (small, third):
            await fleet.camera(one, PROMISES[0], fps=15, mbps=100)
        await fleet.pass_s(10)
        assert fleet.states == [SessionState.SERVED] * 3
        assert [device.live.variant for device in fleet.devices] == ["v64", "v128", "v128"]
