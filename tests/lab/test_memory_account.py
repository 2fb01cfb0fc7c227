"""The lab counts what takes memory beside models: guards, planner processes and activations of runs."""

from typing import Any

import pytest

from tests.lab.scenarios import CPU, figures, resident


def _alternating(**box: Any) -> dict[str, Any]:
    """Two models of 60 MB, each of which is asked every other second."""
    names = ("left", "right")
    return figures(
        {
            "duration_s": 20,
            "box": {"processors": [CPU], **box},
            "models": [
                {
                    "name": name,
                    "variants": [
                        {"name": "fp32", "size_mb": 60, "accuracy": 90, "load_ms": 10, "latency_ms": {"cpu": {"1": 5}}}
                    ],
                }
                for name in names
            ],
            "applications": [{"name": name, "model": name} for name in names],
            "arrivals": [
                {"application": name, "times_s": list(range(1 + first, 20, 2))} for first, name in enumerate(names)
            ],
        }
    )


def test_models_that_fit_the_budget_take_turns_when_guards_need_half_of_it() -> None:
    """A budget of 128 MB has room for both models, 60 MB each; beside guards of 68 MB it has room for one."""
    alone = _alternating(memory_mb=128)
    assert (alone["warm"], alone["loads"]) == (19, 2)  # both came ahead of their first requests
    assert alone["memory_fullest_mb"] == {"builds": 120, "processes": 0, "runs": 0, "free": 8}
    beside = _alternating(memory_mb=60, overhead_mb=68)
    assert (beside["requests"], beside["failed"]) == (19, 0)
    assert beside["loads"] >= 18  # one for each request; the model of the first may have been there
    assert beside["memory_fullest_mb"] == {"builds": 60, "processes": 68, "runs": 0, "free": 0}
    assert beside["memory_peak_mb"] == 60


def test_planner_processes_end_where_a_model_needs_their_memory() -> None:
    """They take 30 of 128 MB beside the first model, which leaves 38 for the second."""
    found = _alternating(memory_mb=128, planners_mb=30)
    assert (found["loads"], found["failed"]) == (2, 0)
    assert found["memory_fullest_mb"] == {"builds": 120, "processes": 0, "runs": 0, "free": 8}


def test_planner_processes_count_while_there_is_room() -> None:
    found = _alternating(memory_mb=200, planners_mb=50)
    assert found["memory_fullest_mb"] == {"builds": 120, "processes": 50, "runs": 0, "free": 30}


@pytest.mark.parametrize(("spare_mb", "failed"), [(0, 2), (10, 0)])
def test_run_without_room_for_its_activations_fails_unless_the_machine_has_some_to_spare(
    spare_mb: float, failed: int
) -> None:
    """A run takes 30 MB; the budget has 20 beside the model."""
    model = resident("face", latency_ms={"cpu": {"1": 20}}, run_mb={"1": 30})
    found = figures(
        {
            "box": {"memory_mb": 120, "spare_mb": spare_mb, "processors": [CPU]},
            "models": [model],
            "applications": [{"name": "door", "model": "face"}],
            "arrivals": [{"application": "door", "times_s": [1, 5]}],
        }
    )
    assert (found["requests"], found["failed"]) == (2, failed)
    runs, free = (0, 20) if failed else (30, -10)
    assert found["memory_fullest_mb"] == {"builds": 100, "processes": 0, "runs": runs, "free": free}
