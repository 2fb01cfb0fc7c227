"""The whole engine with `expected-utility`: variants change hands between requests, in time for each."""

from typing import Any

from appliance.lab.simulation import simulate
from tests.lab.scenarios import scenario

APPLICATIONS = ("camera", "glasses")


def _run(spread_s: float) -> dict[str, Any]:
    """Two applications ask by turns, each every 20 s, in memory for one large variant and nothing else; predictions
    are `spread_s` off, early and late.
    """
    variants = [
        {"name": "fp32", "size_mb": 300, "accuracy": 90, "load_ms": 500, "latency_ms": {"cpu": {"1": 10}}},
        {"name": "int8", "size_mb": 100, "accuracy": 70, "load_ms": 150, "latency_ms": {"cpu": {"1": 10}}},
    ]
    times = {name: [10.0 * start + 20.0 * i for i in range(40)] for start, name in enumerate(APPLICATIONS, 1)}
    read = scenario(
        duration_s=840,
        box={"memory_mb": 350, "processors": [{"name": "cpu"}]},
        models=[{"name": name, "variants": variants} for name in APPLICATIONS],
        applications=[{"name": name, "model": name} for name in APPLICATIONS],
        policies={"eviction": "expected-utility"},
        arrivals=[
            {
                "application": name,
                "times_s": asked,
                "predicted_s": [max(0.0, t + spread_s * (-1) ** i) for i, t in enumerate(asked)],
            }
            for name, asked in times.items()
        ],
    )
    document: dict[str, Any] = simulate(read).outcome.document()
    return document


def test_large_variant_is_loaded_just_in_time_for_sure_predictions() -> None:
    """It is surely known which request is next: its application has the best variant, the other one nothing
    meanwhile."""
    document = _run(0.0)
    assert document["warm"] >= document["requests"] - 2  # the first ones come before anything is known
    assert document["utility"] > 89


def test_small_variants_stay_when_predictions_are_unsure() -> None:
    """Predictions that are ten seconds off do not tell which request is next: both small variants stay, and no request
    is cold either."""
    document = _run(10.0)
    assert document["cold"] + document["failed"] <= 2
    assert document["utility"] < 75
