"""Networks that run on some values only: which values trial runs take, and that the import learns them."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from appliance.domain.catalogue import DefaultValue, TaskSpec
from appliance.domain.errors import BadModel
from appliance.modelstore.stages.feeds import synthetic
from appliance.modelstore.stages.trial_inputs import sampled, trial_inputs
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected
from tests.present import present

RESHAPE = "float[2,3,4] x, int64[3] shape", "y = Reshape(x, shape)", "float[A,B,C] y"
RESIZED = "float[1,1,4,4] x, float[4] scales", "y = Resize(x, , scales)", "float[A,B,C,D] y"
SPLIT = "float[6] x, int64[2] parts", "y, z = Split<axis=0>(x, parts)", "float[A] y"


def network(inputs: str, body: str, output: str) -> onnx.ModelProto:
    return networks.parsed(inputs, body, output=output)


@pytest.mark.parametrize("parts", [RESHAPE, RESIZED], ids=["shape", "scales"])
def test_network_that_reads_shape_from_input_is_inspected(parts: tuple[str, str, str], tmp_path: Path) -> None:
    """All later runs hold the same there, while data is drawn anew."""
    found = inspected(network(*parts), tmp_path)
    task = TaskSpec(index_limits=found.index_limits, examples=found.examples)
    one, other = (synthetic(found.inputs, found.axes, task, found.trial, seed) for seed in (1, 2))
    name = next(iter(found.examples))
    assert np.array_equal(one[name], other[name])
    assert not np.array_equal(one["x"], other["x"])


def test_network_without_fitting_values_asks_for_samples(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"a run failed.*add inputs of real use \(calibration/\)"):
        inspected(network(*SPLIT), tmp_path)


def test_sample_shows_values_that_network_takes(tmp_path: Path) -> None:
    sample = tmp_path / "sample.json"
    sample.write_text(json.dumps({"inputs": {"x": [0.5] * 6, "parts": [2, 4]}}))
    found = inspected(network(*SPLIT), tmp_path, calibration=(str(sample),))
    assert found.examples == {
        "x": DefaultValue("FP32", (6,), (0.5,) * 6),
        "parts": DefaultValue("INT64", (2,), (2, 4)),
    }


def test_sample_bounds_whole_numbers_of_data_input(tmp_path: Path) -> None:
    """What the graph tells of a table goes before."""
    graph = network("int64[N,4] ids, int64[N,2] kinds", "a = Cast<to=1>(ids) y = Relu(a)", "float[N,4] y").graph
    sample = tmp_path / "sample.json"
    sample.write_text(json.dumps({"inputs": {"ids": [[3, 9, 2, 0]], "kinds": [[-1, 5]]}}))
    seen = sampled(graph, TaskSpec(), [str(sample)], {})
    first = trial_inputs(graph, TaskSpec(), seen)[0]
    assert first.index_limits == {"ids": 10}
    assert first.examples == {}


@pytest.mark.parametrize("text", ["no json", '{"inputs": {"other": [1]}}'])
def test_sample_that_cannot_be_read_is_skipped(tmp_path: Path, text: str) -> None:
    """Then the next one counts."""
    graph = network(*SPLIT).graph
    bad, good = tmp_path / "0.json", tmp_path / "1.json"
    bad.write_text(text)
    good.write_text(json.dumps({"inputs": {"x": [0.5] * 6, "parts": [2, 4]}}))
    assert sampled(graph, TaskSpec(), [str(bad)], {}) is None
    found = present(sampled(graph, TaskSpec(), [str(bad), str(good)], {}))
    assert found.examples["parts"].values == (2, 4)


def test_sample_of_zeros_does_not_hide_row_dependence(tmp_path: Path) -> None:
    """A network that adds up its batch is not taken for one whose rows are independent."""
    sample = tmp_path / "sample.json"
    sample.write_text(json.dumps({"inputs": {"x": [[0, 0, 0, 0]]}}))
    summed = "int64[1,4] x", "f = Cast<to=1>(x) s = ReduceSum(f) y = Add(f, s)", "float[1,4] y"
    assert inspected(network(*summed), tmp_path, calibration=(str(sample),)).batch_max == 1


@pytest.mark.parametrize(
    "parts",
    [
        ("float[2,3,4] x, int64[3] s", "r = Reshape(x, s) y = MatMul(r, w)", "float[A,B,C] y"),
        ("float[2,3] x, int64[1] a, int64[1] b", "s = Concat<axis=0>(a, b) y = Reshape(x, s)", "float[A,B] y"),
        ("float[1] x, int64[0] s", "y = Reshape(x, s)", "float y"),
        ("float[2,3] x, uint8[2] u", "s = Cast<to=7>(u) y = Reshape(x, s)", "float[A,B] y"),
        ("float[1] x, int64[5] s", "y = Expand(x, s)", "float[A,B,C,D,E] y"),
    ],
    ids=["zero keeps an axis", "shape in two inputs", "to a scalar", "unsigned", "large if drawn"],
)
def test_network_that_needs_certain_values_runs_in_some_trial(parts: tuple[str, str, str], tmp_path: Path) -> None:
    weights = "float[4,2] w = {1,2,3,4,5,6,7,8}" if "w)" in parts[1] else ""
    inputs, body, output = parts
    assert inspected(networks.parsed(inputs, body, weights, output), tmp_path).outputs


def test_variant_is_tried_with_values_that_model_takes(tmp_path: Path) -> None:
    """A variant of a network that takes certain values only needs no sample of its own."""
    task = TaskSpec(examples={"parts": DefaultValue("INT64", (2,), (2, 4))})
    assert inspected(network(*SPLIT), tmp_path, task).examples == task.examples


def test_network_with_nameless_state_axis_runs_with_batch_there(tmp_path: Path) -> None:
    """A state (2, free, 4) needs as many rows as the input (free, 9 or more) has: its free axis is no length."""
    body = (
        "zero = Constant<value_int=0>() first = Gather(state, zero) pads = Constant<value_ints=[0,0,0,8]>() "
        'wide = Pad<mode="reflect">(x, pads) mean = ReduceMean<axes=[1]>(wide) y = Concat<axis=1>(first, mean)'
    )
    model = network("float[A,B] x, float[2,C,4] state", body, "float[D,E] y")
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    found = inspected(model, tmp_path)
    assert found.axes == {"x": ("batch", "sequence"), "state": ("", "batch", "")}
