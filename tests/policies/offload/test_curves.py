"""Drop curves by variant: gap and rate of each, computed by hand."""

from dataclasses import replace

import pytest

from appliance.policies.offload import DEFAULT, OFFLOAD_POLICIES
from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.policies.offload.fleet import fleet_of
from appliance.policies.offload.verify import drop_of
from tests.checkers.offload import check

INFERENCE = {1: 20.0, 2: 26.0, 4: 38.0}
SMALL = {1: 5.0, 2: 6.0, 4: 8.0}


def _problem(small: Variant, slo: float = 0.06, reference: float | None = 0.0) -> OffloadInput:
    large = Variant("large", 0.0, 10.0, INFERENCE)
    client = Client("c", 0.004, slo, 10.0, 5.0, variants=(large, small), reference_stride=reference)
    return OffloadInput(30.0, 0.0, 1000.0, INFERENCE, waiting=(client,))


def test_variant_allows_the_stride_that_its_own_drop_curve_leaves() -> None:
    """SLO 0.06. Large: 0.06 / 0.004 = 15 frames. Small: (0.06 - 0.02) / 0.01 = 4 frames by its own rate, where its gap
    and the rate of the large one would say 10; a drop of 0.02 + 0.01 * 3 = 0.05 at a stride of 3."""
    plain = Variant("small", 0.02, 4.0, SMALL)
    for small, allowed, drop in ((plain, 10.0, 0.032), (replace(plain, drop_rate=0.01), 4.0, 0.05)):
        problem = _problem(small)
        fleet = fleet_of(problem, {"c": small})
        assert fleet.allowed == [pytest.approx(allowed)]
        assert drop_of(fleet, 0, 3.0) == pytest.approx(drop)
        assert fleet_of(problem).allowed == [pytest.approx(15.0)]


def test_reference_loses_by_the_drop_rate_of_its_own_network() -> None:
    """Against a box that shows what is 2 frames old: (0.06 - 0.02 + 0.004 * 2) / 0.01 = 4.8 frames."""
    small = Variant("small", 0.02, 4.0, SMALL, drop_rate=0.01)
    fleet = fleet_of(_problem(small, reference=2.0), {"c": small})
    assert fleet.allowed == [pytest.approx(4.8)]
    assert drop_of(fleet, 0, 4.8) == pytest.approx(0.06)


def test_variant_without_drop_rate_is_bound_by_its_gap_alone() -> None:
    """A rate of 0, within the SLO and beyond it."""
    still = Variant("small", 0.02, 4.0, SMALL, drop_rate=0.0)
    assert fleet_of(_problem(still), {"c": still}).allowed == [float("inf")]
    worse = replace(still, accuracy_gap=0.07)
    assert fleet_of(_problem(worse), {"c": worse}).allowed == [-float("inf")]


@pytest.mark.parametrize("name", ["arise", DEFAULT])
def test_plan_keeps_the_drop_curve_of_the_chosen_variant(name: str) -> None:
    """Whatever the rates of variants are, an independent count of every displayed frame agrees with the plan."""
    for rate in (0.0005, 0.004, 0.02, 0.2):
        small = Variant("small", 0.01, 4.0, SMALL, drop_rate=rate)
        problem = _problem(small, slo=0.05)
        clients = tuple(replace(problem.waiting[0], name=f"c{n}", drop_rate=0.003 + n * 0.001) for n in range(6))
        problem = replace(problem, waiting=clients)
        plan = OFFLOAD_POLICIES[name]().plan(problem)
        assert plan.clients
        assert check(problem, plan).faults == ()


def test_variant_whose_results_age_badly_is_not_chosen() -> None:
    """By gap and a common rate the small variant costs least; by its own curve its results are too old at once."""
    chosen = {}
    for rate in (None, 0.05):
        small = Variant("small", 0.005, 4.0, SMALL, drop_rate=rate)
        problem = _problem(small, slo=0.05)
        waiting = tuple(replace(problem.waiting[0], name=f"c{n}") for n in range(12))
        plan = OFFLOAD_POLICIES[DEFAULT]().plan(replace(problem, waiting=waiting))
        chosen[rate] = {one.variant for one in plan.clients}
    assert chosen[None] == {"small"}
    assert chosen[0.05] == {"large"}
