"""Processes that plan take a part of memory that nobody needs, count while they are there, and end for who needs it."""

import asyncio

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.errors import NoRoomToRun, OutOfMemory
from appliance.runtime.memory.planner_processes import REST_NS, CountedPlanner, PlannerProcesses
from appliance.runtime.memory.room import Process
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

REST_MS = REST_NS / NS_PER_MS


def planner(bench: MemoryBench, name: str = "adaptation", count_bytes: int = 30) -> CountedPlanner:
    return PlannerProcesses(bench.clock, bench.memory).process(name, count_bytes)


async def begin(process: CountedPlanner) -> None:
    async with process.beginning():
        pass


async def assert_no_room(process: CountedPlanner) -> None:
    with pytest.raises(OSError, match="no room"):
        await begin(process)


@story
async def test_planner_begins_in_free_memory_once_departing_build_is_gone() -> None:
    """The process of 30 is counted until it ends."""
    bench = MemoryBench({"a": Cost(95, unload_ms=5), "b": Cost(95)}, 200)
    process = planner(bench)
    await bench.use("a")
    await bench.use("b")
    bench.memory.release("a")
    async with process.beginning():
        assert "a" not in bench.processor.memory
    assert (bench.resident(), bench.memory.free_bytes) == (["b"], 75)
    process.ended()
    process.ended()
    assert bench.memory.free_bytes == 105


@story
async def test_planners_are_counted_by_name() -> None:
    """A planner that begins anew counts once."""
    bench = MemoryBench({}, 200)
    processes = PlannerProcesses(bench.clock, bench.memory)
    adaptation, offload = processes.process("adaptation", 30), processes.process("offload", 20)
    for one in (adaptation, offload, offload):
        await begin(one)
    assert bench.memory.builds_bytes == 150
    assert bench.memory.overheads() == {"planner processes": 50}
    adaptation.ended()
    assert bench.memory.builds_bytes == 180


@story
async def test_planner_that_does_not_begin_takes_no_memory() -> None:
    """Nor does its room stay promised."""
    bench = MemoryBench({}, 200)
    process = planner(bench)
    with pytest.raises(OSError, match="no process is left"):
        async with process.beginning():
            raise OSError("no process is left")
    assert bench.memory.free_bytes == 200
    await begin(process)
    assert bench.memory.free_bytes == 170


@story
async def test_planner_finds_no_room_where_builds_are() -> None:
    """At once, and no build leaves, in use or not; the planner rests before it tries again."""
    bench = MemoryBench({"a": Cost(190)}, 200)
    process = planner(bench)
    build = await bench.pin("a")
    start_ns = bench.clock.now_ns()
    await assert_no_room(process)
    assert (bench.clock.now_ns(), bench.memory.free_bytes) == (start_ns, 10)
    bench.memory.unpin(build)
    await assert_no_room(process)
    await bench.pause(REST_MS + 1)
    await assert_no_room(process)
    bench.memory.release("a")
    await assert_no_room(process)
    await bench.pause(REST_MS + 1)
    await begin(process)
    assert bench.memory.overheads() == {"planner processes": 30}


@story
async def test_planners_take_a_quarter_of_the_budget_at_most() -> None:
    """Two of 30 have no place in 200, though all of it is free; nor while one of them begins."""
    bench = MemoryBench({}, 200)
    processes = PlannerProcesses(bench.clock, bench.memory)
    first, second = processes.process("adaptation", 30), processes.process("offload", 30)
    async with first.beginning():
        await assert_no_room(second)
    await assert_no_room(second)
    first.ended()
    await begin(second)
    assert bench.memory.free_bytes == 170


@story
async def test_planner_ends_for_a_load_that_finds_no_room_and_rests() -> None:
    """What it takes counts as room before, and it does not begin again at once; the idle planner ends before
    the other.
    """
    bench = MemoryBench({"a": Cost(100), "b": Cost(60)}, 200)
    processes = PlannerProcesses(bench.clock, bench.memory)
    idle, busy = processes.process("offload", 20), processes.process("adaptation", 30)
    ended: list[str] = []
    for one in (idle, busy):
        one.end_now = lambda one=one: ended.append(one.name)  # type: ignore[misc]
        await begin(one)
    busy.is_busy = lambda: True
    held = await bench.pin("a")
    assert (bench.memory.builds_bytes, bench.memory.room_for({"b"})) == (150, 200)
    await bench.use("b")
    assert (ended, bench.memory.builds_bytes) == (["offload"], 170)
    await assert_no_room(idle)
    await bench.pause(REST_MS)
    bench.memory.resize(160)
    assert (ended, bench.resident()) == (["offload", "adaptation"], ["a", "b"]), "no build leaves where that is enough"
    bench.memory.unpin(held)
    await settle()


@story
async def test_run_that_finds_no_room_ends_a_planner() -> None:
    """Before the run is refused; then the refusal names the processes that hold the rest."""
    bench = MemoryBench({}, 200)
    process = planner(bench)
    await begin(process)
    bench.memory.runs.check("b", "v", 190)
    assert bench.memory.overheads() == {}
    bench.memory.set_overhead(30)
    with pytest.raises(NoRoomToRun, match="guards 3e-05 MB"):
        bench.memory.runs.check("b", "v", 190)


@story
async def test_request_that_planner_memory_cannot_help_ends_no_planner() -> None:
    """A run of 81 or a guard of 90, beside a build in use of 120 and a planner of 30: it is refused, and the refusal
    names what holds the rest. For 80 the planner ends.
    """
    bench = MemoryBench({"a": Cost(120)}, 200)
    process = planner(bench)
    await begin(process)
    held = await bench.pin("a")
    with pytest.raises(NoRoomToRun, match="planner processes"):
        bench.memory.runs.check("b", "v", 81)
    with pytest.raises(OutOfMemory):
        async with bench.memory.room_to_begin(Process("guard", 90)):
            raise AssertionError("it has no room")
    assert bench.memory.overheads() == {"planner processes": 30}
    async with bench.memory.room_to_begin(Process("guard", 80)):
        assert bench.memory.overheads() == {}
    await bench.pause(REST_MS + 1)
    await begin(process)
    bench.memory.runs.check("b", "v", 80)
    assert bench.memory.overheads() == {}
    bench.memory.unpin(held)


@story
async def test_load_that_planner_memory_cannot_help_ends_no_planner() -> None:
    """Whether it waits for builds in use, or can never fit; it ends a planner as soon as that is enough."""
    bench = MemoryBench({"a": Cost(120), "b": Cost(100), "c": Cost(201), "d": Cost(180)}, 200)
    await begin(planner(bench))
    held = await bench.pin("a")
    for build_id in "bc":
        with pytest.raises(OutOfMemory):
            await bench.use(build_id)
    waiting = asyncio.create_task(bench.use("d"))
    await settle()
    assert bench.memory.overheads() == {"planner processes": 30}
    bench.memory.unpin(held)
    await waiting
    assert (bench.memory.overheads(), bench.resident()) == ({}, ["d"])
