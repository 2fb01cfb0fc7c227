"""Smallest variants that `ws-bfe` and `iws-bfe` bring between requests."""

from dataclasses import replace

import pytest

from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyProblem, TenantShare

warm_start = pytest.mark.parametrize("policy", ["ws-bfe", "iws-bfe", "iws-bfe-unload-first"])
FULL, SMALL = Option("full", 40, 50, 90.0, 30), Option("small", 10, 15, 80.0, 10)


def _absent(name: str, next_ns: int | None = None, last_ns: int | None = 5) -> ApplicationState:
    return ApplicationState(name, (FULL, SMALL), None, next_request_ns=next_ns, last_request_ns=last_ns)


def _brought(policy: str, memory: int, *applications: ApplicationState, ceiling: int | None = None) -> list[Change]:
    tenants = (TenantShare("default", ceiling_bytes=ceiling),)
    problem = ResidencyProblem(1000, memory, 0, 0, applications, None, "rebalance", tenants)
    plan = EVICTION_POLICIES[policy]().plan(problem)
    assert (plan.outcome, plan.serve) == ("cold" if plan.changes else "warm", None)
    return list(plan.changes)


@warm_start
def test_smallest_variant_is_brought_where_its_peak_fits_into_free_memory(policy: str) -> None:
    """Beside 40 bytes of another application, which keeps them; a better variant is a window's affair."""
    there = replace(_absent("there"), resident="full")
    assert _brought(policy, 54, there, _absent("a")) == []
    assert _brought(policy, 55, there, _absent("a")) == [Change("a", None, "small")]
    assert _brought(policy, 1000, there, _absent("a")) == [Change("a", None, "small")]


@warm_start
def test_application_expected_first_gets_its_smallest_variant_first(policy: str) -> None:
    """Then the one that was asked last, then by name; as many as fit, each with its peak beside those before it."""
    applications = _absent("a"), _absent("b"), _absent("c", last_ns=10), _absent("d", last_ns=20), _absent("e", 9000)
    order = [change.application for change in _brought(policy, 55, *applications)]
    assert order == ["e", "d", "c", "a", "b"]
    assert [change.application for change in _brought(policy, 34, *applications)] == ["e", "d"]


@warm_start
def test_smallest_variant_above_the_ceiling_of_its_tenant_is_not_brought(policy: str) -> None:
    assert _brought(policy, 100, _absent("a"), _absent("b"), ceiling=19) == [Change("a", None, "small")]


@warm_start
def test_application_whose_variant_is_being_loaded_is_brought_no_other(policy: str) -> None:
    assert _brought(policy, 100, replace(_absent("a"), pinned=True)) == []


@warm_start
def test_application_that_was_never_asked_is_brought_nothing(policy: str) -> None:
    assert _brought(policy, 100, _absent("a", last_ns=None)) == []
