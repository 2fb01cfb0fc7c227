"""What is refused is refused in words: what it is, and what to do."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from appliance.confinement.limits import ChildLimits
from appliance.domain.catalogue import Precision, TaskSpec
from appliance.domain.errors import BadArchive, BadModel
from appliance.modelstore.orders import MakeOrder, UnpackOrder
from appliance.modelstore.sandbox import as_error
from appliance.modelstore.stages.archive import unpack
from appliance.modelstore.stages.running import Runner
from appliance.modelstore.stages.variants import make
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected, quiet, refusal

FLOATS = np.ones((2, 4), np.float32)
OF_LIBRARIES = re.compile(r"::|\(const |\w\.(cc|h|py):\d|was false|ONNXRuntimeError|Status Message|truth value|/onnx")
"""What no reason may hold."""


def parsed(inputs: str, body: str, stored: str = "", opset: int = 17) -> onnx.ModelProto:
    return networks.parsed(inputs, body, stored, "y", opset)


@pytest.mark.parametrize(
    ("inputs", "body", "stored", "feeds", "words"),
    [
        (
            "float[N,4] x",
            "y = Reshape(x, s)",
            "int64[2] s = {3,5}",
            {"x": FLOATS},
            "operator Reshape: The input tensor",
        ),
        ("float[N,M] x, float[K,L] z", "y = MatMul(x, z)", "", {"x": FLOATS, "z": FLOATS}, "MatMul: MatMul dimension"),
        ("float[N,M] x, float[K,L] z", "y = Add(x, z)", "", {"x": FLOATS, "z": FLOATS[:, :3]}, "Add: Attempting to"),
        ("float[N,4] x", "y = Squeeze(x, s)", "int64[1] s = {0}", {"x": FLOATS}, "operator Squeeze: Dimension"),
        (
            "float[N,4] x",
            "y = QuantizeLinear(x, s)",
            "float[3] s = {1,1,1}",
            {"x": FLOATS},
            "operator QuantizeLinear: For",
        ),
        ("float[N,M] x", "y = Tile(x, s)", "int64[1] s = {2}", {}, "operator Tile: 'Repeats'"),
        ("float[N,4] x", "y = Foo(x)", "", {}, "there is no operator Foo in operator set 17"),
        ("float[N,C,H,W] x", "y = Resize(x, , s)", "float[4] s = {1,1,0,1}", {}, "Scale value should be"),
        ("string[N] x", "y = Cast<to=1>(x)", "", {"x": np.array(["ab"], object)}, "operator Cast: a text is no number"),
    ],
)
def test_runtime_errors_are_reported_in_plain_words(
    inputs: str, body: str, stored: str, feeds: dict[str, np.ndarray], words: str
) -> None:
    """Without codes, conditions, and places and signatures of the runtime's source."""
    with pytest.raises(BadModel) as refused:
        Runner(parsed(inputs, body, stored).SerializeToString()).run(feeds)
    assert words in str(refused.value)
    assert not OF_LIBRARIES.search(str(refused.value))


def test_operator_set_too_new_is_refused_with_newest_known(tmp_path: Path) -> None:
    body = networks.relu().SerializeToString().replace(b"\x10\x11", b"\x10\x63")
    told = refusal(onnx.load_from_string(body), tmp_path)
    assert re.search(
        r"operator set 99 of ai.onnx is newer than this box knows: export the model for operator set \d\d or an", told
    )


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, 0, 99])
def test_tensor_types_that_cannot_be_sent_are_refused_by_name(side: str, kind: int, tmp_path: Path) -> None:
    made = parsed("float[N,4] x", "y = Identity(x)")
    getattr(made.graph, side)[0].type.tensor_type.elem_type = kind
    told = refusal(made, tmp_path)
    name = {"input": "x", "output": "y"}[side]
    assert f"{side} '{name}' is of " in told
    assert "export the model with another type" in told
    assert ("requests" if side == "input" else "answers") in told


@pytest.mark.parametrize("kind", ["sequence", "map", "optional"])
def test_outputs_that_are_no_tensors_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    made = parsed("float[N,4] x", "y = Identity(x)")
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    proto = {
        "sequence": lambda: helper.make_sequence_type_proto(tensor),
        "map": lambda: helper.make_map_type_proto(TensorProto.INT64, tensor),
        "optional": lambda: helper.make_optional_type_proto(tensor),
    }[kind]()
    made.graph.output[0].CopyFrom(helper.make_value_info("y", proto))
    told = refusal(made, tmp_path)
    assert f"output 'y' is a{'n' if kind == 'optional' else ''} {kind}" in told
    assert {"sequence": "SequenceAt", "map": "zipmap=False", "optional": "tensors"}[kind] in told


def zipped(*names: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return target.getvalue()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x1c\0\0\0TFL3" + bytes(99), "TensorFlow Lite.*tf2onnx"),
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5.*tf2onnx"),
        (b"\x80\x04\x95" + bytes(99), "pickle.*torch.onnx.export"),
        (zipped("net/data.pkl", "net/data/0"), "PyTorch.*torch.onnx.export"),
        (b"GGUF" + bytes(99), "GGUF.*ONNX"),
        (b'\x40\0\0\0\0\0\0\0{"weight":{"dtype":"F32"}}', "safetensors.*ONNX"),
        (b"\x08\0\0\0ORTM" + bytes(99), "ORT format.*ONNX"),
        (b"  <!DOCTYPE html><html>", "web page.*download"),
        (b"\x28\xb5\x2f\xfd" + bytes(99), "packed.*zstd.*unpack"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(99), "packed.*7z.*unpack"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS.*git lfs pull"),
        (b"\x1f\x8b\x08\x00" + bytes(99), "packed.*gunzip|archive is damaged"),
    ],
)
def test_files_of_other_formats_are_refused_by_name(body: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(body)

    def read() -> None:
        unpacked = unpack(UnpackOrder(str(tmp_path / "upload"), str(tmp_path / "in"), bytes_max=2**30), quiet)
        inspected(unpacked.model, tmp_path)

    with pytest.raises((BadModel, BadArchive)) as refused:
        read()
    assert re.search(words, str(refused.value)), refused.value


def test_unexpected_error_does_not_quote_library(tmp_path: Path) -> None:
    def mistaken() -> None:
        if np.ones(2) == 1:
            raise AssertionError

    with pytest.raises(ValueError, match="truth value") as caught:
        mistaken()
    told = str(as_error(caught.value, ChildLimits()))
    assert "the box does not know what to do with this file" in told
    assert "ValueError" in told
    assert not OF_LIBRARIES.search(told)


def test_reason_for_missing_precision_does_not_repeat_precision_name(tmp_path: Path) -> None:
    """The name is added where the reason is shown."""
    inspection = inspected(networks.relu(), tmp_path)
    made = make(MakeOrder(inspection, TaskSpec(), Precision.INT8, str(tmp_path / "made")), quiet)
    assert made.variants == ()
    assert made.reason.startswith("it has no MatMul")
