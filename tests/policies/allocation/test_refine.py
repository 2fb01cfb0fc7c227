"""Partial instances by the greedy search, by hand."""

import pytest

from appliance.policies.allocation.configurations import Pipeline, Stage, StagePlan, configuration, total_cost
from appliance.policies.allocation.refine import cheapest

CONFIGURATIONS = (
    configuration("cheap", 1, 1, 60.0, 100.0, 1.0, 0),
    configuration("usual", 1, 1, 40.0, 100.0, 2.0, 0),
    configuration("fast", 1, 1, 30.0, 100.0, 6.0, 0),
)
"""Half of a worker each at 50 a second: for 0.5, 1 or 3."""


@pytest.mark.parametrize("exact_max", [0, 100])
@pytest.mark.parametrize(
    ("slo_ms", "cost"), [(59.0, None), (60.0, 6.0), (70.0, 4.0), (80.0, 2.0), (100.0, 1.5), (120.0, 1.0)]
)
def test_greedy_refinement_of_two_stages_is_as_cheap_as_the_exact_one(
    slo_ms: float, cost: float | None, exact_max: int
) -> None:
    """Two stages one after the other: fast ones take 60 ms, and no pair is faster."""
    stages = tuple(Stage(name, 50.0, CONFIGURATIONS) for name in "ab")
    options = [[StagePlan((), (c, 50.0)) for c in CONFIGURATIONS] for _ in stages]
    plans = cheapest(Pipeline(slo_ms, stages, ((0, 1),)), options, exact_max=exact_max)
    assert (None if plans is None else total_cost(plans)) == cost
