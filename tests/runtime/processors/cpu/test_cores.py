"""The kind `cpu` computes on the cores that it is told to, in the service and in a guard."""

import asyncio
import os
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from appliance.clock import SystemClock
from appliance.domain.errors import ProcessorLost
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cluster import Cluster
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.group import OwnCores, ProcessorGroup
from appliance.runtime.processors.guard.process import GuardedBuild
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from tests import toys
from tests.fakes.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are pinned on Linux only")
IMAGE = {"image": np.zeros((1, 3, 64, 64), np.float32)}


def computing(process: int) -> dict[int, int]:
    """Of each thread of a process the ticks that it has computed."""
    ticks = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        _, fields = (task / "stat").read_text().rsplit(")", 1)
        ticks[int(task.name)] = sum(map(int, fields.split()[11:13]))
    return ticks


def more_than(before: dict[int, int]) -> dict[int, int]:
    """What the threads of this process have computed since."""
    return {thread: ticks - before.get(thread, 0) for thread, ticks in computing(os.getpid()).items()}


def processor_on(*cores: int, threads_per_run: int = 1) -> OnnxProcessor:
    """One worker."""
    name = f"p{cores[0]}"
    return OnnxProcessor(name, workers=1, threads_per_run=threads_per_run, loads_parallel_max=1, cores=cores)


@pytest.fixture
def form(tmp_path: Path) -> PreparedForm:
    path = toys.conv_net(tmp_path / "net.onnx", 1.0)
    return PreparedForm("net@cpu", str(path), path.stat().st_size, optimised=False)


@pytest.fixture
def guarded_form(tmp_path: Path) -> PreparedForm:
    path = toys.tiny_add(tmp_path / "add.onnx")
    return PreparedForm("add@cpu@harbour", str(path), path.stat().st_size, optimised=False, guarded_for="harbour")


def cores_of(build: object) -> set[frozenset[int]]:
    """Of the threads of a build's guard."""
    assert isinstance(build, GuardedBuild)
    return {frozenset(os.sched_getaffinity(task)) for task in computing(build.guard.pid)}


@pytest.mark.anyio
@pytest.mark.parametrize("threads_per_run", [1, 2])
async def test_runs_compute_on_the_cores_of_their_processor(threads_per_run: int, form: PreparedForm) -> None:
    """The thread that computes most of them is on this core, the event loop's stays where it was."""
    core, allowed = max(os.sched_getaffinity(0)), os.sched_getaffinity(0)
    processor = processor_on(core, threads_per_run=threads_per_run)
    assert processor.describe().cores == (core,)
    loaded = await processor.load(form)
    before = computing(os.getpid())
    took: dict[int, int] = {}
    while sum(took.values()) < 40:  # without the event loop's, which may be most of all on a busy machine
        await processor.run(loaded, IMAGE, None)
        took = more_than(before)
        took.pop(os.getpid(), None)
    assert os.sched_getaffinity(max(took, key=lambda thread: took[thread])) == {core}
    await processor.unload(loaded)
    processor.close()
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
@pytest.mark.anyio
async def test_cluster_that_serves_again_computes_on_its_own_cores(form: PreparedForm) -> None:
    """Its threads have been moved while its core was gone. A run that stood there ends, and the build that it was at
    leaves memory after that.
    """
    first_core, core = sorted(os.sched_getaffinity(0))[:2]

    def moved() -> dict[str, np.ndarray]:
        os.sched_setaffinity(0, {first_core})
        return {}

    clock = SystemClock()
    first, second = processor_on(first_core), processor_on(core)
    cluster = Cluster(second, clock)
    group = ProcessorGroup(first, twins=[OwnCores(cluster)], clock=clock)
    loaded = await group.load(form)
    runs = group.groups()[1].runs
    await second.runs.submit(moved)
    let_on = threading.Event()
    standing = second.runs.submit(let_on.wait)
    under_way = asyncio.ensure_future(runs.run(loaded, IMAGE, None))
    await until(lambda: second.runs.waiting == 1)  # behind the one that stands
    cluster.lose("its core is offline")
    with pytest.raises(ProcessorLost):
        await under_way
    unloading = asyncio.create_task(group.unload(loaded))
    await asyncio.wait([unloading], timeout=0.1)
    assert not unloading.done()
    assert not cluster.is_clear
    let_on.set()
    await standing
    await unloading
    assert cluster.is_clear
    cluster.serve()
    loaded = await group.load(form)
    await runs.run(loaded, IMAGE, None)
    assert await second.runs.submit(os.sched_getaffinity, 0) == {core}
    await group.unload(loaded)
    group.close()


@pytest.mark.usefixtures("processes")
@pytest.mark.anyio
async def test_guards_compute_on_the_cores_of_their_processor(tmp_path: Path, guarded_form: PreparedForm) -> None:
    core = max(os.sched_getaffinity(0))
    options = GuardOptions(scratch=tmp_path / "scratch")
    with closing(GuardedProcessor(processor_on(core), SystemClock(), options)) as guarded:
        assert cores_of(await guarded.load(guarded_form)) == {frozenset({core})}


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
@pytest.mark.anyio
async def test_guard_of_several_groups_computes_on_the_cores_of_all(tmp_path: Path, guarded_form: PreparedForm) -> None:
    """A run is counted for the group that it was handed to."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    row = {name: np.ones((1, 4), np.float32) for name in "AB"}
    first, second = map(processor_on, cores)
    group = ProcessorGroup(first, twins=[OwnCores(Cluster(second, SystemClock()))], clock=SystemClock())
    options = GuardOptions(scratch=tmp_path / "scratch", workers=2, cores=tuple(cores))
    with closing(GuardedProcessor(group, SystemClock(), options)) as guarded:
        build = await guarded.load(guarded_form)
        assert cores_of(build) == {frozenset(cores)}
        for at, one in enumerate(group.groups()):
            runs = guarded.runs_of(at, one.runs)
            assert (await runs.run(build, row, None))["SUM"].tolist() == [[2.0] * 4]
            rows = await runs.run_rows(build, [row] * 2, [1, 1], None)
            assert [each["SUM"].tolist() for each in rows] == [[[2.0] * 4]] * 2
        assert [one.runs for one in group.statuses(4, 0.0)] == [2, 2]
