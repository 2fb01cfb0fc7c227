"""One way for each stage by the program: what its tolerance lets through is not taken."""

import math

import pytest

from appliance.policies.allocation.choose import choose
from appliance.policies.allocation.configurations import Pipeline, Stage, configuration
from appliance.policies.allocation.stage_plans import StagePlans, simple_plans, table_of

SLO_MS = 100.0


def _stage(*latencies_ms: float) -> tuple[Pipeline, StagePlans]:
    """One stage that half a worker serves; the slower of its ways is always a little cheaper."""
    ordered = sorted(latencies_ms, reverse=True)
    configurations = tuple(configuration("w", 1, at + 1, ms, 100.0, 1.0 + at, 0) for at, ms in enumerate(ordered))
    stage = Stage("a", 50.0, configurations)
    return Pipeline(SLO_MS, (stage,), ()), simple_plans(table_of(stage, 2 * SLO_MS), 2 * SLO_MS)


def _late(count: int) -> list[float]:
    """Latencies beyond the SLO by parts that a solver does not see, and we do."""
    return [SLO_MS * (1.0 + 1e-8 + 1e-9 * at) for at in range(count)]


@pytest.mark.parametrize("late", [0, 1, 5])
def test_choice_late_by_less_than_solver_tolerance_is_left_out(late: int) -> None:
    """The one way in time takes 50 ms; it costs a half more for each way that is cheaper and late."""
    pipeline, ways = _stage(50.0, *_late(late))
    found = choose(pipeline, [ways], {})
    assert found.picks is not None
    assert (ways.latency_ms[found.picks[0]], found.cost, found.is_optimal) == (50.0, 0.5 * (1 + late), True)


def test_search_after_fifty_late_choices_is_given_up_without_proof() -> None:
    """There is a way in time behind them; that none was found is then no proof that there is none."""
    pipeline, ways = _stage(50.0, *_late(51))
    found = choose(pipeline, [ways], {})
    assert (found.picks, found.cost, found.is_optimal) == (None, math.inf, False)
