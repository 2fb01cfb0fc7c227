"""What a build must compute on another kind of processor to serve there."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm, Reference
from appliance.runtime.processors.measuring.same import check_same
from appliance.runtime.processors.sessions import sessions_of

CASE = {"x": np.ones((1, 4), np.float32)}


def scaled(folder: Path, factor: float, output: str = "y", number: int = TensorProto.FLOAT) -> PreparedForm:
    """A network that multiplies, and answers in a number format."""
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    made = helper.make_tensor_value_info(output, number, [1, 4])
    weight = numpy_helper.from_array(np.array(factor, np.float32), "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Cast", ["m"], [output], to=number)]
    graph = helper.make_graph(nodes, "g", [given], [made], [weight])
    path = folder / f"{factor}-{output}-{number}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return PreparedForm(f"of {factor}", str(path), path.stat().st_size, optimised=False)


@pytest.mark.parametrize(
    ("found", "is_known", "is_as_good"),
    [(1.2, False, True), (1.15, False, False), (1.15, True, True), (0.8, True, True), (0.7, True, False)],
    ids=["the same", "apart", "apart, and nearer to the original", "as far on the other side", "further"],
)
def test_quantized_network_as_near_to_the_original_is_as_good(
    tmp_path: Path, found: float, is_known: bool, is_as_good: bool
) -> None:
    """The first kind computes 1.2 of what the network computes in full precision."""
    sessions = sessions_of("cpu", 1, 1)
    original = scaled(tmp_path, 1.0) if is_known else None
    reference = asdict(Reference(scaled(tmp_path, 1.2), 0.01, original))
    loaded = sessions.load(scaled(tmp_path, found))
    if is_as_good:
        check_same(sessions, loaded, reference, [CASE])
    else:
        with pytest.raises(RunFailed, match="differs by"):
            check_same(sessions, loaded, reference, [CASE])


@pytest.mark.parametrize(
    ("factor", "output"), [(1.0, "z"), (float("inf"), "y")], ids=["it has no such output", "it overflows"]
)
def test_quantized_network_without_a_comparable_original_is_refused(tmp_path: Path, factor: float, output: str) -> None:
    sessions = sessions_of("cpu", 1, 1)
    reference = asdict(Reference(scaled(tmp_path, 1.2), 0.01, scaled(tmp_path, factor, output)))
    with pytest.raises(RunFailed, match="differs by"):
        check_same(sessions, sessions.load(scaled(tmp_path, 1.15)), reference, [CASE])


@pytest.mark.parametrize(("found", "is_as_good"), [(1.15, True), (-500.0, False)])
def test_network_that_answers_in_16_bits_is_judged_by_values(tmp_path: Path, found: float, is_as_good: bool) -> None:
    """The original answers in 32."""
    sessions = sessions_of("cpu", 1, 1)
    half = TensorProto.FLOAT16
    reference = asdict(Reference(scaled(tmp_path, 1.2, number=half), 0.01, scaled(tmp_path, 1.0)))
    loaded = sessions.load(scaled(tmp_path, found, number=half))
    if is_as_good:
        check_same(sessions, loaded, reference, [CASE])
    else:
        with pytest.raises(RunFailed, match="differs by"):
            check_same(sessions, loaded, reference, [CASE])
