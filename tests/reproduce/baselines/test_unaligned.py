"""The planner without what aligns it with the devices."""

from dataclasses import replace

from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from reproduce.baselines import ADAPTATION

NETWORKS = (
    Network("small", 30.0, 10_000.0, {1: 10.0}),
    Network("middle", 40.0, 20_000.0, {1: 20.0}),
    Network("large", 50.0, 80_000.0, {1: 40.0}),
)


def network_of(policy: str, slo_ms: float, mbps: float) -> str | None:
    """Of one client that has a worker for itself."""
    problem = AdaptationInput(NETWORKS, 1, (Client("one", 5.0, slo_ms, mbps * 1e6),))
    workers = ADAPTATION[policy]().plan(problem).workers
    return workers[0].network if workers else None


def test_static_budget_ignores_the_link() -> None:
    """Two runs of the network take half, or three quarters, of the SLO at most, be the link wide or narrow."""
    for mbps in (1.0, 1000.0):
        assert network_of("half-budget", 100.0, mbps) == "middle"
        assert network_of("three-quarters-budget", 110.0, mbps) == "large"
        assert network_of("half-budget", 39.0, mbps) is None


def test_equal_picture_size_leaves_an_equal_budget_to_all_networks() -> None:
    """Those of the middle network take 16 ms: the large one is in time within 96 ms, whatever its own would take."""
    assert network_of("one-picture", 97.0, 10.0) == "large"
    assert network_of("one-picture", 95.0, 10.0) == "middle"


def test_unaligned_plan_names_every_client_of_the_problem() -> None:
    """All clients are named, and the objective is of their true accuracies."""
    problem = AdaptationInput(NETWORKS, 2, (Client("one", 5.0, 100.0, 1e6), Client("two", 5.0, 10.0, 1e6)))
    for name in ("half-budget", "three-quarters-budget", "one-picture"):
        for case in (problem, replace(problem, clients=())):
            plan = ADAPTATION[name]().plan(case)
            names = [*(name for worker in plan.workers for name in worker.clients), *plan.unmapped]
            assert sorted(names) == sorted(client.name for client in case.clients)
