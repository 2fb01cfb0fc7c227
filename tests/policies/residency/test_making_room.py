"""Applications that leave for a requester where the cheapest choice is barred, or dearer than one application alone."""

from dataclasses import replace

import pytest

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyProblem, TenantShare
from appliance.policies.residency.expected_utility import ExpectedUtility
from appliance.policies.residency.last_resort import after_patience
from appliance.policies.residency.steps import at_once, in_steps


def _one(name: str, size: int, *, there: bool = True, weight: float = 1.0, tenant: str = "default") -> ApplicationState:
    """An application with a single variant; nothing is known of its requests, so what it loses by leaving is its weight
    times what all lose."""
    option = Option("v", size, size, 90.0, 1000)
    return ApplicationState(name, (option,), "v" if there else None, weight=weight, tenant=tenant)


def _two(name: str, large: int, small: int, *, peak: int = 0, expected: bool = False) -> ApplicationState:
    """An application with its large variant in memory, and a small one that takes up to `peak` while it loads."""
    options = (Option("large", large, large, 90.0, 1000), Option("small", small, max(small, peak), 70.0, 200))
    return ApplicationState(name, options, "large", next_request_ns=0 if expected else None)


def _asked(memory: int, *states: ApplicationState, tenants: tuple[TenantShare, ...] = ()) -> ResidencyProblem:
    """A request of the first."""
    return ResidencyProblem(0, memory, 0, 0, states, states[0].name, tenants=tenants)


LEFT = "v", None
COME = None, "v"
SHRUNK = "large", "small"
BFE_FAMILY = pytest.mark.parametrize("policy", ["ws-bfe", "iws-bfe", "iws-bfe-unload-first"])


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
    problem = _asked(10, _one("asker", 8, there=False), _two("victim", 10, 1, peak=peak))
    plan = EVICTION_POLICIES[policy]().plan(problem)
    assert plan.changes == (Change("victim", "large", after), Change("asker", *COME))


@BFE_FAMILY
def test_application_that_was_to_leave_is_replaced_where_a_later_unload_frees_enough(policy: str) -> None:
    """Of 31 bytes 5 are free, and 22 are asked for. Replacing one frees 5, its leaving 11; the other one has nothing
    smaller, and its leaving frees 15: together with the replacement that is enough."""
    problem = _asked(31, _one("asker", 22, there=False), _two("a", 11, 6), _one("b", 15))
    plan = EVICTION_POLICIES[policy]().plan(problem)
    assert plan.changes == (Change("b", *LEFT), Change("a", *SHRUNK), Change("asker", *COME))


@BFE_FAMILY
def test_replacement_that_needs_more_to_load_than_there_is_follows_those_that_free_it(policy: str) -> None:
    """23 bytes are missing. The first to go has 12, and its small variant takes 24 while it loads: that fits once one
    has left, which frees 9, and another has been replaced, which frees 4."""
    problem = _asked(31, _one("asker", 23, there=False), _two("a", 12, 1, peak=24), _two("b", 10, 6), _one("c", 9))
    plan = EVICTION_POLICIES[policy]().plan(problem)
    assert plan.changes == (
        Change("c", *LEFT), Change("b", *SHRUNK), Change("a", *SHRUNK), Change("asker", *COME),
    )  # fmt: skip


@BFE_FAMILY
def test_requester_whose_smallest_variant_takes_most_to_load_gets_the_one_that_needs_no_unload(policy: str) -> None:
    """5 bytes are free once the other one is replaced: enough for the larger variant, which takes 5, and not for the
    smaller one, which takes 8 while it loads."""
    options = (Option("large", 5, 5, 90.0, 1000), Option("small", 3, 8, 70.0, 200))
    asker = ApplicationState("asker", options, None, next_request_ns=1)
    other = replace(_two("other", 10, 5), last_request_ns=0, next_request_ns=1)
    problem = replace(_asked(10, asker, other), history_window_ns=10, now_ns=2)
    plan = EVICTION_POLICIES[policy]().plan(problem)
    assert plan.changes == (Change("other", *SHRUNK), Change("asker", None, "large"))


def test_expected_application_is_not_shrunk_so_that_another_one_may_stay() -> None:
    """13 bytes are missing after a wait. One that is not expected frees 4; of two that are one frees 3 and the other
    10. The 10 and the 4 are enough, so the 3 are given back."""
    problem = _asked(
        43, _one("asker", 13, there=False), _one("a", 4),
        _two("b", 19, 16, expected=True), _two("c", 20, 10, expected=True),
    )  # fmt: skip
    plan = after_patience(problem)
    assert plan is not None
    assert plan.changes == (Change("a", *LEFT), Change("c", *SHRUNK), Change("asker", *COME))


def test_request_answered_in_steps_has_one_plan_and_no_pause() -> None:
    """A request waits for the plan, so the policy makes no pause before another application leaves."""
    problem = _asked(10, _one("asker", 10, there=False), _one("a", 10))
    policy = ExpectedUtility()
    assert list(in_steps(policy, problem)) == []
    assert at_once(in_steps(policy, problem)).changes == (Change("a", *LEFT), Change("asker", *COME))
