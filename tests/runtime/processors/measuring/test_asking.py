"""What kinds of processors take, and what becomes of the parts of a network there, in the measuring child."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from appliance.confinement.limits import ChildLimits
from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import MeasureCase, PreparedForm, ProcessorDescription, Reference
from appliance.runtime.processors.measuring.measure import ChildMeasure
from tests.contracts.conftest import KINDS
from tests.runtime.processors.refusing_child import NPU

pytestmark = pytest.mark.usefixtures("processes")

OTHERS = {"Det": ("cpu",), "Relu": ("cpu", "openvino"), "Nonsense": ()}
"""Operator → the kinds that take it."""


def processor(kind: str) -> ProcessorDescription:
    return ProcessorDescription(kind, kind, 1, 1, "host", "f")


def network(folder: Path, op_type: str, name: str | None = None) -> PreparedForm:
    """One node over matrices."""
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / f"{name or op_type}.onnx"
    onnx.save(made, path)
    return PreparedForm(name or op_type, str(path), path.stat().st_size, optimised=False)


CASE = MeasureCase(1, {"x": np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)})


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_kind_tells_which_operators_are_supported(kind: str, tmp_path: Path) -> None:
    """Each by itself, and in the order asked."""
    measure = ChildMeasure([processor(kind)], ChildLimits(wall_s=60, nice=0), tmp_path)
    forms = [network(tmp_path, op_type) for op_type in OTHERS]
    found = await measure.supported([form.path for form in forms], kind)
    assert found == tuple(kind in kinds for kinds in OTHERS.values())
    assert await measure.supported([], kind) == ()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_tried_part_has_figures_or_the_reason_of_a_difference(kind: str, tmp_path: Path) -> None:
    measure = ChildMeasure([processor(kind)], ChildLimits(wall_s=60, nice=0), tmp_path)
    form, other = replace(network(tmp_path, "Relu"), kind=kind), network(tmp_path, "Abs")
    same, different = (Reference(replace(one, kind="cpu"), 1e-3) for one in (form, other))
    good, alone, bad = await measure.tried([(form, CASE, same), (form, CASE, None), (form, CASE, different)], kind)
    assert (good.reason, alone.reason) == ("", "")
    assert good.peak_bytes >= good.resident_bytes >= 0
    assert "differs" in bad.reason


@pytest.mark.anyio
async def test_forms_of_many_parts_are_made_in_one_process(tmp_path: Path) -> None:
    """A part that has no form keeps no other from its own; each form is in a folder of its own."""
    program = "tests.runtime.processors.refusing_child"
    measure = ChildMeasure([NPU], ChildLimits(wall_s=60, nice=0), tmp_path, program)
    pairs = []
    for number, op_type in enumerate(("Relu", "Softmax", "Abs")):
        form, target = network(tmp_path, op_type, f"u{number}"), tmp_path / str(number)
        target.mkdir()
        pairs.append((form.path, str(target)))
    first, none, last = await measure.prepare_all(pairs, "npu")
    assert none is None
    for made, (_source, folder) in zip((first, last), (pairs[0], pairs[2]), strict=True):
        assert made is not None
        assert (made.kind, made.optimised, str(Path(made.path).parent)) == ("npu", True, folder)
    assert (await measure.tried([(first, CASE, None)], "npu"))[0].reason == "" if first else False


@pytest.mark.anyio
async def test_operators_that_end_the_measuring_child_are_unsupported(tmp_path: Path) -> None:
    """It is not known which of them did."""
    measure = ChildMeasure(
        [processor("cpu")], ChildLimits(wall_s=60, nice=0), tmp_path, "tests.runtime.processors.crashing_child"
    )
    form = network(tmp_path, "Relu")
    assert await measure.supported([form.path, form.path], "cpu") == (False, False)
    with pytest.raises(LoadFailed):
        await measure.tried([(form, CASE, None)], "cpu")
