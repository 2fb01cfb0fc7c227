"""TensorRT's engines, by a fake of the runtime: compiled by `prepare`, never by a load or a run."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from appliance.domain.catalogue import Precision
from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.providers.engines import PROVIDER, ROWS_MAX, TensorRtSessions
from tests import toys
from tests.fakes import accelerators
from tests.fakes.onnxruntime import FakeOnnxRuntime
from tests.modelstore import networks
from tests.runtime.processors.quantized import check_nearly_same, original, quantized


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeOnnxRuntime:
    return accelerators.install(monkeypatch)[0]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return toys.tiny_add(tmp_path / "add.onnx")


def inputs(rows: int) -> dict[str, np.ndarray]:
    return {name: np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) for name in ("A", "B")}


def prepared(net: Path, folder: Path) -> PreparedForm:
    folder.mkdir()
    name = TensorRtSessions().prepare(net, folder)
    return PreparedForm("add@tensorrt", str(folder / name), 1, True, kind="tensorrt")


def sizes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in folder.iterdir()}


def test_tensorrt_engine_is_compiled_only_once(runtime: FakeOnnxRuntime, net: Path, tmp_path: Path) -> None:
    """A load elsewhere, with another process's sessions, finds the engine; no file of the form changes by that."""
    prepared(net, tmp_path / "made")
    assert len(runtime.compiled) == 1
    kept = (tmp_path / "made").rename(tmp_path / "kept")
    before = sizes(kept)
    assert any(name.endswith(".engine") for name in before)
    sessions = TensorRtSessions()
    form = PreparedForm("add@tensorrt", str(kept / "model.onnx"), 1, True, kind="tensorrt")
    loaded = [sessions.load(form), TensorRtSessions().load(form)]
    for rows in (1, 3, ROWS_MAX):
        np.testing.assert_array_equal(sessions.run(loaded[0], inputs(rows), None)["SUM"], 2 * inputs(rows)["A"])
    assert len(runtime.compiled) == 1
    assert sizes(kept) == before


def test_batch_larger_than_the_tensorrt_engine_runs_on_cuda(
    runtime: FakeOnnxRuntime, net: Path, tmp_path: Path
) -> None:
    """TensorRT would compile anew, while a request waits. The session on CUDA goes with the build."""
    sessions = TensorRtSessions()
    loaded = sessions.load(prepared(net, tmp_path / "form"))
    before = len(runtime.sessions)
    for _ in range(2):
        found = sessions.run(loaded, inputs(ROWS_MAX + 1), None)
        np.testing.assert_array_equal(found["SUM"], 2 * inputs(ROWS_MAX + 1)["A"])
    assert len(runtime.compiled) == 1
    assert [session.wanted[0][0] for session in runtime.sessions[before:]] == ["CUDAExecutionProvider"]
    sessions.unload(loaded)
    assert loaded.beyond == {}


def test_tensorrt_with_a_plain_form_compiles_nothing(runtime: FakeOnnxRuntime, net: Path) -> None:
    """A plain form serves where a prepared one was damaged."""
    sessions = TensorRtSessions()
    loaded = sessions.load(PreparedForm("add@tensorrt", str(net), 1, False, kind="tensorrt"))
    assert sessions.run(loaded, inputs(2), None)
    assert runtime.compiled == []
    assert sessions.fell_back_to(loaded) == "CUDAExecutionProvider"


def test_tensorrt_makes_no_form_of_a_network_of_free_size(runtime: FakeOnnxRuntime, tmp_path: Path) -> None:
    """An engine is for known sizes: such a network serves elsewhere, and nothing of it stays on disk."""
    target = tmp_path / "form"
    target.mkdir()
    with pytest.raises(LoadFailed, match="its inputs are of free size"):
        TensorRtSessions().prepare(toys.conv_net(tmp_path / "net.onnx", 1.0), target)
    assert list(target.iterdir()) == []
    assert runtime.compiled == []


def test_tensorrt_makes_no_form_of_a_network_left_to_the_cpu(
    runtime: FakeOnnxRuntime, net: Path, tmp_path: Path
) -> None:
    runtime.on_cpu = frozenset({"Add"})
    (tmp_path / "form").mkdir()
    with pytest.raises(LoadFailed, match="none of it runs on"):
        TensorRtSessions().prepare(net, tmp_path / "form")


def test_tensorrt_does_not_load_a_damaged_form(runtime: FakeOnnxRuntime, net: Path, tmp_path: Path) -> None:
    form = prepared(net, tmp_path / "form")
    (tmp_path / "form" / "compiled.json").write_text("{")
    with pytest.raises(LoadFailed, match="its form is not whole"):
        TensorRtSessions().load(form)


def test_tensorrt_form_of_a_quantized_network_computes_nearly_the_same(
    runtime: FakeOnnxRuntime, tmp_path: Path
) -> None:
    """A network that the import quantizes for CPUs is refused as it is; its form is taken."""
    plain = original(tmp_path)
    own = quantized(plain, tmp_path)
    sessions = TensorRtSessions()
    with pytest.raises(LoadFailed, match="only supports symmetric quantization"):
        sessions.make(str(own), "net", [(PROVIDER, {"trt_int8_enable": "1"})], sessions.session_options(optimised=True))
    loaded = sessions.load(prepared(own, tmp_path / "form"))
    options = loaded.providers[0][1]
    assert (options["trt_int8_enable"], options["trt_fp16_enable"]) == ("1", "0")
    assert options["trt_profile_max_shapes"] == f"image:{ROWS_MAX}x3x16x16"
    check_nearly_same(sessions, loaded, own, plain, Precision.INT8)


@pytest.mark.parametrize("half", [False, True])
def test_tensorrt_engine_has_the_precision_of_the_network(runtime: FakeOnnxRuntime, half: bool, tmp_path: Path) -> None:
    """Half precision is allowed to a network in half precision; batches are not compiled for a network that takes one
    row.
    """
    node = helper.make_node("Mul", ["x", "w"], ["y"], "mul")
    weights = {"w": np.array([1.0, 2.0], np.float16 if half else np.float32)}
    types: dict[str, int] = dict.fromkeys("xy", TensorProto.FLOAT16 if half else TensorProto.FLOAT)
    path = networks.write(networks.model([node], {"x": [1, 2]}, {"y": [1, 2]}, weights, types=types), tmp_path)
    name, options = TensorRtSessions().load(prepared(Path(path), tmp_path / "form")).providers[0]
    assert name == PROVIDER
    assert (options["trt_fp16_enable"], options["trt_int8_enable"]) == (str(int(half)), "0")
    assert "trt_profile_max_shapes" not in options
