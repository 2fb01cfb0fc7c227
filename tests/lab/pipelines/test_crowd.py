"""Pipelines of a scenario, by the parts of the running box: small ones by hand, and what holds in all."""

from pathlib import Path
from typing import Any

import pytest

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from tests.harness.lanes import seeds
from tests.lab.pipelines.signs import STAGES, document

pytestmark = pytest.mark.gate("whole simulations")


def figures(pipeline: dict[str, Any], **changes: Any) -> Any:
    found: Any = simulate(parse_scenario(document(pipeline, **changes))).outcome.document()["pipelines"]
    return found["signs"]


def test_pipeline_frame_takes_its_stages_times_by_hand() -> None:
    """20 ms, a cut of 0.3 ms for each of three items, and three runs of 10 ms one after the other."""
    found = figures({"times_s": [5.0]})
    assert (found["frames"], found["finished_in_time"]) == (1, 1)
    assert found["latency_ms"]["p50"] == pytest.approx(20 + 0.9 + 30)
    assert found["cost"] == pytest.approx(0.050)
    assert found["items_per_frame"] == {"find": 1.0, "read-items": 1.0, "read": 3.0}


def test_pipeline_items_run_concurrently_on_two_workers() -> None:
    found = figures({"times_s": [5.0]}, box={"memory_mb": 100, "processors": [{"name": "cpu", "concurrency": 2}]})
    assert found["latency_ms"]["p50"] == pytest.approx(20 + 0.9 + 20)
    assert found["cost"] == pytest.approx(0.050)


def test_pipeline_condition_passes_only_matching_items() -> None:
    """Of ten items those that are cars are read."""
    stages = [
        {"application": "find", "seen": {"car": 1, "tree": 1}},
        {"name": "things", "do": "crop", "after": "find", "items": [10], "where": {"label": "car"}, "takes_ms": 0},
        {"application": "read", "after": ["things"]},
    ]
    found = figures({"stages": stages, "times_s": [*range(1, 19)], "latency_slo_ms": 500})
    assert found["finished_in_time"] == 18
    assert 3.5 < found["items_per_frame"]["read"] < 6.5


def test_pipeline_items_are_read_from_the_file_frame_by_frame(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("items\n0\n2\n4\n")
    stages = [STAGES[0], {"application": "read", "after": "find", "items_csv": "items.csv"}]
    written = document({"stages": stages, "times_s": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    found: Any = simulate(parse_scenario(written, str(tmp_path))).outcome.document()["pipelines"]
    assert found["signs"]["items_per_frame"]["read"] == pytest.approx(2.0)
    assert found["signs"]["cost"] == pytest.approx(6 * 0.020 + 12 * 0.010)


def test_pipeline_picks_and_joins_take_their_time() -> None:
    """A pick of 5 ms and a join of 7 in one pipeline; the same in another pipeline where they take no time."""
    stages: list[dict[str, Any]] = [
        {"application": "find"},
        {"name": "things", "do": "crop", "after": "find", "items": [3], "takes_ms": 0},
        {"name": "best", "do": "pick", "after": "things", "best": 1, "takes_ms": 5},
        {"application": "read", "after": "best"},
        {"name": "all", "do": "join", "after": "read", "takes_ms": 7},
    ]
    quick = {"name": "quick", "latency_slo_ms": 200, "times_s": [10.0]}
    quick["stages"] = [{**one, "takes_ms": 0} if "do" in one else one for one in stages]
    slow = {"name": "slow", "latency_slo_ms": 200, "times_s": [5.0], "stages": stages}
    found: Any = simulate(parse_scenario(document({}, pipelines=[quick, slow]))).outcome.document()["pipelines"]
    assert found["quick"]["latency_ms"]["p50"] == pytest.approx(20 + 10)
    assert found["slow"]["latency_ms"]["p50"] == pytest.approx(20 + 5 + 10 + 7)


@pytest.mark.parametrize("cost_by", ["energy", "price"])
def test_pipeline_is_planned_by_a_cost_only_when_known(cost_by: str) -> None:
    """Of all that a plan counts with, CPU stages too, which are taken for workers of the first kind; else seconds."""
    for costs, expected in (({"power_w": 20.0, "price_per_hour": 3.6}, cost_by), ({}, "seconds")):
        box = {"memory_mb": 100, "processors": [{"name": "cpu", **costs}]}
        written = document({"clients": [{"fps": 5}], "cost_by": cost_by}, box=box)
        journal = simulate(parse_scenario(written), keep_journal=True).journal
        kept: list[Any] = [one.facts["problem"] for one in journal.decisions if one.name == "pipeline"]
        assert {one.cost_by for one in kept} == {expected}


def test_pipeline_client_beyond_the_capacity_is_refused() -> None:
    """A frame takes 50 ms of one worker: 15 a second fit, 25 do not."""
    found = figures({"clients": [{"fps": 15, "arrive_s": 1, "stay_s": 10}, {"fps": 10, "arrive_s": 2, "stay_s": 5}]})
    assert found["clients"] == {"joined": 1, "refused": 1}
    assert 145 <= found["frames"] <= 150
    assert found["finish_rate"] == 1.0
    assert found["plans"] >= 2


def test_pipeline_cpu_stages_overlap_with_processors() -> None:
    """20 ms on the processor and 20 in a media thread: of 40 frames a second, which could not be done in sequence, all
    are in time (SC-24)."""
    stages = [
        {"application": "find"},
        {"name": "thing", "do": "crop", "after": "find", "items": [1], "takes_ms": 20},
    ]
    box = {"memory_mb": 100, "media_threads": 1, "processors": [{"name": "cpu"}]}
    found = figures({"stages": stages, "times_s": [1 + n / 40 for n in range(200)]}, box=box)
    assert found["finish_rate"] == 1.0
    assert found["latency_ms"]["p99"] == pytest.approx(40, abs=1)


@pytest.mark.nightly("another minute of many devices")
def test_pipeline_frames_beyond_the_capacity_are_dropped() -> None:
    found = figures({"rate_rps": 40.0})
    assert found["finished_in_time"] + found["late"] + found["failed"] <= found["frames"]
    assert 0 < found["finished_in_time"] < found["frames"]
    assert found["dropped"] > 0


def test_pipeline_costs_by_price_and_energy() -> None:
    box = {"memory_mb": 100, "processors": [{"name": "cpu", "power_w": 20.0, "price_per_hour": 3.6}]}
    assert figures({"times_s": [5.0], "cost_by": "energy"}, box=box)["cost"] == pytest.approx(1.0)
    assert figures({"times_s": [5.0], "cost_by": "price"}, box=box)["cost"] == pytest.approx(0.00005)
    assert figures({"times_s": [5.0], "cost_by": "price"})["cost"] is None


def test_pipeline_and_single_call_costs_add_up_to_the_busy_time() -> None:
    arrivals = [{"application": "read", "times_s": [float(n) for n in range(1, 19)]}]
    run = simulate(parse_scenario(document({"rate_rps": 4.0}, arrivals=arrivals)))
    found: Any = run.outcome.document()
    busy_s = found["processors"]["cpu"]["busy"] * run.outcome.end_ns / 1e9
    assert found["pipelines"]["signs"]["cost"] + 18 * 0.010 == pytest.approx(busy_s, rel=0.01)


@pytest.mark.parametrize("seed", seeds(gate=2, nightly=4))
def test_pipeline_outcome_depends_on_the_seed_alone_under_faults(seed: int) -> None:
    """Clients, single calls, a processor that is lost and one that is slow."""
    written = document(
        {"rate_rps": 5.0, "clients": [{"count": 3, "fps": 3, "arrival_rps": 0.3, "stay_s": 8}]},
        seed=seed,
        arrivals=[{"application": "read", "poisson_rps": 5}],
        faults=[
            {"kind": "processor-lost", "at_s": 6, "for_s": 2, "target": "cpu"},
            {"kind": "slow-down", "at_s": 12, "for_s": 3, "target": "cpu", "factor": 2.0},
        ],
    )
    runs: list[Any] = [simulate(parse_scenario(written)).outcome.document() for _ in range(2)]
    for one in runs:
        del one["decisions"]
    assert runs[0] == runs[1]
    found = runs[0]["pipelines"]["signs"]
    assert found["finished_in_time"] + found["failed"] <= found["frames"]
    assert found["finished_in_time"] > 0


@pytest.mark.parametrize("policy", ["frontier", "scrooge", "nexus-like", "greedy", "concurrency-1"])
def test_pipeline_planner_finishes_nine_of_ten_frames_at_low_load(policy: str) -> None:
    found = figures({"clients": [{"fps": 8}]}, policies={"pipeline": policy})
    assert found["finish_rate"] > 0.9
    assert found["clients"]["joined"] + found["clients"]["refused"] == 1
