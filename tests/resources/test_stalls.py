"""Word of processes that stand for want of memory."""

import asyncio
import hashlib
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from appliance.clock import LoopClock, SystemClock
from appliance.resources.stalls import MemoryStalls, StallTrigger
from tests.fakes.clock import story
from tests.fakes.waiting import until
from tests.harness.lacking import lacks_stalls, skip_if
from tests.resources.kernel_files import stalled, tree, version_1, version_2


def test_memory_stalls_are_those_of_the_own_cgroup_or_the_machine(tmp_path: Path) -> None:
    """On a hybrid machine they are told in the hierarchy of version 2."""
    of_machine = {"proc/pressure/memory": stalled(0)}
    clock = SystemClock()
    assert MemoryStalls(clock, tree(tmp_path / "none", {})).file is None
    assert MemoryStalls(clock, tree(tmp_path / "v0", of_machine)).file == tmp_path / "v0/proc/pressure/memory"
    root = tree(version_2(tmp_path / "v2", "/a", {"a": {"memory.pressure": stalled(0)}}), of_machine)
    assert MemoryStalls(clock, root).file == root / "sys/fs/cgroup/a/memory.pressure"
    own = "unified/system.slice/box.service"
    root = tree(version_1(tmp_path / "v1", {"memory": "/a"}, {own: {"memory.pressure": stalled(0)}}), of_machine)
    assert MemoryStalls(clock, root).file == root / f"sys/fs/cgroup/{own}/memory.pressure"


@story
async def test_memory_stalls_are_reported_without_a_kernel_trigger(tmp_path: Path) -> None:
    """A tenth of the time is enough; stalls before the box began, and those that are over, are not reported."""
    clock, file = LoopClock(), tmp_path / "proc/pressure/memory"
    tree(tmp_path, {"proc/pressure/memory": stalled(70_000, avg10=40.0)})
    heard: list[int] = []
    task = asyncio.create_task(MemoryStalls(clock, tmp_path).run(lambda: heard.append(clock.now_ns() // 10**9)))
    began_s = clock.now_ns() // 10**9
    await clock.sleep_until_ns(clock.now_ns() + 10**9)
    for milliseconds in (70_150, 70_400, 72_000, 72_000):
        file.write_text(stalled(milliseconds))
        await clock.sleep_until_ns(clock.now_ns() + 2 * 10**9)
    assert [second - began_s for second in heard] == [4, 6]
    assert file.read_text() == stalled(72_000), "no trigger was written to a file that is not the kernel's"
    file.unlink()
    await task


@pytest.mark.anyio
async def test_stall_is_reported_by_the_trigger_of_the_kernel() -> None:
    """Of processors: two threads on one core wait for one another, as processes without memory would."""
    skip_if(lacks_stalls())
    heard: list[None] = []
    is_over = threading.Event()
    core = min(os.sched_getaffinity(0))

    def compete() -> None:
        os.sched_setaffinity(0, {core})
        while not is_over.is_set():
            hashlib.sha256(bytes(1_000_000)).digest()

    threads = [threading.Thread(target=compete) for _ in range(2)]
    with closing(StallTrigger(Path("/proc/pressure/cpu"))) as trigger:
        task = asyncio.create_task(trigger.listen(lambda: heard.append(None)))
        for one in threads:
            one.start()
        try:
            await until(lambda: heard)
        finally:
            is_over.set()
            for one in threads:
                one.join()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
