"""The worked example of the Scrooge paper (§3.3), its SLO sweep, and its small sums."""

import pytest

from appliance.lab.plan import plan_one
from appliance.policies.allocation.base import AllocationInput, Module, Profile, WorkerType
from appliance.policies.allocation.configurations import configuration, pipeline_of
from tests.checkers.pipeline import broken
from tests.instances import allocation as instances


@pytest.mark.parametrize("policy", ["frontier", "scrooge", "brute-force"])
def test_paper_example(policy: str) -> None:
    """The paper's plan: A on a full X <4,2> and a partial Y <2,1>, B on Y <4,2>, the two partial ones on one worker."""
    problem = instances.paper()
    answer = plan_one({**problem, "policy": policy})
    assert not broken(problem, answer)
    assert answer["cost"] == pytest.approx(7.5407, abs=5e-5)
    assert answer["latency_ms"] == pytest.approx(273.0, abs=1e-6)
    rows = sorted((r["module"], r["worker"], r["batch"], round(r["instances"], 6)) for r in answer["allocations"])  # type: ignore[attr-defined]
    assert rows == [("A", "X", 4, 1.0), ("A", "Y", 2, round(20 / 81, 6)), ("B", "Y", 4, 0.6), ("B", "Y", 4, 1.0)]
    shared = [p for p in answer["placement"] if len(p["parts"]) == 2]  # type: ignore[attr-defined]
    assert [(p["worker"], {part["module"] for part in p["parts"]}) for p in shared] == [("Y", {"A", "B"})]


@pytest.mark.parametrize("step", instances.paper_sweep(), ids=lambda step: f"{step['slo_ms']:g}ms")
def test_slo_sweep(step: dict[str, float]) -> None:
    """The optimum at every SLO of the sweep, cost and latency."""
    answer = plan_one(instances.paper(step["slo_ms"]))
    assert answer["cost"] == pytest.approx(step["cost"], abs=5e-5)
    assert answer["latency_ms"] == pytest.approx(step["latency_ms"], abs=5e-3)
    assert answer["is_optimal"] is True


def test_worst_case_latency() -> None:
    """200 ms of execution, batches of 4 two at a time: 40 a second, 100 ms to fill a batch, 300 ms in all (the paper prints 400)."""
    assert configuration("w", 4, 2, 200.0, 1000.0 * 4 * 2 / 200.0, 1.0).full_latency_ms == pytest.approx(300.0)


def test_partial_worst_case_latency() -> None:
    """At half the rate a batch takes twice as long to fill (eq. 3)."""
    assert configuration("w", 4, 2, 200.0, 40.0, 1.0).latency_at(20.0) == pytest.approx(400.0)


def test_ballooning() -> None:
    """Observed 50 ms for profiled 40 ms: all latencies of the module are 1.25 times as long, its throughputs by as much lower."""
    module = Module("A", 10.0, (Profile("w", 1, 1, 40.0), Profile("w", 4, 2, 133.0, 60.0)), ballooning=50.0 / 40.0)
    stage = pipeline_of(AllocationInput(1e4, (WorkerType("w", 1.0),), (module,))).stages[0]
    found = {c.batch: (c.latency_ms, c.throughput_rps) for c in stage.configurations}
    assert found == {1: pytest.approx((50.0, 20.0)), 4: pytest.approx((166.25, 48.0))}
