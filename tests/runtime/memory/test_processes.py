"""Processes that builds need beside them have their room before they begin: others leave first, or it is refused."""

import asyncio
from collections.abc import Mapping

import pytest

from appliance.domain.errors import LoadFailed, OutOfMemory, ShuttingDown
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.room import Process
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

GUARD = Process("guard", 20)


class Guarded(MemoryBench):
    """Builds with a `g` in their names are loaded into a process, which begins with the first of them; it is watched
    with all that is in memory."""

    def __init__(self, costs: Mapping[str, Cost], budget: int) -> None:
        self.guard_bytes = 0
        super().__init__(
            costs, budget, process_of=lambda build: GUARD if "g" in build and not self.guard_bytes else None
        )
        load = self.processor.load

        async def load_guarded(form):  # type: ignore[no-untyped-def]
            if "g" in form.build_id:
                await self.begin()
            return await load(form)

        self.processor.load = load_guarded  # type: ignore[method-assign]

    async def begin(self) -> None:
        if self.guard_bytes:
            return
        async with self.memory.room_to_begin(GUARD):
            self.guard_bytes = GUARD.bytes
            self.watch()
            self.memory.set_overhead(GUARD.bytes, there={GUARD.name})

    def watch(self) -> None:
        assert self.memory.used_bytes <= self.budget, "the ledger is over the budget"
        assert sum(self.processor.memory.values()) + self.guard_bytes <= self.budget, "the machine is over the budget"

    def quiet_bytes(self) -> int:
        """What may still be promised beside what is there."""
        return self.budget - self.guard_bytes - sum(self.processor.memory.values())


@story
async def test_builds_leave_before_a_process_begins() -> None:
    """Two builds take 80 of 100: one of them goes for a build of 15 and its process of 20, though the build alone would
    have had room.
    """
    bench = Guarded({"a": Cost(40), "b": Cost(40), "g": Cost(15)}, 100)
    await bench.use("a")
    await bench.use("b")
    await bench.use("g")
    assert bench.resident() == ["b", "g"]
    assert bench.guard_bytes == 20
    assert bench.memory.free_bytes == bench.quiet_bytes() == 25


@story
async def test_build_that_does_not_fit_with_its_process_is_refused() -> None:
    """At once, and no build leaves for it."""
    bench = Guarded({"a": Cost(40), "g": Cost(85)}, 100)
    await bench.use("a")
    with pytest.raises(OutOfMemory):
        await bench.use("g")
    assert bench.resident() == ["a"]
    assert bench.guard_bytes == 0
    assert bench.memory.free_bytes == 60


@story
async def test_concurrent_loads_promise_their_process_once() -> None:
    """And it stays promised when the first of them comes to nothing."""
    bench = Guarded(
        {"g1": Cost(30, load_ms=10, failures=[LoadFailed(build_id="g1", reason="broken")]), "g2": Cost(30)}, 100
    )
    begin, bench.begin = bench.begin, settle  # type: ignore[method-assign]
    both = asyncio.gather(bench.use("g1"), bench.pin("g2"), return_exceptions=True)
    await settle()
    assert bench.memory.free_bytes == 100 - 30 - 30 - 20
    failed, held = await both
    assert isinstance(failed, LoadFailed)
    assert isinstance(held, LoadedBuild)
    bench.begin = begin  # type: ignore[method-assign]
    assert bench.memory.free_bytes == 70, "both are over, and it never began"
    bench.memory.unpin(held)


@story
async def test_process_without_a_build_has_room_made_for_it() -> None:
    """A process that reads texts: builds that are not in use leave for it; it waits for builds in use, and is refused
    after a while.
    """
    bench = Guarded({"a": Cost(90, unload_ms=5)}, 100)
    await bench.use("a")
    await bench.begin()
    assert bench.resident() == []
    assert bench.memory.free_bytes == 80
    bench = Guarded({"a": Cost(90)}, 100)
    held = await bench.pin("a")
    with pytest.raises(OutOfMemory):
        await bench.begin()
    assert bench.memory.free_bytes == 10, "nothing of it stays promised"
    waiting = asyncio.create_task(bench.begin())
    await settle()
    bench.memory.unpin(held)
    await waiting
    assert (bench.guard_bytes, bench.resident()) == (20, [])


@story
async def test_process_that_can_never_have_room_is_refused_at_once() -> None:
    bench = MemoryBench({}, 10)
    start_ns = bench.clock.now_ns()
    with pytest.raises(OutOfMemory) as refused:
        async with bench.memory.room_to_begin(GUARD):
            raise AssertionError("it has no room")
    assert not refused.value.can_fit
    assert bench.elapsed_ms(start_ns) == 0
    await bench.memory.close()
    with pytest.raises(ShuttingDown):
        async with bench.memory.room_to_begin(Process("small", 1)):
            raise AssertionError("nothing begins any more")
