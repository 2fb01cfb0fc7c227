"""DLA cores, by fakes of TensorRT and CUDA: compiled at import, one engine a core, rows one by one."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from appliance.domain.catalogue import Precision
from appliance.domain.errors import LoadFailed, RunRefused, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.dla.kind import DLA
from appliance.runtime.processors.dla.session import LOADABLES_MAX, DlaSessions
from appliance.runtime.processors.probe import check
from tests import toys
from tests.fakes import accelerators
from tests.fakes.tensorrt import FakeCuda, FakeTensorRt
from tests.modelstore import networks
from tests.runtime.processors.quantized import IMAGES, check_nearly_same, original, quantized

Fakes = tuple[FakeTensorRt, FakeCuda]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    _, tensorrt, cuda = accelerators.install(monkeypatch)
    return tensorrt, cuda


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a form."""
    made = tmp_path / "form"
    made.mkdir()
    return made


def compiled(net: Path, folder: Path) -> PreparedForm:
    folder.mkdir(exist_ok=True)
    return PreparedForm(f"{net.stem}@dla", str(folder / DlaSessions(2).prepare(net, folder)), 1, True, kind="dla")


def prepared(tmp_path: Path) -> PreparedForm:
    return compiled(toys.tiny_add(tmp_path / "add.onnx"), tmp_path / "form")


def inputs(rows: int) -> dict[str, np.ndarray]:
    return {name: np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) for name in ("A", "B")}


def test_dla_probe_passes_with_half_precision(fakes: Fakes, tmp_path: Path) -> None:
    """A DLA knows no other precision, but eight bits."""
    assert check(DlaSessions(2), tmp_path) == ""
    assert set(fakes[0].flags) == {"fp16"}


def test_dla_computes_rows_of_a_batch_one_by_one_in_order(fakes: Fakes, tmp_path: Path) -> None:
    """The arrays are the caller's."""
    sessions = DlaSessions(2)
    loaded = sessions.load(prepared(tmp_path))
    found = sessions.run(loaded, inputs(5), ["SUM"])["SUM"]
    again = sessions.run(loaded, inputs(1), None)["SUM"]
    np.testing.assert_array_equal(found, 2 * inputs(5)["A"])
    np.testing.assert_array_equal(again, 2 * inputs(1)["A"])
    assert len(fakes[0].runs) == 6


@pytest.mark.anyio
async def test_dla_runs_use_both_cores(fakes: Fakes, tmp_path: Path) -> None:
    """An engine is read for each core, and runs go to whichever is free; nothing stays on the device."""
    processor = DLA.processor(name="dla", workers=16, threads_per_run=1, loads_parallel_max=1)
    assert processor.describe().workers == 2
    loaded = await processor.load(prepared(tmp_path))
    await asyncio.gather(*(processor.run(loaded, inputs(1), None) for _ in range(8)))
    assert set(fakes[0].runs) == {0, 1}
    await processor.unload(loaded)
    processor.close()
    assert fakes[1].held == {}


def test_dla_refuses_free_sizes_and_forms_that_are_not_compiled(fakes: Fakes, tmp_path: Path, folder: Path) -> None:
    """And leaves no files of a refused form."""
    net = toys.conv_net(tmp_path / "net.onnx", 1.0)
    sessions = DlaSessions(2)
    assert sessions.supports(toys.tiny_add(tmp_path / "add.onnx"))
    assert not sessions.supports(net)
    with pytest.raises(LoadFailed, match="its inputs are of free size"):
        sessions.prepare(net, folder)
    assert list(folder.iterdir()) == []
    with pytest.raises(LoadFailed, match="not compiled"):
        sessions.load(PreparedForm("net@dla", str(net), 1, False, kind="dla"))


def test_dla_load_beyond_the_networks_of_a_core_is_refused(fakes: Fakes, tmp_path: Path) -> None:
    sessions, form = DlaSessions(2), prepared(tmp_path)
    loaded = [sessions.load(form) for _ in range(LOADABLES_MAX)]
    with pytest.raises(LoadFailed, match=f"no more than {LOADABLES_MAX}"):
        sessions.load(form)
    sessions.unload(loaded[0])
    assert sessions.load(form)


def test_dla_computes_quantized_networks_in_eight_bits(fakes: Fakes, tmp_path: Path) -> None:
    """As the import quantizes them for CPUs, and so nearly the same that they may serve."""
    plain = original(tmp_path)
    own = quantized(plain, tmp_path)
    sessions, form = DlaSessions(2), compiled(own, tmp_path / "form")
    assert set(fakes[0].flags) == {"fp16", "int8"}
    ranges = {"image", "a.y", "a.r", "b.y", "sum", "sum.r", "pooled", "c.y", "d.y", "both", "e.y"}
    assert ranges <= fakes[0].ranges.keys()
    check_nearly_same(sessions, sessions.load(form), own, plain, Precision.INT8)


@pytest.mark.parametrize("is_quantized", [False, True])
def test_dla_with_tensorrt_11_computes_nearly_the_same_in_half_precision(
    fakes: Fakes, tmp_path: Path, is_quantized: bool
) -> None:
    """Also quantized networks; callers have floats, and answers are so nearly the same that the form may serve."""
    fakes[0].of(11)
    assert check(DlaSessions(2), tmp_path) == ""
    plain = original(tmp_path)
    own = quantized(plain, tmp_path) if is_quantized else plain
    sessions = DlaSessions(2)
    assert sessions.supports(own)
    form = compiled(own, tmp_path / "form")
    assert fakes[0].flags == []
    before = fakes[1].held.keys() - {0}
    loaded = sessions.load(form)
    check_nearly_same(sessions, loaded, own, plain, Precision.INT8 if is_quantized else Precision.FP16)
    found = sessions.run(loaded, {"image": np.full_like(IMAGES[0], 1e6)}, None)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    with pytest.raises(RunRefused):
        sessions.run(loaded, {"image": IMAGES[0].astype(np.float16)}, None)
    sessions.unload(loaded)
    assert fakes[1].held.keys() == before


def test_dla_network_in_half_precision_answers_in_half_precision(fakes: Fakes, tmp_path: Path) -> None:
    """Whatever the version of TensorRT."""
    add = helper.make_node("Add", ["a", "b"], ["y"])
    half: dict[str, int] = dict.fromkeys("aby", TensorProto.FLOAT16)
    net = Path(networks.write(networks.model([add], {"a": [1, 4], "b": [1, 4]}, {"y": [1, 4]}, types=half), tmp_path))
    rows = {name: np.arange(4, dtype=np.float16).reshape(1, 4) for name in "ab"}
    for version in (10, 11):
        fakes[0].of(version)
        sessions = DlaSessions(1)
        found = sessions.run(sessions.load(compiled(net, tmp_path / str(version))), rows, None)["y"]
        assert (found.dtype, found.tolist()) == (np.float16, [[0, 2, 4, 6]])


def test_dla_compile_failure_gives_the_reason_of_tensorrt(fakes: Fakes, tmp_path: Path, folder: Path) -> None:
    """In the words of its complaints, not of its other remarks; a network after the first has a reason of its own."""
    dynamic = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    types: dict[str, int] = {"a": TensorProto.INT8, "b": TensorProto.INT8, "y": TensorProto.INT32}
    made = networks.model([dynamic], {"a": [2, 2], "b": [2, 2]}, {"y": [2, 2]}, types=types)
    sessions = DlaSessions(2)
    for net, reason in (
        (original(tmp_path, last="Erf"), "a DLA cannot compute it: Erf is not supported on DLA"),
        (Path(networks.write(made, tmp_path)), "TensorRT cannot read it: No importer registered for op: MatMulInteger"),
    ):
        with pytest.raises(LoadFailed) as raised:
            sessions.prepare(net, folder)
        assert raised.value.reason == reason


def test_dla_plan_of_another_tensorrt_version_is_not_loaded(fakes: Fakes, tmp_path: Path) -> None:
    """And leaves nothing on the device."""
    (tmp_path / "model.plan").write_bytes(b"of another version")
    with pytest.raises(LoadFailed, match="another version"):
        DlaSessions(2).load(PreparedForm("net@dla", str(tmp_path / "model.plan"), 1, True, kind="dla"))
    assert fakes[1].held == {}


def test_dla_run_with_a_device_error_is_refused_and_frees_the_core(fakes: Fakes, tmp_path: Path) -> None:
    """A run that may not go on ends between two rows."""
    sessions = DlaSessions(1)
    loaded = sessions.load(prepared(tmp_path))
    fakes[1].fails = True
    with pytest.raises(RunRefused, match="CUDA error 700"):
        sessions.run(loaded, inputs(1), None)
    fakes[1].fails = False
    for wrong in ({"A": inputs(1)["A"]}, {**inputs(2), "B": np.ones((2, 3), np.float32)}):
        with pytest.raises(RunRefused):
            sessions.run(loaded, wrong, None)
    stop = sessions.stop()
    stop.terminate = True
    with pytest.raises(RunStopped):
        sessions.run(loaded, inputs(2), None, stop)
    assert sessions.run(loaded, inputs(2), None)


def test_dla_probe_on_a_machine_without_a_dla_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TensorRT is there, and no core."""
    tensorrt = accelerators.install(monkeypatch)[1]
    tensorrt.cores = 0
    assert check(DlaSessions(2), tmp_path) == "this machine has no DLA"
