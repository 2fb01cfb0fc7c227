"""Whether another plan is better than the one before by so much that devices change for it."""

import pytest

from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network, WorkerPlan
from appliance.policies.adaptation.going_on import AS_ACCURATE, PAID_S, WORTH, pays, points_gained

NETWORKS = (
    Network("a", 90.0, 1000, {1: 20.0}),
    Network("b", 90.0, 1000, {1: 15.0}),
    Network("c", 80.0, 500, {1: 10.0}),
)
CLIENTS = (Client("x", 10.0, 200.0, 1e7), Client("y", 5.0, 200.0, 1e7))
PROBLEM = AdaptationInput(NETWORKS, 2, CLIENTS)


def plan(**of: str) -> AdaptationPlan:
    """Each client on a worker of its own."""
    workers = tuple(WorkerPlan(at, network, 1, (name,)) for at, (name, network) in enumerate(sorted(of.items())))
    return AdaptationPlan(workers, (), 0.0, (), "")


def test_points_gained_weights_changed_clients_by_rate() -> None:
    """x from 80 to 90 ten times a second, y from 90 to 80 five times: 50 points over 15 frames."""
    assert points_gained(PROBLEM, plan(x="c", y="a"), plan(x="a", y="c")) == pytest.approx(50 / 15)
    assert points_gained(PROBLEM, plan(x="c", y="a"), plan(x="a", y="a")) == pytest.approx(10.0)
    assert points_gained(PROBLEM, plan(x="a", y="a"), plan(x="b", y="a")) == 0.0 < AS_ACCURATE
    assert points_gained(PROBLEM, plan(x="a", y="c"), plan(x="a", y="c")) is None
    assert points_gained(PROBLEM, plan(x="gone", y="c"), plan(x="a", y="c")) is None


def test_plan_change_pays_when_it_saves_a_fifth_and_its_own_cost() -> None:
    """From 300 to 225 ms in a second: 75 ms, in half a minute 2,250."""
    before, after = plan(x="a", y="a"), plan(x="b", y="b")
    assert WORTH * 300.0 >= 225.0
    assert pays(PROBLEM, before, after, PAID_S * 75.0 - 1.0)
    assert not pays(PROBLEM, before, after, PAID_S * 75.0 + 1.0)
    assert not pays(PROBLEM, before, plan(x="a", y="b"), 0.0)  # 275 ms
    assert not pays(PROBLEM, after, before, 0.0)
