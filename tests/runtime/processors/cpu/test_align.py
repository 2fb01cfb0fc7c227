"""Weights of a prepared form start where vector registers can read them."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from appliance.domain.hardware import PreparedForm
from appliance.modelstore.stages.quantise import Ranges, static_int8
from appliance.runtime.processors.cpu.align import ALIGNMENT_BYTES, align
from appliance.runtime.processors.cpu.session import OnnxSessions
from tests import toys
from tests.fakes.forms import prepared_form
from tests.modelstore import networks


def dense_net(path: Path, widths: tuple[int, ...] = (33, 65, 47, 10)) -> Path:
    """Dense layers of odd sizes, which a runtime packs anew; `x` FP32[N, 33] to `y`."""
    random = np.random.default_rng(5)
    nodes, weights, value = [], {}, "x"
    for i, (rows, columns) in enumerate(itertools.pairwise(widths)):
        weights[f"w{i}"] = (random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        name = "y" if i == len(widths) - 2 else f"h{i}"
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [name]))
        value = name
    made = networks.model(nodes, {"x": ["N", widths[0]]}, {"y": ["N", widths[-1]]}, weights)
    return Path(networks.write(made, path.parent, path.name))


def quantized_net(path: Path, channels: int = 136) -> Path:
    """A depthwise convolution in eight bits between others; `x` FP32[1, 3, 16, 16] to `y`."""
    random = np.random.default_rng(6)
    shapes = {"w0": (channels, 3, 3, 3), "w1": (channels, 1, 3, 3), "w2": (64, channels, 1, 1)}
    weights = {name: (random.standard_normal(shape) / 5).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h0"], "c0", pads=[1] * 4),
        helper.make_node("Conv", ["h0", "w1"], ["h1"], "c1", pads=[1] * 4, group=channels),
        helper.make_node("Conv", ["h1", "w2"], ["y"], "c2"),
    ]
    made = networks.model(nodes, {"x": [1, 3, 16, 16]}, {"y": [1, 64, 16, 16]}, weights)
    plain = Path(networks.write(onnx.shape_inference.infer_shapes(made), path.parent, "plain.onnx"))
    feeds = [{"x": random.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(2)]
    static_int8(plain, path, Ranges(plain, feeds), is_clipped=False, exclude=[])
    return path


def starts_of(model: Path) -> list[int]:
    """Every offset into the weights file that the model names, those of packed kernels too."""
    found = []
    for tensor in onnx.load(str(model), load_external_data=False).graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                found.append(int(entry.value))
            elif entry.key.startswith("prepacked"):
                found += [int(buffer.split(";")[0]) for buffer in entry.value.split("|")[1:]]
    return found


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (dense_net, {"x": (3, 33)}),
        (lambda path: toys.conv_net(path, 1.0), {"image": (2, 3, 40, 48)}),
        (quantized_net, {"x": (1, 3, 16, 16)}),
    ],
    ids=["dense", "conv", "quantized"],
)  # fmt: skip
def test_prepared_form_has_aligned_weights_and_equal_answers(
    tmp_path: Path, make: Callable[[Path], Path], inputs: dict[str, tuple[int, ...]]
) -> None:
    """After preparing, all offsets are multiples of 64, and the answers are those of the plain file."""
    source, target = make(tmp_path / "net.onnx"), tmp_path / "form"
    target.mkdir()
    sessions = OnnxSessions(1)
    assert sessions.prepare(source, target)
    starts = starts_of(target / "model.onnx")
    assert starts
    assert [start % ALIGNMENT_BYTES for start in starts] == [0] * len(starts)
    form = prepared_form("b", target)
    random = np.random.default_rng(2)
    fed = {name: random.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    plain = sessions.run(sessions.load(PreparedForm("b", str(source), 0, optimised=False)), fed, None)
    for name, got in sessions.run(sessions.load(form), fed, None).items():
        np.testing.assert_allclose(got, plain[name], atol=1e-4)


def external(model: Path, **entries: str) -> None:
    """A model with one initializer `w` that is described so."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "model.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    graph = helper.make_graph([], "g", [], [], [tensor])
    onnx.save(helper.make_model(graph), model)


def entries_of(model: Path) -> dict[str, str]:
    """How the one initializer is described now."""
    (tensor,) = onnx.load(str(model), load_external_data=False).graph.initializer
    return {entry.key: entry.value for entry in tensor.external_data}


def test_aligned_weights_keep_the_bytes_of_every_buffer(tmp_path: Path) -> None:
    """An odd offset, and a packed kernel with two buffers: each part lies where the model now says, byte by byte."""
    content = bytes(range(1, 101))
    (tmp_path / "model.bin").write_bytes(content)
    external(tmp_path / "model.onnx", offset="3", length="16", prepacked_0="MatMul+1|21;30;77|51;7;88")
    align(tmp_path / "model.onnx", tmp_path / "model.bin")
    moved = (tmp_path / "model.bin").read_bytes()
    entries = entries_of(tmp_path / "model.onnx")
    at = int(entries["offset"])
    assert moved[at : at + 16] == content[3:19]
    kernel, one, other = entries["prepacked_0"].split("|")
    assert (kernel, one.split(";")[1:], other.split(";")[1:]) == ("MatMul+1", ["30", "77"], ["7", "88"])
    for buffer, old in ((one, content[21:51]), (other, content[51:58])):
        start = int(buffer.split(";")[0])
        assert start % ALIGNMENT_BYTES == 0
        assert moved[start : start + len(old)] == old
    assert sorted(f.name for f in tmp_path.iterdir()) == ["model.bin", "model.onnx"]


def test_empty_packed_buffers_are_dropped_in_alignment(tmp_path: Path) -> None:
    """The runtime would take an empty buffer for the whole file: the weights stay, their packed form goes, and that of
    other weights does not.
    """
    (tmp_path / "model.bin").write_bytes(bytes(range(100)))
    external(tmp_path / "model.onnx", offset="0", length="16", prepacked_0="Q|16;0;0|16;30;7", prepacked_1="K|50;20;9")
    align(tmp_path / "model.onnx", tmp_path / "model.bin")
    expected = {"location": "model.bin", "offset": "0", "length": "16", "prepacked_1": "K|64;20;9"}
    assert entries_of(tmp_path / "model.onnx") == expected
    assert (tmp_path / "model.bin").read_bytes()[64:84] == bytes(range(50, 70))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "90", "length": "16"},
        {"offset": "-1", "length": "16"},
        {"offset": "0", "length": "-1"},
        {"offset": "x", "length": "1"},
        {"offset": "0", "length": "4", "prepacked_0": "K|0;400;1"},
        {"offset": "0", "length": "4", "prepacked_0": "K|a;b;c"},
    ],
)
def test_alignment_of_invalid_offsets_is_refused(tmp_path: Path, entries: dict[str, str]) -> None:
    """Better no prepared form than one that reads elsewhere; the caller must not use the files."""
    (tmp_path / "model.bin").write_bytes(b"x" * 100)
    external(tmp_path / "model.onnx", **entries)
    with pytest.raises(ValueError, match=r"lie outside|invalid literal"):
        align(tmp_path / "model.onnx", tmp_path / "model.bin")


def test_alignment_of_a_model_without_weights_changes_nothing(tmp_path: Path) -> None:
    """No weights file, or an empty one."""
    model, weights = tmp_path / "model.onnx", tmp_path / "model.bin"
    external(model, offset="0", length="4")
    before = model.read_bytes()
    align(model, weights)
    weights.touch()
    align(model, weights)
    assert model.read_bytes() == before
