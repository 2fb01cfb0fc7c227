"""Hostile files over HTTP against a real box: each is refused with a reason, and the box serves on as if nothing had
come.
"""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from appliance.client import Client
from appliance.domain.errors import ApplianceError
from tests import toys
from tests.e2e.server import Server, running_server

pytestmark = [pytest.mark.nightly("hostile uploads to a server"), pytest.mark.usefixtures("processes", "ports")]

GIB = 2**30


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A box that gives children 2 GiB and a first look of 20 s, with one good model in it."""
    folder = tmp_path_factory.mktemp("hostile")
    limits = {
        "APPLIANCE_IMPORTS__CHILD_MEMORY_BYTES": str(2 * GIB),
        "APPLIANCE_IMPORTS__INSPECT_WALL_S": "20",
        "APPLIANCE_IMPORTS__FILE_BYTES_MAX": str(256 * 2**20),
    }
    with running_server(folder / "state", **limits) as server, server.client() as client:
        job = client.upload_model(toys.tiny_add(folder / "good.onnx"), "good", "tensor")
        assert list(client.follow_job(job.id))[-1].state == "done"
        yield server


def _garbage(folder: Path) -> Path:
    path = folder / "garbage.onnx"
    path.write_bytes(np.random.default_rng(1).bytes(50_000))
    return path


def _truncated(folder: Path) -> Path:
    path = toys.conv_net(folder / "whole.onnx", 1)
    path.write_bytes(path.read_bytes()[:-70_000])
    return path


def _empty(folder: Path) -> Path:
    path = folder / "empty.onnx"
    path.write_bytes(b"")
    return path


def _huge_shape(folder: Path) -> Path:
    """A few bytes that ask for a tensor of 10 GB."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [10 * GIB // 4])
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    return _written(folder / "huge.onnx", helper.make_graph([node], "huge", [], [output], [shape]))


def _foreign_operator(folder: Path) -> Path:
    node = helper.make_node("Steal", ["x"], ["y"], domain="com.evil")
    return _written(folder / "foreign.onnx", _unary(node), [helper.make_opsetid("com.evil", 1)])


def _outside_data(folder: Path) -> Path:
    """External data that points at a file of the box."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "../../../../etc/passwd"), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return _written(folder / "outside.onnx", _unary(node, [weight]))


def _endless_loop(folder: Path) -> Path:
    """A Loop without a bound whose condition stays true."""
    condition = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    step = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    again = helper.make_tensor_value_info("again", TensorProto.BOOL, [])
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["again"])], "body", [step, condition], [again])
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("Loop", ["", "true"], [], body=body),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    return _written(folder / "endless.onnx", helper.make_graph(nodes, "endless", [x], [y], [true]))


def _zip_bomb(folder: Path) -> Path:
    path = folder / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.onnx", bytes(600 * 2**20))
    return path


def _climbing_tar(folder: Path) -> Path:
    path = folder / "climbing.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("../../escaped.onnx")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    return path


def _linked_tar(folder: Path) -> Path:
    path = folder / "linked.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("model.onnx")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    return path


def _unary(node: onnx.NodeProto, weights: list[TensorProto] | None = None) -> onnx.GraphProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    return helper.make_graph([node], "unary", [x], [y], weights or [])


def _written(path: Path, graph: onnx.GraphProto, more: list[onnx.OperatorSetIdProto] | None = None) -> Path:
    opsets = [helper.make_opsetid("", 17), *(more or [])]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


HOSTILE = (
    _garbage,
    _truncated,
    _empty,
    _huge_shape,
    _foreign_operator,
    _outside_data,
    _endless_loop,
    _zip_bomb,
    _climbing_tar,
    _linked_tar,
)


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: str(make.__name__).strip("_"))
def test_hostile_upload_is_refused_with_a_reason(box: Server, tmp_path: Path, make: FunctionType) -> None:
    """The upload or its job fails with a sentence; no model of that name is left, and the good model answers."""
    name = make.__name__.strip("_").replace("_", "-")
    path = make(tmp_path)
    with box.client() as client:
        reason = _refusal(client, path, name)
        assert len(reason) > 10, reason
        assert "Traceback" not in reason, reason
        assert str(box.state_dir) not in reason, reason
        assert name not in {model.name for model in client.models()}
        answer = client.predict("good", {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}})
        assert answer.model_dump()["outputs"]["SUM"]["data"] == [2, 3, 4, 5]
    assert not (box.state_dir.parent / "escaped.onnx").exists()
    assert list((box.state_dir / "scratch").iterdir()) == []


def _refusal(client: Client, path: Path, name: str) -> str:
    try:
        job = client.upload_model(path, name, "tensor")
    except ApplianceError as error:
        return str(error)
    last = list(client.follow_job(job.id))[-1]
    assert last.state == "failed", last
    return last.error
