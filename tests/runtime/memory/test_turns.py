"""Loads that nobody waits for take turns; one that a request waits for goes at once."""

import asyncio

from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.manager import MemoryManager
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench, without_applications
from tests.fakes.processor import Cost

LOAD_MS = 10.0


class _Box:
    """A memory with room for all, whose loads take as long as one another."""

    def __init__(self, names: str) -> None:
        self.bench = MemoryBench({name: Cost(10, load_ms=LOAD_MS) for name in names}, budget=1000)
        self.memory = MemoryManager(
            clock=self.bench.clock,
            loader=Loader(self.bench.source, self.bench.processor),
            arbiter=without_applications(1000, self.bench.decisions),
            budget_bytes=1000,
            wait_ms_max=1000,
            events=self.bench.events,
            ahead_max=1,
        )
        self.came: list[str] = []

    def load(self, name: str, *, is_urgent: bool) -> "asyncio.Task[None]":
        async def loaded() -> None:
            build: LoadedBuild = await self.memory.pin(name, 10, 10, None, is_urgent=is_urgent)
            self.came.append(name)
            self.memory.unpin(build)

        return asyncio.create_task(loaded())

    def elapsed_ms(self, start_ns: int) -> float:
        return self.bench.elapsed_ms(start_ns)


@story
async def test_loads_ahead_of_time_go_one_by_one() -> None:
    """In the order in which they came."""
    box = _Box("abc")
    start_ns = box.bench.clock.now_ns()
    await asyncio.gather(*(box.load(name, is_urgent=False) for name in "abc"))
    assert box.came == ["a", "b", "c"]
    assert box.elapsed_ms(start_ns) == 3 * LOAD_MS


@story
async def test_request_overtakes_loads_ahead_of_time() -> None:
    """Its load begins at once, beside the one that is under way."""
    box = _Box("abcx")
    start_ns = box.bench.clock.now_ns()
    ahead = [box.load(name, is_urgent=False) for name in "abc"]
    await box.load("x", is_urgent=True)
    assert box.elapsed_ms(start_ns) == LOAD_MS
    await asyncio.gather(*ahead)
    assert sorted(box.came[:2]) == ["a", "x"]


@story
async def test_request_takes_the_load_of_its_build_out_of_the_line() -> None:
    """The load that it joins goes at once, and the others keep their turns, none of them lost."""
    box = _Box("abcd")
    start_ns = box.bench.clock.now_ns()
    ahead = [box.load(name, is_urgent=False) for name in "abcd"]
    await box.bench.clock.sleep_until_ns(start_ns + 1)
    await box.load("d", is_urgent=True)
    assert box.elapsed_ms(start_ns) < 2 * LOAD_MS
    await asyncio.gather(*ahead)
    assert [name for name in box.came if name != "d"] == ["a", "b", "c"]
    assert box.elapsed_ms(start_ns) == 3 * LOAD_MS
