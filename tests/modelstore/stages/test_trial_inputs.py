"""Networks that run on some values only: which values trial runs take, and that the import learns them."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from appliance.domain.catalogue import DefaultValue, TaskSpec
from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Inspection, InspectOrder
from appliance.modelstore.stages.feeds import synthetic
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.trial_inputs import trial_inputs

RESHAPE = "float[2,3,4] x, int64[3] shape", "y = Reshape(x, shape)", "float[A,B,C] y"
RESIZED = "float[1,1,4,4] x, float[4] scales", "y = Resize(x, , scales)", "float[A,B,C,D] y"
SPLIT = "float[6] x, int64[2] parts", "y, z = Split<axis=0>(x, parts)", "float[A] y"


def network(inputs: str, body: str, output: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({output}) {{ {body} }}')


def inspected(folder: Path, parts: tuple[str, str, str], *calibration: str) -> Inspection:
    onnx.save(network(*parts), folder / "model.onnx")
    order = InspectOrder(str(folder / "model.onnx"), str(folder / "made"), calibration=calibration)
    return inspect(order, lambda share, words: None)


@pytest.mark.parametrize("parts", [RESHAPE, RESIZED], ids=["shape", "scales"])
def test_network_that_reads_a_shape_from_an_input_is_inspected(parts: tuple[str, str, str], tmp_path: Path) -> None:
    """And all later runs hold the same there, while data is drawn anew."""
    found = inspected(tmp_path, parts)
    task = TaskSpec(index_limits=found.index_limits, examples=found.examples)
    one, other = (synthetic(found.inputs, found.axes, task, found.trial, seed) for seed in (1, 2))
    name = next(iter(found.examples))
    assert np.array_equal(one[name], other[name])
    assert not np.array_equal(one["x"], other["x"])


def test_network_without_fitting_values_asks_for_samples(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"a run failed.*add inputs of real use \(calibration/\)"):
        inspected(tmp_path, SPLIT)


def test_sample_shows_which_values_the_network_takes(tmp_path: Path) -> None:
    sample = tmp_path / "sample.json"
    sample.write_text(json.dumps({"inputs": {"x": [0.5] * 6, "parts": [2, 4]}}))
    found = inspected(tmp_path, SPLIT, str(sample))
    assert found.examples == {
        "x": DefaultValue("FP32", (6,), (0.5,) * 6),
        "parts": DefaultValue("INT64", (2,), (2, 4)),
    }


def test_sample_bounds_whole_numbers(tmp_path: Path) -> None:
    """Of an input that is data; what the graph tells of a table goes before."""
    graph = network("int64[N,4] ids, int64[N,2] kinds", "a = Cast<to=1>(ids) y = Relu(a)", "float[N,4] y").graph
    sample = tmp_path / "sample.json"
    sample.write_text(json.dumps({"inputs": {"ids": [[3, 9, 2, 0]], "kinds": [[-1, 5]]}}))
    first = trial_inputs(graph, TaskSpec(), str(sample), {})[0]
    assert first.index_limits == {"ids": 10}
    assert first.examples == {}


@pytest.mark.parametrize("text", ["no json", '{"inputs": {"other": [1]}}'])
def test_sample_that_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    graph = network(*RESHAPE).graph
    sample = tmp_path / "sample.json"
    sample.write_text(text)
    assert trial_inputs(graph, TaskSpec(), str(sample), {}) == trial_inputs(graph, TaskSpec(), None, {})
