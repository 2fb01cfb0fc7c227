"""The worked example of the Scrooge paper (§3.3), its SLO sweep, and its small sums."""

from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.policies.allocation.base import AllocationInput, Module, Profile, WorkerType
from appliance.policies.allocation.configurations import configuration, pipeline_of
from tests.checkers.pipeline import broken
from tests.instances import allocation as instances


@pytest.mark.parametrize("policy", ["frontier", "scrooge", "brute-force"])
def test_plan_of_the_papers_example_is_the_papers_plan(policy: str) -> None:
    """The paper's plan: A on a full X <4,2> and a partial Y <2,1>, B on Y <4,2>, the two partial ones on one worker."""
    problem = instances.paper()
    answer = plan_one({**problem, "policy": policy})
    assert not broken(problem, answer)
    assert answer["cost"] == pytest.approx(7.5407, abs=5e-5)
    assert answer["latency_ms"] == pytest.approx(273.0, abs=1e-6)
    found: Any = answer["allocations"]
    rows = sorted((r["module"], r["worker"], r["batch"], round(r["instances"], 6)) for r in found)
    assert rows == [("A", "X", 4, 1.0), ("A", "Y", 2, round(20 / 81, 6)), ("B", "Y", 4, 0.6), ("B", "Y", 4, 1.0)]
    shared = [p for p in answer["placement"] if len(p["parts"]) == 2]  # type: ignore[attr-defined]
    assert [(p["worker"], {part["module"] for part in p["parts"]}) for p in shared] == [("Y", {"A", "B"})]


@pytest.mark.parametrize("step", instances.paper_sweep(), ids=lambda step: f"{step['slo_ms']:g}ms")
def test_plan_of_the_papers_example_is_optimal_at_every_slo(step: dict[str, float]) -> None:
    """The optimum at every SLO of the sweep, cost and latency."""
    answer = plan_one(instances.paper(step["slo_ms"]))
    assert answer["cost"] == pytest.approx(step["cost"], abs=5e-5)
    assert answer["latency_ms"] == pytest.approx(step["latency_ms"], abs=5e-3)
    assert answer["is_optimal"] is True


def test_full_instance_latency_adds_batch_filling_to_execution() -> None:
    """200 ms of execution, batches of 4 two at a time: 40 a second, 100 ms to fill a batch, 300 ms in all (the paper
    prints 400).
    """
    assert configuration("w", 4, 2, 200.0, 1000.0 * 4 * 2 / 200.0, 1.0, 4).full_latency_ms == pytest.approx(300.0)


def test_partial_instance_latency_grows_as_batches_fill_slower() -> None:
    """At half the rate a batch takes twice as long to fill (eq. 3)."""
    assert configuration("w", 4, 2, 200.0, 40.0, 1.0, 4).latency_at(20.0) == pytest.approx(400.0)


def test_ballooning_scales_latencies_and_throughputs() -> None:
    """Observed 50 ms for profiled 40 ms: all latencies of the module are 1.25 times as long, its throughputs by as
    much lower.
    """
    module = Module("A", 10.0, (Profile("w", 1, 1, 40.0), Profile("w", 4, 2, 133.0, 60.0)), ballooning=50.0 / 40.0)
    stage = pipeline_of(AllocationInput(1e4, (WorkerType("w", 1.0),), (module,))).stages[0]
    found = {c.batch: (c.latency_ms, c.throughput_rps) for c in stage.configurations}
    assert found == {1: pytest.approx((50.0, 20.0)), 4: pytest.approx((166.25, 48.0))}


@pytest.mark.parametrize(("batch_wait", "alone_ms", "four_ms"), [("full", 230.0, 860.0), ("rest", 30.0, 660.0)])
@pytest.mark.parametrize("policy", ["frontier", "scrooge", "brute-force", "greedy", "nexus-like", "concurrency-1"])
def test_batch_latency_counts_waiting_for_a_full_batch_or_the_rest(
    policy: str, batch_wait: str, alone_ms: float, four_ms: float
) -> None:
    """30 ms of execution at 5 a second: the paper's batch of one waits 200 ms for the next item, with "rest" for none.
    A batch of four (60 ms) waits for four, or for the three others, 200 ms each."""

    def modules(batch: int, latency_ms: float) -> list[dict[str, object]]:
        profile = {"worker": "w", "batch": batch, "concurrency": 1, "latency_ms": latency_ms}
        return [{"name": "A", "rate_rps": 5, "profiles": [profile]}]

    workers = [{"name": "w", "cost": 1}]
    problem = {"kind": "pipeline", "policy": policy, "batch_wait": batch_wait, "workers": workers}
    problem["modules"] = modules(1, 30)
    fits, too_short = plan_one({**problem, "slo_ms": alone_ms}), plan_one({**problem, "slo_ms": alone_ms - 1.0})
    assert fits["latency_ms"] == pytest.approx(alone_ms)
    assert not broken({**problem, "slo_ms": alone_ms}, fits)
    assert too_short["feasible"] is False
    assert f"the fastest configurations take {alone_ms:.1f} ms" in str(too_short["reason"])
    four = plan_one({**problem, "modules": modules(4, 60), "slo_ms": 1000})
    assert four["latency_ms"] == pytest.approx(four_ms)


def test_papers_example_without_waiting_for_a_next_item_keeps_a_shorter_slo() -> None:
    """The paper's plan with "rest": A on X <4,2> takes 133 ms and waits for three at 60 a second, B's partial Y <4,2>
    takes 40 and waits for three at 120:
    183 + 65 = 248 ms, where the paper's sums give 199.7 + 73.3 = 273. So it also keeps an SLO of 250 ms."""
    problem = {**instances.paper(250.0), "batch_wait": "rest"}
    answer = plan_one(problem)
    assert not broken(problem, answer)
    assert (answer["cost"], answer["latency_ms"]) == (pytest.approx(7.5407, abs=5e-5), pytest.approx(248.0))
