"""Measuring in a child process: plausible figures of real networks, and every way of failing ends in an error of
ours.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
from onnx import TensorProto, helper

from appliance.child import RESTS, Rests
from appliance.clock import NS_PER_MS, SystemClock
from appliance.confinement.available import available
from appliance.confinement.limits import ChildLimits
from appliance.domain.errors import LoadFailed, RunFailed
from appliance.domain.hardware import MeasureCase, PreparedForm, ProcessorDescription, Reference
from appliance.runtime.processors.cpu.session import machine
from appliance.runtime.processors.measuring.measure import ChildMeasure
from tests import toys
from tests.attacks import killers
from tests.fakes.waiting import until
from tests.modelstore import networks

pytestmark = pytest.mark.usefixtures("processes")

CPU = ProcessorDescription("cpu", "cpu", 1, 1, "host", "f")
OPENVINO = ProcessorDescription("o", "openvino", 1, 1, "host", "f")
MEGABYTES = 8.0
HANGING = "tests.runtime.processors.measuring.hanging_child"
"""Says nothing but that it wants to be alone, and never ends."""


@pytest.fixture
def measure(tmp_path: Path) -> ChildMeasure:
    return measure_of(tmp_path)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.conv_net(tmp_path_factory.mktemp("net") / "net.onnx", MEGABYTES)


def form_of(path: Path) -> PreparedForm:
    return PreparedForm("b", str(path), path.stat().st_size, optimised=False)


def images(batch: int) -> MeasureCase:
    return MeasureCase(batch, {"image": np.random.default_rng(0).standard_normal((batch, 3, 64, 64), np.float32)})


def identity(folder: Path, name: str, kind: int = TensorProto.FLOAT) -> Path:
    """A graph that gives its one input back."""
    node = helper.make_node("Identity", [name], ["out"])
    made = networks.model([node], {name: ["N"]}, {"out": ["N"]}, types={name: kind, "out": kind})
    return Path(networks.write(made, folder))


def measure_of(folder: Path, *processors: ProcessorDescription, wall_s: float = 60, **more: Any) -> ChildMeasure:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return ChildMeasure(processors or [CPU], ChildLimits(wall_s=wall_s, nice=5), scratch, **more)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folder of a form."""
    folder = tmp_path / "form"
    folder.mkdir()
    return folder


@pytest.mark.nightly("real runs are timed")
@pytest.mark.anyio
async def test_figures_of_a_real_network_are_plausible(measure: ChildMeasure, net: Path) -> None:
    """The network holds its weights in memory, whatever the kernels of this processor make of them, and no step took
    longer than the whole measurement. How figures are made of what was measured is in `test_figures`.
    """
    clock = SystemClock()
    start_ns = clock.now_ns()
    profile = await measure.profile(form_of(net), "cpu", [images(1), images(4)])
    took_ms = (clock.now_ns() - start_ns) / NS_PER_MS
    assert profile.processor == "cpu"
    assert profile.resident_bytes > MEGABYTES * 1e6 / 2
    assert profile.peak_bytes >= profile.resident_bytes
    assert 0 < profile.load_ms < took_ms
    assert 0 < profile.load_cold_ms < took_ms
    assert [row.batch for row in profile.latencies] == [1, 4]
    for row in profile.latencies:
        assert 0 < row.p50_ms <= row.p99_ms < took_ms
    assert profile.shared_rows_max == 4, "convolutions look at one picture at a time"


@pytest.mark.anyio
async def test_prepared_form_is_made_and_measured(measure: ChildMeasure, net: Path, made: Path) -> None:
    """The child writes the form; measured through it, the network can sleep. What it gains at loads is measured by the
    benchmark `loads`.
    """
    form = await measure.prepare(str(net), str(made), "cpu")
    assert form is not None
    assert form.optimised
    prepared = await measure.profile(form, "cpu", [images(1)])
    plain = await measure.profile(form_of(net), "cpu", [images(1)])
    assert prepared.load_ms > 0
    assert prepared.asleep_bytes is not None
    assert prepared.asleep_bytes < prepared.resident_bytes
    assert prepared.wake_ns is not None
    assert prepared.wake_ns > 0
    assert (plain.asleep_bytes, plain.wake_ns) == (None, None)  # its weights are copies


@pytest.mark.anyio
@pytest.mark.skipif("bf16" not in machine(), reason="this processor does not compute in bf16")
async def test_form_in_fewer_bits_is_compared_with_the_first_kind(net: Path, tmp_path: Path, made: Path) -> None:
    """By the child, which compiles it: near what the first kind computes, and not so near as in all bits."""
    measure = measure_of(tmp_path, CPU, replace(OPENVINO, reduced="bf16"))
    form = await measure.prepare(str(net), str(made), "o", is_reduced=True)
    assert form is not None
    assert form.computes_in == "bf16"
    profile = await measure.profile(form, "o", [images(1)], reference=Reference(form_of(net), 0.05))
    assert (profile.kind, profile.computes_in) == ("openvino", "bf16")
    with pytest.raises(RunFailed, match="differs by"):
        await measure.profile(form, "o", [images(1)], reference=Reference(form_of(net), 1e-4))


@pytest.mark.anyio
async def test_file_that_is_no_model_has_no_form_and_fails_to_load(
    measure: ChildMeasure, tmp_path: Path, made: Path
) -> None:
    """With the runtime's reason."""
    path = tmp_path / "garbage.onnx"
    path.write_bytes(b"garbage")
    assert await measure.prepare(str(path), str(made), "cpu") is None
    with pytest.raises(LoadFailed) as failed:
        await measure.profile(form_of(path), "cpu", [images(1)])
    assert str(failed.value) == "the variant could not be loaded: Protobuf parsing failed."


@pytest.mark.anyio
async def test_compile_failure_of_a_kind_gives_the_kinds_own_reason(net: Path, tmp_path: Path, made: Path) -> None:
    """By the child; of several files, one that fails keeps no other from its form."""
    measure = measure_of(tmp_path, CPU, OPENVINO)
    det = helper.make_node("Det", ["x"], ["y"])
    unknown = networks.write(networks.model([det], {"x": [2, 2]}, {"y": []}), tmp_path)
    with pytest.raises(LoadFailed, match="Det"):
        await measure.prepare(unknown, str(made), "o")
    pairs = []
    for source in (unknown, str(net)):
        target = tmp_path / f"form of {Path(source).name}"
        target.mkdir()
        pairs.append((source, str(target)))
    assert [form is not None for form in await measure.prepare_all(pairs, "o")] == [False, True]


@pytest.mark.anyio
async def test_rows_are_repeated_for_large_batches_and_timed_at_each_level(net: Path, tmp_path: Path) -> None:
    """Four rows make a batch of 16 in the child; on four workers up to two and four run at once. A batch above the
    usual ones that the network refuses ends the list; a usual one is a failed run.
    """
    measure = measure_of(tmp_path, replace(CPU, workers=4))
    repeated = MeasureCase(16, images(4).inputs, {"image": 0})
    refused = MeasureCase(32, {"image": np.zeros((32, 4, 8, 8), np.float32)})
    profile = await measure.profile(form_of(net), "cpu", [images(4), repeated, refused])
    points = [(row.batch, row.concurrency) for row in profile.latencies]
    assert points == [(4, 1), (16, 1), (4, 2), (16, 2), (4, 4), (16, 4)]
    with pytest.raises(RunFailed):
        await measure.profile(form_of(net), "cpu", [images(4), replace(refused, batch=8)])


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["file", "allow_pickle", "arr_0", "../../x", "a b/c:0", "größe"])
async def test_inputs_of_any_name_are_measured(measure: ChildMeasure, tmp_path: Path, name: str) -> None:
    """Names are the model's: none of them may get in the way of carrying the inputs over."""
    form = form_of(identity(tmp_path, name))
    profile = await measure.profile(form, "cpu", [MeasureCase(1, {name: np.ones(1, np.float32)})])
    assert profile.latencies[0].p50_ms > 0


@pytest.mark.anyio
async def test_text_inputs_are_measured(measure: ChildMeasure, tmp_path: Path) -> None:
    form = form_of(identity(tmp_path, "text", TensorProto.STRING))
    case = MeasureCase(2, {"text": np.array(["ä", "long " * 50], np.object_)})
    assert (await measure.profile(form, "cpu", [case])).latencies[0].batch == 2


@pytest.mark.anyio
@pytest.mark.skipif(not available().files, reason="the kernel has no Landlock")
async def test_measuring_child_sees_only_the_file_of_its_model(
    measure: ChildMeasure, net: Path, tmp_path: Path
) -> None:
    """Not what lies beside it, whatever the graph says."""
    graph = onnx.load(net)
    onnx.save(graph, tmp_path / "net.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    onnxruntime.InferenceSession(tmp_path / "net.onnx")
    with pytest.raises(LoadFailed, match="could not be loaded"):
        await measure.profile(form_of(tmp_path / "net.onnx"), "cpu", [images(1)])


@pytest.mark.anyio
async def test_measuring_child_beyond_the_memory_limit_is_a_failed_run(tmp_path: Path) -> None:
    """Long before the machine's end."""
    measure = ChildMeasure([CPU], ChildLimits(memory_bytes=1 << 30), tmp_path)
    grown = MeasureCase(1, {"X": np.ones((25_000, 1), np.float32)})  # 2.5 GB
    with pytest.raises(RunFailed):
        await measure.profile(form_of(killers.outer_product(tmp_path / "outer.onnx")), "cpu", [grown])


@pytest.mark.anyio
@pytest.mark.parametrize("prepares", [False, True])
async def test_measuring_child_that_takes_too_long_is_killed(
    tmp_path: Path, net: Path, made: Path, prepares: bool
) -> None:
    """The caller hears how long it was allowed, and its inputs are not left on disk."""
    measure = measure_of(tmp_path, wall_s=0.05, program=HANGING)
    prepare = partial(measure.prepare, str(net), str(made), "cpu")
    order: Callable[[], Awaitable[object]] = partial(measure.profile, form_of(net), "cpu", [images(1)])
    with pytest.raises(LoadFailed, match=r"longer than 0\.05 s"):
        await (prepare if prepares else order)()
    assert children() == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.nightly("times many runs")
@pytest.mark.anyio
async def test_processor_is_left_alone_only_while_a_build_is_timed(tmp_path: Path, net: Path, made: Path) -> None:
    """Not while the build is loaded and looked at; and the processor is used again however the timing ends."""
    told: list[str] = []

    @asynccontextmanager
    async def paused(processor: str) -> AsyncIterator[None]:
        told.append(f"{processor} is left alone")
        try:
            yield
        finally:
            told.append(f"{processor} is used")

    two = replace(CPU, workers=2)
    measure = measure_of(tmp_path, two, paused=paused)
    form = await measure.prepare(str(net), str(made), "cpu")
    assert told == []
    assert form is not None
    await measure.profile(form, "cpu", [images(4)])
    assert told == 2 * ["cpu is left alone", "cpu is used"]  # one run at a time, and two
    hasty = measure_of(tmp_path, two, wall_s=2.0, program=HANGING, paused=paused)
    with pytest.raises(LoadFailed):
        await hasty.profile(form_of(net), "cpu", [images(1)])
    assert told[4:] in ([], ["cpu is left alone", "cpu is used"])  # it may not even have come to ask


@pytest.mark.anyio
@pytest.mark.parametrize("program", ["silent_child", "asking_child"])
async def test_processor_is_used_again_whatever_the_measuring_child_says(
    tmp_path: Path, net: Path, program: str
) -> None:
    """A child that never says that it is done, and one that asks again and again: it goes on beside others."""
    used = tmp_path / "scratch" / "used"

    @asynccontextmanager
    async def paused(processor: str) -> AsyncIterator[None]:
        used.unlink(missing_ok=True)
        try:
            yield
        finally:
            used.touch()

    program = f"tests.runtime.processors.measuring.{program}"
    measure = measure_of(tmp_path, program=program, paused=paused, paused_s_max=0.05)
    with pytest.raises(LoadFailed, match="others had it meanwhile"):
        await measure.profile(form_of(net), "cpu", [images(1)])


@pytest.mark.anyio
async def test_grant_of_a_processor_ends_with_the_timed_runs(tmp_path: Path, net: Path) -> None:
    """Also where the child did not wait for the grant any more: the next runs are not taken for granted."""
    measure = measure_of(tmp_path, program="tests.runtime.processors.measuring.late_child")
    with pytest.raises(LoadFailed, match="it is granted no more"):
        await measure.profile(form_of(net), "cpu", [images(1)])


@pytest.mark.nightly("real runs are timed")
@pytest.mark.anyio
async def test_cancelled_measurement_ends_the_measuring_child(measure: ChildMeasure, net: Path) -> None:
    """The next measurement is not blocked."""
    task = asyncio.create_task(measure.profile(form_of(net), "cpu", [images(1)]))
    await until(lambda: bool(children()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []
    await measure.profile(form_of(net), "cpu", [images(1)])


@pytest.mark.nightly("real runs are timed")
@pytest.mark.anyio
async def test_measurements_have_one_child_at_a_time(measure: ChildMeasure, net: Path) -> None:
    """Two measurements side by side would disturb each other: the second waits."""
    tasks = [asyncio.create_task(measure.profile(form_of(net), "cpu", [images(1)])) for _ in range(2)]
    most = 0
    while not all(task.done() for task in tasks):
        most = max(most, len(children()))
        await asyncio.sleep(0.01)  # noqa: TID251 - a real child needs real time
    await asyncio.gather(*tasks)
    assert most == 1


def children() -> list[psutil.Process]:
    """Living children of this process that measure."""
    found = []
    for child in psutil.Process().children():
        try:
            if not {"appliance.runtime.processors.measuring.measure", HANGING}.isdisjoint(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.nightly("times many runs")
@pytest.mark.anyio
async def test_batches_on_two_workers_are_measured_with_two_runs_at_once(net: Path, tmp_path: Path) -> None:
    """After one run at a time, and no shorter than that."""
    measure = measure_of(tmp_path, replace(CPU, workers=2))
    profile = await measure.profile(form_of(net), "cpu", [images(4), images(8)])
    assert [(row.batch, row.concurrency) for row in profile.latencies] == [(4, 1), (8, 1), (4, 2), (8, 2)]
    for alone, at_once in zip(profile.alone, profile.latencies[2:], strict=True):
        assert alone.p50_ms <= at_once.p50_ms <= at_once.p99_ms


@pytest.mark.anyio
async def test_short_runs_are_measured_one_at_a_time(tmp_path: Path) -> None:
    """A run of microseconds would measure the interpreter's lock."""
    measure = measure_of(tmp_path, replace(CPU, workers=2))
    case = MeasureCase(1, {"x": np.ones(1, np.float32)})
    profile = await measure.profile(form_of(identity(tmp_path, "x")), "cpu", [case])
    assert [row.concurrency for row in profile.latencies] == [1]


@pytest.mark.nightly("real runs are timed")
@pytest.mark.anyio
async def test_measurement_interrupted_by_a_rest_is_timed_anew(tmp_path: Path, net: Path) -> None:
    """The child that timed runs has ended, and another child begins when the rest is over; no processor is left alone
    for it.
    """

    @asynccontextmanager
    async def paused(processor: str) -> AsyncIterator[None]:
        raise AssertionError(f"{processor} is left alone")
        yield

    rests = Rests()
    before = RESTS.set(rests)
    measure = measure_of(tmp_path, paused=paused)
    profiling = asyncio.create_task(measure.profile(form_of(net), "cpu", [images(1)]))
    RESTS.reset(before)
    await until(lambda: bool(children()))
    rests.begin()
    await until(lambda: not children())
    async with asyncio.timeout(60):  # others have their turns
        assert await measure.supported([str(net)], "cpu") == (True,)
    assert not profiling.done()
    rests.end()
    assert (await profiling).latencies


@pytest.mark.anyio
async def test_times_of_a_few_runs_are_measured_by_batch(measure: ChildMeasure, net: Path) -> None:
    """Of one run at a time; compared with a reference first, where there is one."""
    rows = await measure.times(form_of(net), "cpu", [images(1), images(4)], None)
    assert [(row.batch, row.concurrency) for row in rows] == [(1, 1), (4, 1)]
    assert 0 < rows[0].p50_ms <= rows[0].p99_ms
    same = await measure.times(form_of(net), "cpu", [images(1)], Reference(form_of(net), 1e-3))
    assert [row.batch for row in same] == [1]
