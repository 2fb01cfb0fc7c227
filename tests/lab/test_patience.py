"""A request that finds only expected applications in its way: how long it waits for their windows to close."""

from typing import Any

import pytest

from appliance.lab.simulation import simulate
from appliance.policies.residency import EVICTION_POLICIES
from tests.lab.scenarios import scenario

EVICTING = sorted(set(EVICTION_POLICIES) - {"none"})


def _other(policy: str, patience_ms: float | None) -> dict[str, Any]:
    """`busy` is asked every 100 ms, which is less than its load takes, so its window is always open; then `other`
    is, for which there is no room beside it.
    """
    variant = {"name": "fp32", "size_mb": 100, "accuracy": 90, "load_ms": 200, "latency_ms": {"cpu": {"1": 10}}}
    read = scenario(
        duration_s=8,
        box={"memory_mb": 150, "processors": [{"name": "cpu"}], "residency": {"patience_ms": patience_ms}},
        models=[{"name": name, "variants": [variant]} for name in ("busy", "other")],
        applications=[{"name": name, "model": name} for name in ("busy", "other")],
        policies={"eviction": policy, "forecast": "ewma"},
        arrivals=[
            {"application": "busy", "times_s": [1 + 0.1 * i for i in range(50)]},
            {"application": "other", "times_s": [4.05]},
        ],
    )
    document: dict[str, Any] = simulate(read).outcome.document()
    figures: dict[str, Any] = document["applications"]["other"]
    return figures


@pytest.mark.parametrize("policy", EVICTING)
def test_the_expected_give_way_to_the_present(policy: str) -> None:
    """When a window closes, or half a second has passed; with no patience at once; in the paper never: the request
    fails.
    """
    waited, at_once, refused = _other(policy, 500), _other(policy, 0), _other(policy, None)
    assert (waited["cold"], at_once["cold"], refused["failed"]) == (1, 1, 1)
    assert 210 < waited["latency_ms"]["p50"] <= 760  # patience, load, unload and run
    assert 210 <= at_once["latency_ms"]["p50"] < waited["latency_ms"]["p50"]
