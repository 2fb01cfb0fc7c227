"""Guarantees and ceilings of memory in whole scenarios: the shares of the box's tenants, enforced by the same parts."""

from typing import Any

import pytest

from appliance.lab.simulation import simulate
from appliance.policies.residency import EVICTION_POLICIES
from tests.lab.scenarios import scenario

NAMES = ("own", "one", "two", "three")
EVICTING = sorted(set(EVICTION_POLICIES) - {"none"})


def _ask(policy: str, memory_mb: float, times_s: dict[str, list[float]], **share: float) -> dict[str, Any]:
    """Four applications of 100 MB each: `own` of the tenant calm, the others of busy; the figures by application."""
    latency = {"cpu": {"1": 10}}
    variant = {"name": "fp32", "size_mb": 100, "accuracy": 90, "load_ms": 200, "latency_ms": latency}
    limited = "calm" if "guarantee_mb" in share else "busy"
    read = scenario(
        duration_s=10,
        box={"memory_mb": memory_mb, "processors": [{"name": "cpu"}]},
        models=[{"name": name, "variants": [variant]} for name in NAMES],
        applications=[{"name": n, "model": n, "tenant": "calm" if n == "own" else "busy"} for n in NAMES],
        tenants=[{"name": name, **(share if name == limited else {})} for name in ("calm", "busy")],
        policies={"eviction": policy},
        arrivals=[{"application": name, "times_s": times} for name, times in times_s.items()],
    )
    figures: dict[str, Any] = simulate(read).outcome.document()
    return figures


@pytest.mark.parametrize("guaranteed", [True, False])
def test_tenants_guaranteed_memory_is_not_taken(guaranteed: bool) -> None:
    """Calm's network is the longest unused and would leave for the third of busy; guaranteed, it is still there at
    its second request.
    """
    times: dict[str, list[float]] = {"own": [1, 9], "one": [2], "two": [3], "three": [4]}
    figures = _ask("lru", 350, times, **({"guarantee_mb": 100} if guaranteed else {}))
    own = figures["applications"]["own"]
    assert (own["cold"], own["warm"]) == ((1, 1) if guaranteed else (2, 0))
    assert figures["failed"] == 0


@pytest.mark.parametrize("policy", EVICTING)
def test_tenant_at_its_ceiling_unloads_its_own_networks(policy: str) -> None:
    """There is room for all four, but busy may hold one: each of its requests finds the other there and is cold;
    calm stays warm.
    """
    times: dict[str, list[float]] = {"own": [1, 9], "one": [2, 6], "two": [4, 8]}
    figures = _ask(policy, 1000, times, ceiling_mb=150)
    if policy != "expected-utility":  # which brings absent networks before anybody asks
        assert {name: figures["applications"][name]["warm"] for name in times} == {"own": 1, "one": 0, "two": 0}
    assert figures["failed"] == 0
    assert figures["memory_peak_mb"] == 300  # the one that leaves is on its way out while the other loads


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_tenant_with_a_ceiling_below_its_smallest_network_is_refused(policy: str) -> None:
    """However much is free."""
    figures = _ask(policy, 1000, {"own": [1], "one": [2, 6]}, ceiling_mb=99)
    assert (figures["applications"]["one"]["failed"], figures["applications"]["own"]["failed"]) == (2, 0)
    assert figures["memory_peak_mb"] == 100
