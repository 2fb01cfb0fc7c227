"""Inputs with a default: which are optional, and what becomes of the others."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from appliance.domain.catalogue import DefaultValue, StateSpec, TaskSpec
from appliance.modelstore.orders import ReviewOrder
from appliance.modelstore.stages import rows
from appliance.modelstore.stages.feeds import synthetic
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected

SCALE = {"scale": np.array([2], np.float32)}
SHAPE = ("n", 4)


def scaled(ir: int = 8, **defaults: np.ndarray) -> onnx.ModelProto:
    """`y` = `x` times `scale`."""
    stored = SCALE | defaults
    inputs = {"x": SHAPE} | {name: array.shape for name, array in stored.items()}
    return networks.model("y = Mul(x, scale)", inputs, {"y": SHAPE}, stored, ir=ir)


def test_inspection_of_input_with_default_keeps_input_and_default(tmp_path: Path) -> None:
    """The graph has a plain input, and the default is known beside it. Batches are as they were."""
    found = inspected(scaled(), tmp_path)
    assert [one.name for one in found.inputs] == ["x", "scale"]
    assert found.defaults == {"scale": DefaultValue("FP32", (1,), (2.0,))}
    assert (found.axes["scale"], found.batch_max) == (("",), 8)
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(networks.run(found.model, x=x, scale=np.array([3], np.float32))[0], 3 * x)
    task = TaskSpec(defaults=found.defaults)
    drawn = synthetic(found.inputs, found.axes, task, found.trial)
    np.testing.assert_array_equal(drawn["scale"], SCALE["scale"])
    review = ReviewOrder(found.model, found.inputs, found.axes, task, found.trial)
    assert rows.dependence(review) == "input scale has a default"


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("INT64", np.array([2**62], np.int64)), ("BOOL", np.array([True])), ("FP64", np.array([np.inf]))],
)
def test_default_of_any_type_is_kept(datatype: str, value: np.ndarray, tmp_path: Path) -> None:
    made = scaled(unused=value.astype(np.float32))
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    made.graph.input[2].type.tensor_type.elem_type = kind
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(value, "unused"))
    assert inspected(made, tmp_path).defaults["unused"] == DefaultValue(datatype, (1,), tuple(value.tolist()))


def test_weights_listed_as_inputs_stay_constants(tmp_path: Path) -> None:
    """Some exporters list all that is stored among the inputs, whatever the IR."""
    made = networks.classifier()
    made.graph.input.extend(
        helper.make_tensor_value_info(one.name, one.data_type, list(one.dims)) for one in made.graph.initializer
    )
    found = inspected(made, tmp_path)
    assert ([one.name for one in found.inputs], found.defaults) == (["x"], {})


def test_inputs_of_old_representations_have_no_defaults(tmp_path: Path) -> None:
    """Before IR 4 all that was stored had to be an input."""
    found = inspected(scaled(ir=3), tmp_path)
    assert ([one.name for one in found.inputs], found.defaults) == (["x"], {})


def test_stated_state_with_default_begins_as_state(tmp_path: Path) -> None:
    """What the tenant says of an input wins over its default."""
    task = TaskSpec(state=(StateSpec("scale", "y", (1,)),))
    found = inspected(scaled(), tmp_path, task)
    assert ([one.name for one in found.inputs], found.defaults) == (["x", "scale"], {})


def test_default_with_row_for_each_item_is_repeated(tmp_path: Path) -> None:
    """An axis that is named like the batch counts items in trial runs, too."""
    made = scaled()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((1, 4), 2, np.float32), "scale"))
    made.graph.input[1].CopyFrom(helper.make_tensor_value_info("scale", networks.FLOAT, SHAPE))
    found = inspected(made, tmp_path)
    assert (found.axes["scale"], found.batch_max) == (("batch", ""), 8)
    order = ReviewOrder(found.model, found.inputs, found.axes, TaskSpec(defaults=found.defaults), found.trial)
    assert rows.dependence(order) == ""
