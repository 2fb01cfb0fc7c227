"""What a build must compute on another kind of processor to serve there."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm, Reference
from appliance.runtime.processors.measuring.same import check_same
from appliance.runtime.processors.sessions import sessions_of
from tests.modelstore import networks

CASE = {"x": np.ones((1, 4), np.float32)}


def scaled(folder: Path, factor: float, output: str = "y", number: int = TensorProto.FLOAT) -> PreparedForm:
    """A network that multiplies, and answers in a number format."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Cast", ["m"], [output], to=number)]
    weights = {"w": np.array(factor, np.float32)}
    made = networks.model(nodes, {"x": [1, 4]}, {output: [1, 4]}, weights, types={output: number})
    path = networks.write(made, folder, f"{factor}-{output}-{number}.onnx")
    return PreparedForm(f"of {factor}", path, Path(path).stat().st_size, optimised=False)


def assert_as_good(found: PreparedForm, reference: Reference, is_as_good: bool) -> None:
    """A build serves where it computes as the reference does, and is refused else."""
    sessions = sessions_of("cpu", 1, 1)
    with nullcontext() if is_as_good else pytest.raises(RunFailed, match="differs by"):
        check_same(sessions, sessions.load(found), asdict(reference), [CASE])


@pytest.mark.parametrize(
    ("found", "is_known", "is_as_good"),
    [(1.2, False, True), (1.15, False, False), (1.15, True, True), (0.8, True, True), (0.7, True, False)],
    ids=["the same", "apart", "apart, and nearer to the original", "as far on the other side", "further"],
)
def test_quantized_network_as_near_to_the_original_is_as_good(
    tmp_path: Path, found: float, is_known: bool, is_as_good: bool
) -> None:
    """The first kind computes 1.2 of what the network computes in full precision."""
    original = scaled(tmp_path, 1.0) if is_known else None
    assert_as_good(scaled(tmp_path, found), Reference(scaled(tmp_path, 1.2), 0.01, original), is_as_good)


@pytest.mark.parametrize(
    ("factor", "output"), [(1.0, "z"), (float("inf"), "y")], ids=["it has no such output", "it overflows"]
)
def test_quantized_network_without_a_comparable_original_is_refused(tmp_path: Path, factor: float, output: str) -> None:
    reference = Reference(scaled(tmp_path, 1.2), 0.01, scaled(tmp_path, factor, output))
    assert_as_good(scaled(tmp_path, 1.15), reference, is_as_good=False)


@pytest.mark.parametrize(("found", "is_as_good"), [(1.15, True), (-500.0, False)])
def test_network_that_answers_in_16_bits_is_judged_by_values(tmp_path: Path, found: float, is_as_good: bool) -> None:
    """The original answers in 32."""
    half = TensorProto.FLOAT16
    reference = Reference(scaled(tmp_path, 1.2, number=half), 0.01, scaled(tmp_path, 1.0))
    assert_as_good(scaled(tmp_path, found, number=half), reference, is_as_good)
