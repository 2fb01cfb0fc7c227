"""What the kernel of this machine says, read in another way."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from appliance.resources.cgroups import own_cgroups
from appliance.resources.cores import usable_cores
from appliance.resources.memory import MemoryLimits
from tests.harness.lacking import lacks_cgroups, skip_if


def test_nearest_cgroup_lists_this_process() -> None:
    skip_if(lacks_cgroups())
    found = {controller: own_cgroups(controller) for controller in ("memory", "cpu", "cpuset", "")}
    assert any(found.values())
    own = {controller: groups[0].text("cgroup.procs").split() for controller, groups in found.items() if groups}
    assert all(str(os.getpid()) in members for members in own.values())


def test_memory_and_cores_of_the_box_are_within_those_of_the_machine() -> None:
    """And where cgroups have no limit, they are the machine's own."""
    limits, machine = MemoryLimits(), psutil.virtual_memory()
    memory, cores = limits.now(), usable_cores()
    assert 0 <= memory.free_bytes <= memory.total_bytes <= machine.total
    assert 0 <= memory.available_bytes <= memory.total_bytes
    assert bool(memory.bound) is (memory.total_bytes < machine.total)
    assert cores.numbers <= os.sched_getaffinity(os.getpid())
    assert 1 <= cores.count <= len(cores.numbers)
    limited = [Path(name) for name in limits.files if re.search(r"memory\.(max|high|limit_in_bytes)$", name)]
    stated = [text for file in limited if file.exists() and (text := file.read_text().strip()).isdigit()]
    assert memory.total_bytes <= min([machine.total, *map(int, stated)])


def test_cores_of_process_stay_when_a_thread_is_pinned() -> None:
    """Threads that run networks are pinned by the box itself; that is no limit."""
    before = usable_cores()

    def pinned() -> object:
        os.sched_setaffinity(0, {max(before.numbers)})
        return usable_cores()

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(pinned).result() == before
