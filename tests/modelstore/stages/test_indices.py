"""Whole numbers that index tables: limits that are read off the graph, and trial runs that keep to them."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from appliance.domain.catalogue import TaskSpec
from appliance.modelstore.stages.feeds import synthetic
from appliance.modelstore.stages.indices import index_limits, smallest_limits
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import inspected

TABLE = "float[7,2] t = {0,1,2,3,4,5,6,7,8,9,10,11,12,13}"


def network(inputs: str, body: str, constants: str = TABLE, output: str = "float[N] y") -> onnx.ModelProto:
    return networks.parsed(inputs, body, constants, output)


@pytest.mark.parametrize(
    ("inputs", "body", "constants", "limits"),
    [
        ("int64[N] x", "y = Gather(t, x)", TABLE, {"x": 7}),
        ("int64[N] x", "y = Gather<axis=-1>(t, x)", TABLE, {"x": 2}),
        (
            "int32[N,3] x",
            "a = Cast<to=7>(x) b = Unsqueeze(a, o) y = Gather(t, b)",
            TABLE + ", int64[1] o = {1}",
            {"x": 7},
        ),
        ("int64[N] x, int64[N] z", "a = Gather(t, x) b = Gather<axis=1>(t, x) y = Add(a, a)", TABLE, {"x": 2}),
        ("int64[N,2] x", "y = GatherND(t, x)", TABLE, {"x": 2}),
        ("int64[N,1] a, int64[N,1] b", "x = Concat<axis=1>(a, b) y = GatherND(t, x)", TABLE, {"a": 2, "b": 2}),
        ("int64[7,2] x", "y = GatherElements(t, x)", TABLE, {"x": 7}),
        ("int64[N] x", "y = OneHot(x, d, v)", "int64 d = {5}, float[2] v = {0,1}", {"x": 5}),
        ("float[N,4] f, int64[M] x", "y = Gather(f, x)", TABLE, {}),
        ("float[N,4] f, int64[M] x", "y = Gather<axis=1>(f, x)", TABLE, {"x": 4}),
        ("int64[N] x, int64 d", "v = Constant<value = float[2] {0,1}>() y = OneHot(x, d, v)", TABLE, {}),
        ("int64[N] x", "a = Cast<to=1>(x) y = Relu(a)", TABLE, {}),
        ("float[N] x", "y = Relu(x)", TABLE, {}),
    ],
)
def test_index_limits_are_read_off_graph(inputs: str, body: str, constants: str, limits: dict[str, int]) -> None:
    """The smallest table counts; of a table of unknown length, or where nothing is indexed, nothing is known."""
    assert index_limits(network(inputs, body, constants).graph) == limits


def test_smallest_index_limits_fit_every_table() -> None:
    graph = network("float[N,4] f, int64[M] x, int64[K] z", "a = Gather(f, x) y = Gather(t, z)").graph
    assert smallest_limits(graph, index_limits(graph)) == {"x": 1, "z": 7}


@pytest.mark.parametrize(
    ("inputs", "body", "output"),
    [
        ("int64[N] x", "y = Gather(t, x)", "float[N,2] y"),
        ("float[N,4] f, int64[2,M] x", "y = Gather(f, x)", "float[2,M,4] y"),
    ],
    ids=["days of the week", "edges of a graph"],
)
def test_network_that_indexes_small_table_is_imported(inputs: str, body: str, output: str, tmp_path: Path) -> None:
    """Trial runs take numbers that fit, and so do all later ones."""
    found = inspected(network(inputs, body, output=output), tmp_path)
    task = TaskSpec(index_limits=found.index_limits)
    drawn = synthetic(found.inputs, found.axes, task, found.trial, seed=3)["x"]
    assert drawn.min() >= 0
    assert drawn.max() < found.index_limits["x"]
