"""Processes of the box's own have room before they begin, as far as there is some, and count while they are there."""

import pytest

from appliance.runtime.memory.own_processes import OwnProcesses
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost


@story
async def test_others_leave_before_it_begins() -> None:
    """Two builds take 80 of 100: one goes for a process of 30, which is counted until it ends."""
    bench = MemoryBench({"a": Cost(40), "b": Cost(40)}, 100)
    process = OwnProcesses(bench.memory).process("adaptation", 30)
    await bench.use("a")
    await bench.use("b")
    async with process.beginning():
        assert bench.resident() == ["b"]
    assert bench.memory.free_bytes == 30
    process.ended()
    process.ended()
    assert bench.memory.free_bytes == 60


@story
async def test_each_counts() -> None:
    """By its name; the same one that begins anew counts once."""
    bench = MemoryBench({}, 100)
    processes = OwnProcesses(bench.memory)
    adaptation, offload = processes.process("adaptation", 30), processes.process("offload", 20)
    for one in (adaptation, offload, offload):
        async with one.beginning():
            pass
    assert bench.memory.free_bytes == 50
    adaptation.ended()
    assert bench.memory.free_bytes == 80


@story
async def test_one_that_does_not_begin_counts_nothing() -> None:
    """Nor does its room stay promised."""
    bench = MemoryBench({}, 100)
    process = OwnProcesses(bench.memory).process("adaptation", 30)
    with pytest.raises(OSError, match="no process is left"):
        async with process.beginning():
            raise OSError("no process is left")
    assert bench.memory.free_bytes == 100


@story
async def test_where_there_is_no_room_it_begins_all_the_same() -> None:
    """When a load would be refused; what it takes counts, and those that are in use leave when they are done."""
    bench = MemoryBench({"a": Cost(90)}, 100, watched=False)
    process = OwnProcesses(bench.memory).process("adaptation", 30)
    build = await bench.pin("a")
    start_ns = bench.clock.now_ns()
    async with process.beginning():
        assert bench.elapsed_ms(start_ns) == pytest.approx(1000, abs=1)
    assert bench.memory.free_bytes == -20
    bench.memory.unpin(build)
    await settle()
    assert bench.resident() == []
    assert bench.memory.free_bytes == 70
    await bench.unloaded("a")
