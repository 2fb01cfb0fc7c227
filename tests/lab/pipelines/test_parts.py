"""Networks that serve in parts, on several kinds of processors, in pipelines: planned as one variant on the kind that
most of it runs on, with what it takes of the others.
"""

from typing import Any

import pytest

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import Run, simulate
from tests.lab.pipelines.signs import document

pytestmark = pytest.mark.gate("whole simulations")

CPU, NPU = {"name": "cpu"}, {"name": "npu"}
UNITS = {
    "ops": [
        {"name": "body", "processors": ["cpu", "npu"]},
        {"name": "resize", "processors": ["cpu"], "inputs": ["body"]},
        {"name": "heads", "processors": ["cpu", "npu"], "inputs": ["resize"]},
    ],
    "latency_ms": {"cpu": {"body": 30, "resize": 4, "heads": 20}, "npu": {"body": 5, "heads": 6}},
}
"""54 ms on the CPU; 15 in parts, of which 11 on the NPU."""


def run(pipeline: dict[str, Any], **changes: Any) -> Run:
    find = {"name": "find", "variants": [{"name": "one", "size_mb": 10, "accuracy": 80, "load_ms": 50, "units": UNITS}]}
    read = {"name": "read", "variants": [{"name": "one", "size_mb": 10, "accuracy": 90, "load_ms": 50}]}
    find["variants"][0]["resident"] = read["variants"][0]["resident"] = True  # type: ignore[index]
    read["variants"][0]["latency_ms"] = {"cpu": {"1": 10}}  # type: ignore[index]
    changes.setdefault("box", {"memory_mb": 100, "processors": [CPU, NPU]})
    written = document(pipeline, models=[find, read], **changes)
    return simulate(parse_scenario(written), keep_journal=True)


def test_network_in_parts_is_planned_with_its_time_on_both_kinds() -> None:
    """Its client is let in, every frame is in time, and the plan has its time on both kinds: 11 ms of the NPU and 4 of
    the CPU, and 0.15 for each run but the first.
    """
    made = run({"clients": [{"fps": 8}]})
    found: Any = made.outcome.document()
    assert found["pipelines"]["signs"]["clients"] == {"joined": 1, "refused": 0}
    assert found["pipelines"]["signs"]["finish_rate"] > 0.99
    problems: list[Any] = [one.facts["problem"] for one in made.journal.decisions if one.name == "pipeline"]
    (row,) = next(one for one in problems[-1].modules if one.name == "find").profiles
    assert row.worker == "npu"
    assert row.latency_ms == pytest.approx(15, abs=1)
    assert 1000 / row.throughput_rps == pytest.approx(11.15, abs=0.01)
    assert [(one.worker, one.share * 11.15) for one in row.draws] == [("cpu", pytest.approx(4.15, abs=0.01))]
    reasons = [str(one.facts["reason"]) for one in made.journal.events if one.name == "pipeline planned"]
    assert reasons
    assert all("find serves in parts, most of it on npu, and 0.033 workers of cpu" in reason for reason in reasons)


def test_network_in_parts_keeps_its_parts_under_a_plan() -> None:
    """A plan moves no part: each stays on the kind on which it is quickest."""
    found: Any = run({"times_s": [1.0, 2.0, 3.0], "rate_rps": None}).outcome.document()
    assert found["processors"]["npu"]["batches"] == 2 * 3
    assert found["processors"]["cpu"]["batches"] == 3 + 3 * 3
    assert found["pipelines"]["signs"]["latency_ms"]["p50"] == pytest.approx(15 + 0.9 + 3 * 10, abs=0.5)


def test_network_in_parts_costs_its_time_on_each_kind() -> None:
    """11 ms of the NPU at 7.2 an hour and 4 of the CPU at 3.6, then three lines on the CPU; all of it is what the
    processors were busy for.
    """
    processors = [{**CPU, "price_per_hour": 3.6, "power_w": 10.0}, {**NPU, "price_per_hour": 7.2, "power_w": 2.0}]
    box = {"memory_mb": 100, "processors": processors}
    found: Any = run({"times_s": [5.0], "cost_by": "price"}, box=box).outcome.document()
    assert found["pipelines"]["signs"]["cost"] == pytest.approx(0.001 * (0.011 * 2 + 0.004 + 0.030), rel=0.01)
    found = run({"times_s": [5.0], "cost_by": "energy"}, box=box).outcome.document()
    assert found["pipelines"]["signs"]["cost"] == pytest.approx(0.011 * 2 + (0.004 + 0.030) * 10, rel=0.01)


@pytest.mark.nightly("minutes of an overloaded box")
def test_pipeline_client_beyond_either_processor_kind_is_refused() -> None:
    """The NPU takes 89 such networks a second at most, while the CPU does its parts of others. Where the CPU has 30 ms
    to do beside each, the CPU is what there is not enough of: 29 a second."""
    found: Any = run({"clients": [{"fps": 40, "count": 3}], "stages": [{"application": "find"}]}).outcome.document()
    assert found["pipelines"]["signs"]["clients"] == {"joined": 2, "refused": 1}
    assert found["pipelines"]["signs"]["finish_rate"] > 0.95
    found = run({"clients": [{"fps": 10, "count": 4}]}).outcome.document()
    assert found["pipelines"]["signs"]["clients"] == {"joined": 2, "refused": 2}
    assert found["pipelines"]["signs"]["finish_rate"] > 0.95


def test_lost_processor_kind_is_left_out_of_the_plan() -> None:
    """The network serves whole on the CPU meanwhile, and in parts again after it; every frame has one end."""
    faults = [{"kind": "processor-lost", "target": "npu", "at_s": 6, "for_s": 6}]
    made = run({"clients": [{"fps": 4}]}, faults=faults)
    found: Any = made.outcome.document()
    assert found["pipelines"]["signs"]["finish_rate"] > 0.9
    workers = {
        row.worker
        for one in made.journal.decisions
        if one.name == "pipeline"
        for module in one.facts["problem"].modules  # type: ignore[attr-defined]
        if module.name == "find"
        for row in module.profiles
    }
    assert workers == {"npu", "cpu"}
