"""A plan in parts is the plan, and where there are many applications its parts are many."""

from random import Random

import pytest

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, Option, Rate, ResidencyProblem
from appliance.policies.residency.steps import at_once, in_steps

SECOND = 10**9


def _problem(count: int) -> ResidencyProblem:
    chance = Random(count)
    options = (Option("fp32", 40, 45, 90.0, SECOND // 50), Option("int8", 11, 12, 88.0, SECOND // 100))
    states = [
        ApplicationState(
            f"a{i:04}",
            options,
            chance.choice([None, "fp32", "int8"]),
            next_request_ns=chance.choice([None, chance.randrange(20 * SECOND)]),
            rate=Rate(3, chance.randrange(9 * SECOND)),
            prediction_hit_rate=chance.random(),
        )
        for i in range(count)
    ]
    held = sum(state.held_bytes for state in states)
    return ResidencyProblem(10 * SECOND, held + 5 * count, SECOND, SECOND // 10, tuple(states), None, "rebalance")


@pytest.mark.parametrize("policy", sorted(EVICTION_POLICIES))
@pytest.mark.parametrize("count", [8, 700])
def test_plan_made_in_steps_equals_the_plan_made_at_once(policy: str, count: int) -> None:
    """Of every policy, also of those that make their plans at once."""
    problem = _problem(count)
    assert at_once(in_steps(EVICTION_POLICIES[policy](), problem)) == EVICTION_POLICIES[policy]().plan(problem)


def test_plan_has_no_pause_for_few_applications_and_several_for_many() -> None:
    """So in small boxes nothing comes between a look and what follows from it."""
    policy = EVICTION_POLICIES["expected-utility"]()
    assert [sum(1 for _ in in_steps(policy, _problem(count))) for count in (0, 1, 40)] == [0, 0, 0]
    assert sum(1 for _ in in_steps(policy, _problem(700))) >= 10
