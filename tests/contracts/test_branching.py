"""Networks whose weights stand in the branches of a condition are loaded, in the service and in a guard."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxSessions
from tests.fakes.forms import prepared_form

SIZE = 64


def _branch(factor: float) -> onnx.GraphProto:
    """`y` = `x` × weights of its own; several of them, too large to stay in the graph of a prepared form."""
    weights = numpy_helper.from_array(np.eye(SIZE, dtype=np.float32) * factor, f"w{factor:g}")
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SIZE])
    return helper.make_graph([helper.make_node("MatMul", ["x", weights.name], ["y"])], "branch", [], [value], [weights])


@pytest.fixture(params=["cpu", "cpu in a guard"])
def home(request: pytest.FixtureRequest, processes: None) -> str:
    """Of the kinds of processors, the one whose prepared forms have their weights beside the graph."""
    return str(request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["is_more"]),
            helper.make_node("If", ["is_more"], ["y"], then_branch=_branch(2.0), else_branch=_branch(3.0)),
        ],
        "branching",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SIZE])],
        [numpy_helper.from_array(np.array(0, np.float32), "zero")],
    )
    path = tmp_path / "branching.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.anyio
async def test_prepared_form_with_branches_loads_sleeps_and_computes(
    processor: Any, home: str, plain: Path, tmp_path: Path
) -> None:
    """Both branches, also after sleeping; twice, for what was put into a guard's folder goes with its build."""
    folder = tmp_path / "form"
    folder.mkdir()
    assert OnnxSessions(1).prepare(plain, folder)
    assert (folder / "model.bin").stat().st_size >= 2 * SIZE * SIZE * 4
    form = prepared_form("branching", folder)
    form = replace(form, guarded_for="harbour" if "guard" in home else None)
    for _ in range(2):
        handle = await processor.load(form)
        for value, factor in ((1.0, 2.0), (-1.0, 3.0)):
            result = await processor.run(handle, {"x": np.full((1, SIZE), value, np.float32)}, None)
            np.testing.assert_array_equal(result["y"], np.full((1, SIZE), value * factor, np.float32))
            if processor.can_sleep(handle):
                await processor.sleep(handle)
                await processor.wake(handle)
        await processor.unload(handle)


@pytest.mark.anyio
async def test_failed_load_leaves_no_files_behind(processor: Any, home: str, tmp_path: Path) -> None:
    """Not in the folder of a guard either: a form that is asked for again and again would fill it."""
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"garbage")
    form = PreparedForm("broken", str(broken), 7, optimised=False, guarded_for="harbour" if "guard" in home else None)
    for _ in range(2):
        with pytest.raises(LoadFailed):
            await processor.load(form)
    assert not _left(tmp_path / "scratch")


def _left(scratch: Path) -> list[Path]:
    """What was put into folders of guards."""
    return list(scratch.glob("*/tmp*"))
