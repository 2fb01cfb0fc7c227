"""Steps and states: one loop offline, the same pieces online; scores add up."""

import numpy as np
import pytest

from appliance.domain.catalogue import StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadTensor
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded, Score, Target, next_state, run_steps, step_inputs, with_constants, zero_state
from appliance.tasks.datatypes import DTYPES, cast, dtype_of, word_of

SPEC = TaskSpec(state=(StateSpec("state", "stateN", (2, -1, 3)),), constants={"sr": 16000.0, "share": 0.5})


def running_sum(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A model with a memory: adds its input to its state."""
    total = inputs["state"] + inputs["x"]
    return {"y": total.sum(), "stateN": total}


def test_model_state_is_carried_from_step_to_step() -> None:
    """Zeros at first, then each output's state feeds the next step; the last one comes back for the next request."""
    decoded = Decoded([{"x": np.float32(value) * np.ones(1, np.float32)} for value in (1, 2, 3)])
    outputs, state = run_steps(decoded, SPEC, running_sum)
    assert [float(step["y"]) for step in outputs] == [6, 18, 36]
    again, _ = run_steps(decoded, SPEC, running_sum, state)
    assert float(again[0]["y"]) == 42
    assert state["state"].shape == (2, 1, 3)


def test_online_steps_equal_the_offline_loop() -> None:
    """`step_inputs` and `next_state` one by one give what `run_steps` gives."""
    decoded = Decoded([{"x": np.full(1, value, np.float32)} for value in (4, 5)])
    state: dict[str, np.ndarray] = {}
    found = []
    for step in decoded.steps:
        outputs = running_sum(step_inputs(step, SPEC, state))
        state = next_state(outputs, SPEC)
        found.append(float(outputs["y"]))
    assert found == [float(step["y"]) for step in run_steps(decoded, SPEC, running_sum)[0]]


def test_model_constants_are_scalars_of_the_declared_type() -> None:
    """By the graph's word where there is one, else whole numbers as int64 and others as float32."""
    inputs = step_inputs({}, SPEC, {})
    assert (str(inputs["sr"].dtype), inputs["sr"].shape, int(inputs["sr"])) == ("int64", (), 16000)
    assert (str(inputs["share"].dtype), float(inputs["share"])) == ("float32", 0.5)
    target = Target((TensorSpec("sr", "INT32", (1,)), TensorSpec("x", "FP32", (1,))), ())
    step = with_constants({}, SPEC, target)
    assert (list(step), str(step["sr"].dtype), step["sr"].tolist()) == (["sr"], "int32", [16000])
    assert step_inputs(step, SPEC, {})["sr"] is step["sr"]


def test_scores_add_up_by_weight() -> None:
    """Sums over a set are weighted, bounded, and an empty one is whole."""
    total = Score(1.0, 1.0, "m") + Score(0.0, 3.0, "m")
    assert (total.value, total.metric) == (0.25, "m")
    assert Score(0.0, 0.0, "m").value == 1.0
    assert Score(1.0000001, 1.0, "m").value == 1.0


def test_task_registry_has_a_task_for_every_kind() -> None:
    assert {kind: task.kind for kind, task in TASKS.items()} == {kind: kind for kind in TaskKind}


@pytest.mark.parametrize("word", DTYPES)
def test_protocol_datatype_survives_conversion_to_numpy(word: str) -> None:
    assert word_of(dtype_of(word)) == word
    assert zero_state(StateSpec("a", "b", (-1, 2), word)).dtype == dtype_of(word)


def test_datatype_cast_saturates() -> None:
    """Numbers beyond an integer type's range stop at its ends instead of wrapping round."""
    assert cast(np.array([-1, 300]), "UINT8").tolist() == [0, 255]
    assert cast(np.array([-1.5, 300.0, np.nan]), "UINT8").tolist() == [0, 255, 0]
    assert cast(np.array([-5], np.int8), "UINT64").tolist() == [0]
    assert cast(np.array([2**64 - 1], np.uint64), "INT64").tolist() == [2**63 - 1]
    assert cast(np.array([1e30]), "INT64")[0] > 2**62
    assert cast(np.array([1e300]), "FP32").tolist() == [np.inf]
    assert cast(np.array([0, 2]), "BOOL").tolist() == [False, True]
    with pytest.raises(BadTensor, match="BF16"):
        dtype_of("BF16")
