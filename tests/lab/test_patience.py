"""A request that finds only expected applications in its way: how long it waits for their windows to close."""

from typing import Any

import pytest

from appliance.lab.simulation import simulate
from appliance.policies.residency import EVICTION_POLICIES
from tests.lab.scenarios import scenario

EVICTING = sorted(set(EVICTION_POLICIES) - {"none"})


def _run(policy: str, patience_ms: float | None, *sizes_mb: int) -> dict[str, Any]:
    """`busy` is asked every 100 ms, which is less than its load takes, so its window is always open; then `other` is,
    for which there is no room beside it. `busy` has variants of these sizes, the largest first.
    """

    def variant(size_mb: int, load_ms: int) -> dict[str, Any]:
        latency_ms = {"cpu": {"1": 10}}
        accuracy = 40 + size_mb / 2
        name = f"v{size_mb}"
        return {"name": name, "size_mb": size_mb, "accuracy": accuracy, "load_ms": load_ms, "latency_ms": latency_ms}

    read = scenario(
        duration_s=8,
        box={"memory_mb": 150, "processors": [{"name": "cpu"}], "residency": {"patience_ms": patience_ms}},
        models=[
            {"name": "busy", "variants": [variant(size_mb, 2 * size_mb) for size_mb in sizes_mb]},
            {"name": "other", "variants": [variant(100, 200)]},
        ],
        applications=[{"name": name, "model": name} for name in ("busy", "other")],
        policies={"eviction": policy, "forecast": "ewma"},
        arrivals=[
            {"application": "busy", "times_s": [1 + 0.1 * i for i in range(50)]},
            {"application": "other", "times_s": [4.05]},
        ],
    )
    document: dict[str, Any] = simulate(read).outcome.document()
    figures: dict[str, Any] = document["applications"]
    return figures


@pytest.mark.parametrize("policy", sorted({*EVICTING} - {"expected-utility"}))  # that has both in memory from the start
def test_expected_application_gives_way_to_a_request_after_its_patience(policy: str) -> None:
    """When a window closes, or half a second has passed; with no patience at once; in the paper never: the request
    fails.
    """
    waited, at_once, refused = (_run(policy, patience_ms, 100, 30)["other"] for patience_ms in (500, 0, None))
    assert (waited["cold"], at_once["cold"], refused["failed"]) == (1, 1, 1)
    assert 210 < waited["latency_ms"]["p50"] <= 770  # patience, loads, unload and run
    assert 210 <= at_once["latency_ms"]["p50"] < waited["latency_ms"]["p50"]


@pytest.mark.parametrize("policy", EVICTING)
def test_expected_application_without_smaller_variant_stays_in_its_window(policy: str) -> None:
    """EM-10: an application without a smaller variant stays in its window, and the request fails."""
    figures = _run(policy, 0, 100)
    assert figures["other"]["failed"] == 1
    assert figures["busy"]["cold"] <= 2, "those that come while it is first loaded"
