"""`appliance plan` on what the box takes on: kinds `admission`, `drop` and `budget`, by cases computed by hand."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.lab.plan import plan_one
from appliance.lab.problems.base import Malformed
from appliance.policies.limits.budget import STEP_BYTES, BudgetInput, budget
from appliance.runtime.decisions.limits import budget_decision

BUDGET: dict[str, Any] = {
    "kind": "budget",
    "before_mb": 100 * 1.048576,
    "most_mb": 160 * 1.048576,
    "reserve_mb": 20 * 1.048576,
    "spare_mb": [200 * 1.048576, 150 * 1.048576, 140 * 1.048576],
}
"""100 of 160 MiB, 20 stay free, forecasts of 200, 150 and 140: in steps of 16 they allow 160, 128 and 112."""


@pytest.mark.parametrize(
    ("figures", "outcome"),
    [
        ({}, "admitted"),
        ({"running": 3, "concurrent_requests": 4}, "admitted"),
        ({"running": 4, "concurrent_requests": 4}, "refused"),
        ({"running": 4}, "admitted"),
        ({"tokens": 1.0}, "admitted"),
        ({"tokens": 0.99}, "refused"),
        ({"waiting": 256, "queue_len_max": 256}, "refused"),
        ({"expected_ms": 450.0, "allowed_ms": 450.0}, "admitted"),
        ({"expected_ms": 450.1, "allowed_ms": 450.0}, "refused"),
    ],
)
def test_admission_compares_each_figure_with_its_bound(figures: dict[str, float], outcome: str) -> None:
    assert plan_one({"kind": "admission", **figures})["outcome"] == outcome


@pytest.mark.parametrize(
    ("waited_ms", "expected_ms", "outcome"),
    [(80.0, 20.0, "kept"), (80.1, 20.0, "dropped"), (100.0, None, "kept"), (101.0, None, "dropped")],
)
def test_drop_compares_wait_and_run_with_deadline(waited_ms: float, expected_ms: float | None, outcome: str) -> None:
    problem = {"kind": "drop", "waited_ms": waited_ms, "expected_ms": expected_ms, "deadline_ms": 100.0}
    assert plan_one(problem)["outcome"] == outcome


@pytest.mark.parametrize(
    ("changes", "outcome", "mebibytes"),
    [
        ({}, "grown", 112),
        ({"may_grow": False}, "kept", 100),
        ({"before_mb": 128 * 1.048576}, "shrunk", 112),
        ({"spare_mb": [1.0]}, "shrunk", 0),
        ({"stalled_used_mb": 96 * 1.048576}, "shrunk", 80),
        ({"stalled_used_mb": 32 * 1.048576}, "shrunk", 40),
    ],
    ids=["by the least forecast", "not yet", "at once", "nothing spare", "a step after a stall", "a quarter stays"],
)
def test_budget_follows_forecasts_and_stalls(changes: dict[str, Any], outcome: str, mebibytes: int) -> None:
    answer: Any = plan_one({**BUDGET, **changes})
    assert (answer["outcome"], round(answer["budget_mb"] / 1.048576, 6)) == (outcome, mebibytes)


@given(
    st.builds(
        BudgetInput,
        st.integers(0, 2**36),
        st.integers(0, 2**36),
        st.integers(0, 2**32),
        st.lists(st.integers(0, 2**36), min_size=1, max_size=8).map(tuple),
        st.booleans(),
        st.none() | st.integers(0, 2**36),
    )
)
def test_recorded_budget_decision_is_reproduced(problem: BudgetInput) -> None:
    """Through JSON. A budget is never larger than the most, or than the last forecast allows."""
    plan = budget(problem)
    decision: Any = json.loads(json.dumps(budget_decision(problem, plan)))
    again = plan_one(decision["problem"])
    again.pop("elapsed_ms")
    assert again == decision["answer"]
    if plan.budget != problem.before and problem.stalled_used is None:
        assert plan.budget <= problem.most
        assert plan.budget <= max(0, problem.spare[-1] - problem.reserve)
        assert plan.budget % STEP_BYTES == 0 or plan.budget == problem.most


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ({"kind": "drop", "waited_ms": 1.0}, "deadline_ms: is missing"),
        ({"kind": "admission", "running": -1}, "running: must be >= 0"),
        ({**BUDGET, "spare_mb": []}, "spare_mb: must have at least 1"),
    ],
)
def test_malformed_limit_problem_is_refused_by_its_key(problem: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        plan_one(problem)
