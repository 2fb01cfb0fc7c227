"""Loads that nobody waits for take turns; one that a request waits for goes at once."""

import asyncio

from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

LOAD_MS = 10.0


class Turns(MemoryBench):
    """A memory with room for all, whose loads take as long as one another."""

    def __init__(self, names: str) -> None:
        super().__init__({name: Cost(10, load_ms=LOAD_MS) for name in names}, 1000, ahead_max=1)
        self.came: list[str] = []

    def load(self, name: str, *, is_urgent: bool = False) -> "asyncio.Task[None]":
        async def loaded() -> None:
            build = await self.memory.pin(name, 10, 10, None, is_urgent=is_urgent)
            self.came.append(name)
            self.memory.unpin(build)

        return asyncio.create_task(loaded())


@story
async def test_loads_ahead_of_time_go_one_by_one() -> None:
    """In the order in which they came."""
    bench = Turns("abc")
    assert await bench.took_ms(asyncio.gather(*(bench.load(name) for name in "abc"))) == 3 * LOAD_MS
    assert bench.came == ["a", "b", "c"]


@story
async def test_request_overtakes_loads_ahead_of_time() -> None:
    """Its load begins at once, beside the one that is under way."""
    bench = Turns("abcx")
    ahead = [bench.load(name) for name in "abc"]
    assert await bench.took_ms(bench.load("x", is_urgent=True)) == LOAD_MS
    await asyncio.gather(*ahead)
    assert sorted(bench.came[:2]) == ["a", "x"]


@story
async def test_request_takes_the_load_of_its_build_out_of_the_line() -> None:
    """The load that it joins goes at once, and the others keep their turns, none of them lost."""
    bench = Turns("abcd")
    start_ns = bench.clock.now_ns()
    ahead = [bench.load(name) for name in "abcd"]
    await bench.clock.sleep_until_ns(start_ns + 1)
    assert await bench.took_ms(bench.load("d", is_urgent=True)) < 2 * LOAD_MS
    await asyncio.gather(*ahead)
    assert [name for name in bench.came if name != "d"] == ["a", "b", "c"]
    assert bench.elapsed_ms(start_ns) == 3 * LOAD_MS
