"""`appliance plan` on problems of kind `selection`, and what the box records of its choices."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import Application, Prefer
from appliance.lab.plan import plan_one
from appliance.lab.problems.base import Malformed
from appliance.lab.problems.selection import Candidate
from appliance.policies.selection import SELECTION_POLICIES
from appliance.policies.selection.base import SelectionInput
from appliance.runtime.decisions.choices import choice

PROBLEM: dict[str, Any] = {
    "kind": "selection",
    "prefer": "balanced",
    "loss_max": 1.0,
    "variants": [
        {"name": "fp32", "accuracy": 90.0, "loss": 0.0, "p50_ms": 20.0, "p99_ms": 22.0, "size_mb": 100.0},
        {"name": "int8", "accuracy": 89.5, "loss": 0.8, "p50_ms": 8.0, "p99_ms": 9.0, "size_mb": 25.0},
        {"name": "int4", "accuracy": 80.0, "loss": 11.0, "p50_ms": 5.0, "p99_ms": 6.0, "size_mb": 13.0},
    ],
}

maybe = st.none() | st.floats(0, 100)
candidates = st.builds(
    Candidate,
    st.sampled_from("abcdef"),
    st.floats(0, 100),
    maybe,
    maybe,
    maybe,
    st.integers(1, 10**9),
)


@pytest.mark.parametrize(
    ("changes", "order"),
    [
        ({}, ["int8", "fp32", "int4"]),
        ({"loss_max": 0.5}, ["fp32", "int8", "int4"]),
        ({"prefer": "accuracy"}, ["fp32", "int8", "int4"]),
        ({"prefer": "speed"}, ["int4", "int8", "fp32"]),
        ({"prefer": "accuracy", "latency_slo_ms": 10.0}, ["int8", "int4", "fp32"]),
        ({"accuracy_min": 90.0}, ["fp32"]),
    ],
)
def test_selection_problem_is_answered_as_worked_by_hand(changes: dict[str, Any], order: list[str]) -> None:
    """`balanced` takes the fastest of those that lose no more than `loss_max`; what breaks the SLO comes last."""
    answer: Any = plan_one({**PROBLEM, **changes})
    assert answer["order"] == order
    assert answer["outcome"] == order[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "magic"}, "policy: 'magic' is not one of: by-profile, most-accurate"),
        ({"prefer": "luck"}, "prefer: 'luck' is not one of: balanced, accuracy, speed"),
        ({"variants": [PROBLEM["variants"][0]] * 2}, "variants[1].name: 'fp32' is there twice"),
    ],
)
def test_malformed_selection_problem_is_refused_by_its_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed, match=message.replace("[", r"\[")):
        plan_one({**PROBLEM, **changes})


@given(
    st.lists(candidates, min_size=1, unique_by=lambda one: one.name),
    st.none() | st.floats(1, 100),
    st.floats(0, 50),
    st.sampled_from(Prefer),
    st.floats(0, 10),
    st.sampled_from(sorted(SELECTION_POLICIES)),
)
def test_recorded_selection_is_reproduced(
    given_candidates: list[Candidate],
    slo_ms: float | None,
    accuracy_min: float,
    prefer: Prefer,
    loss_max: float,
    policy: str,
) -> None:
    """What the log keeps is all that the policy was asked."""
    problem = SelectionInput(given_candidates, slo_ms, accuracy_min, prefer, loss_max)
    plan = SELECTION_POLICIES[policy]().order(problem)
    recorded: Any = choice(Application("t/a", "t", "a", "t/m"), problem, plan, "before", policy)
    answer = plan_one(recorded["problem"])
    answer.pop("elapsed_ms")
    assert answer == recorded["answer"]
