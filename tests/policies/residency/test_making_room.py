"""Applications that leave for a requester where the cheapest choice is barred, or dearer than one application alone."""

import pytest

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyProblem, TenantShare
from appliance.policies.residency.expected_utility import ExpectedUtility
from appliance.policies.residency.steps import at_once, in_steps


def _one(name: str, size: int, *, there: bool = True, weight: float = 1.0, tenant: str = "default") -> ApplicationState:
    """An application with a single variant; nothing is known of its requests, so what it loses by leaving is its weight
    times what all lose."""
    option = Option("v", size, size, 90.0, 1000)
    return ApplicationState(name, (option,), "v" if there else None, weight=weight, tenant=tenant)


def _asked(memory: int, *states: ApplicationState, tenants: tuple[TenantShare, ...] = ()) -> ResidencyProblem:
    """A request of the first."""
    return ResidencyProblem(0, memory, 0, 0, states, states[0].name, tenants=tenants)


LEFT = "v", None
COME = None, "v"


@pytest.mark.parametrize(("weight", "leave"), [(1.2, ["c"]), (1.9, ["a", "b"])])
def test_requester_takes_a_single_victim_that_loses_less_than_two(weight: float, leave: list[str]) -> None:
    """10 bytes are missing. By the byte it is cheapest to take the 9 of each of two, whose weights are 0.9 and 0.99:
    1.89 together. A third one has 10 bytes."""
    problem = _asked(
        28, _one("asker", 10, there=False), _one("a", 9, weight=0.9), _one("b", 9, weight=0.99),
        _one("c", 10, weight=weight),
    )  # fmt: skip
    changes = ExpectedUtility().plan(problem).changes
    assert changes == (*(Change(name, *LEFT) for name in leave), Change("asker", *COME))


def test_requester_spares_a_tenants_guarantee_and_takes_another_victim() -> None:
    """20 bytes are missing, and two of one tenant with 10 each lose least. The tenant is to keep 10 of its 20 bytes, so
    either may leave, but not both: an application of another tenant does, however dear."""
    problem = _asked(
        30, _one("asker", 20, there=False), _one("t1", 10, tenant="t"), _one("t2", 10, tenant="t"),
        _one("u", 10, weight=50.0), tenants=(TenantShare("t", guarantee_bytes=10),),
    )  # fmt: skip
    plan = ExpectedUtility().plan(problem)
    assert (plan.outcome, plan.serve) == ("cold", "v")
    assert plan.changes == (Change("t1", *LEFT), Change("u", *LEFT), Change("asker", *COME))


@pytest.mark.parametrize("policy", ["ws-bfe", "iws-bfe"])
@pytest.mark.parametrize(("peak", "after"), [(10, "small"), (11, None)])
def test_victim_whose_replacement_does_not_fit_while_loading_is_unloaded(
    policy: str, peak: int, after: str | None
) -> None:
    """The victim has all 10 bytes of the memory; its small variant takes 1, and up to `peak` while it loads."""
    options = (Option("large", 10, 10, 90.0, 1000), Option("small", 1, peak, 70.0, 200))
    problem = _asked(10, _one("asker", 8, there=False), ApplicationState("victim", options, "large"))
    plan = EVICTION_POLICIES[policy]().plan(problem)
    assert plan.changes == (Change("victim", "large", after), Change("asker", *COME))


def test_request_answered_in_steps_has_one_plan_and_no_pause() -> None:
    """A request waits for the plan, so the policy makes no pause before another application leaves."""
    problem = _asked(10, _one("asker", 10, there=False), _one("a", 10))
    policy = ExpectedUtility()
    assert list(in_steps(policy, problem)) == []
    assert at_once(in_steps(policy, problem)).changes == (Change("a", *LEFT), Change("asker", *COME))
