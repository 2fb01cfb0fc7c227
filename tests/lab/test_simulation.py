"""Whole scenarios through the running box's engine: every request has one answer, memory holds, times are what the
profiles say.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.lab.scenario import Scenario, parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.residency import EVICTION_POLICIES
from tests.lab.scenarios import document, scenario

pytestmark = pytest.mark.gate("whole simulations")


def _figures(read: Scenario) -> dict[str, Any]:
    return simulate(read).outcome.document()


def _check(figures: dict[str, Any], memory_mb: float) -> None:
    for part in (figures, *figures["applications"].values()):
        assert part["requests"] == part["warm"] + part["cold"] + part["failed"] + part["dropped"]
    assert figures["requests"] == sum(a["requests"] for a in figures["applications"].values())
    assert 0 < figures["memory_peak_mb"] <= memory_mb


@pytest.mark.parametrize("memory_mb", [100, 140, 300, 700, 2000])
def test_simulation_figures_add_up_at_any_memory_size(memory_mb: float) -> None:
    read = scenario(box={"memory_mb": memory_mb, "processors": [{"name": "cpu"}]})
    figures = _figures(read)
    assert figures["requests"] > 100
    if memory_mb == 100:  # not even the smallest fits
        assert figures["failed"] == figures["requests"]
        assert (figures["memory_peak_mb"], figures["accuracy_mean"], figures["utility"]) == (0, None, 0)
    else:
        _check(figures, memory_mb)


def test_cold_request_takes_load_and_run_and_warm_request_its_run() -> None:
    figures = _figures(scenario(duration_s=10, arrivals=[{"application": "door", "times_s": [1, 5]}]))
    assert (figures["cold"], figures["warm"], figures["loads"]) == (1, 1, 1)
    assert figures["latency_ms"] == {"p50": 40, "p99": 940}
    assert figures["accuracy_mean"] == figures["utility"] == 90
    assert figures["robustness"] == 0.45
    assert figures["processors"]["cpu"] == {"busy": 0.008, "idle": 0.992, "batches": 2}
    assert figures["slo_attainment"] is None


def _sleeping(memory_mb: float, **changes: Any) -> Scenario:
    """Variants that keep 3 MB asleep and wake in 10 ms."""
    written = document(box={"memory_mb": memory_mb, "processors": [{"name": "cpu"}]}, **changes)
    for model in written["models"]:
        for variant in model["variants"]:
            variant |= {"asleep_mb": 3, "wake_ms": 10}
    return parse_scenario(written)


@pytest.mark.parametrize("eviction", sorted(EVICTION_POLICIES))
@pytest.mark.parametrize("memory_mb", [145, 300, 700, 2000])
def test_sleeping_variants_are_loaded_once(memory_mb: float, eviction: str) -> None:
    """The emulated processor would break the simulation at the first byte too much, or at a run of a sleeper."""
    figures = _figures(_sleeping(memory_mb, policies={"eviction": eviction}))
    _check(figures, memory_mb)
    assert figures["loads"] <= 4
    if memory_mb == 700 and eviction != "none":
        assert figures["wakes"] > 0


def test_wake_counts_as_cold_and_is_charged_as_a_wait() -> None:
    """Loads of 240 and 230 ms, in sequence in memory for one; then each sleeps while the other is asked."""
    times = [{"application": a, "times_s": [s, s + 40]} for a, s in (("door", 1), ("captions", 20))]
    figures = _figures(_sleeping(145, duration_s=80, arrivals=times, policies={"eviction": "lru"}))
    assert (figures["cold"], figures["loads"]) == (4, 2)
    assert figures["wakes"] >= 2
    assert figures["wait_ms"]["p99"] > 230
    assert figures["wait_ms"]["mean"] == pytest.approx((240 + 240 + 20 + 20) / 4, abs=10)


def test_refused_requests_are_charged_their_wait() -> None:
    """Until they were refused."""
    applications = [{"name": "door", "model": "faces", "latency_slo_ms": 300}]
    figures = _figures(scenario(applications=applications, arrivals=[{"application": "door", "times_s": [1]}]))
    assert figures["dropped"] == 1
    assert figures["wait_ms"]["mean"] == pytest.approx(300, abs=0.1)


def test_requests_of_a_burst_join_the_same_load() -> None:
    figures = _figures(scenario(arrivals=[{"application": "door", "times_s": [1, 1, 1.2, 1.8]}]))
    assert (figures["cold"], figures["warm"], figures["loads"]) == (4, 0, 1)


def test_late_requests_are_dropped_and_count_against_the_slo() -> None:
    applications = [{"name": "door", "model": "faces", "latency_slo_ms": 100}]
    arrivals = [{"application": "door", "times_s": [1, 5, 6, 6, 6]}]
    figures = _figures(scenario(applications=applications, arrivals=arrivals))
    assert (figures["dropped"], figures["warm"], figures["late"]) == (
        2,
        3,
        0,
    )  # the first waits for a load, the last of three for two runs
    assert figures["slo_attainment"] == 0.6


def test_tenant_over_its_rate_is_refused() -> None:
    written = document(duration_s=20, tenants=[{"name": "shop", "rate_rps": 1}])
    written["applications"][0]["tenant"] = "shop"
    written["arrivals"] = [{"application": "door", "times_s": [5.0, 5.1, 5.2, 9.0]}]
    figures = _figures(Scenario.model_validate(written))
    assert (figures["dropped"], figures["cold"], figures["warm"]) == (2, 1, 1)


def test_run_times_are_drawn_from_those_served_on_the_processor() -> None:
    """In place of the profile's; what was seen on another processor does not count."""
    written = document(arrivals=[{"application": "door", "times_s": list(range(1, 60))}])
    shape = written["models"][0]["variants"][0]
    for processor, latencies_ms in (("cpu", {10, 30}), ("gpu", {40})):
        shape |= {"served_ms": {processor: [10, 30]}}
        answers = simulate(Scenario.model_validate(written)).outcome.answers
        assert {round(a.latency_ns / 1e6) for a in answers if a.kind == "warm"} == latencies_ms


def test_resident_variant_at_the_start_is_warm_and_no_load() -> None:
    """As far as there is room: the second variant finds none."""
    written = document(duration_s=10, arrivals=[{"application": "door", "times_s": [0]}])
    for model in written["models"]:
        model["variants"][0]["resident"] = True
    figures = _figures(Scenario.model_validate(written))
    assert (figures["warm"], figures["cold"], figures["loads"]) == (1, 0, 0)
    assert figures["latency_ms"]["p99"] == 40


def test_sleeping_variant_at_the_start_is_woken_and_not_loaded() -> None:
    """Two variants that do not fit together awake: one is in memory and warm, the other is woken, once the first
    sleeps: 20 ms each."""
    written = document(
        duration_s=1.5,
        box={"memory_mb": 700, "processors": [{"name": "cpu"}]},
        arrivals=[{"application": "door", "times_s": [0]}, {"application": "captions", "times_s": [1]}],
    )
    for model, state in zip(written["models"], ("resident", "asleep"), strict=True):
        model["variants"] = [{**model["variants"][0], "asleep_mb": 5, "wake_ms": 20, state: True}]
    figures = _figures(Scenario.model_validate(written))
    assert (figures["warm"], figures["cold"], figures["loads"], figures["wakes"]) == (1, 1, 0, 1)
    assert figures["latency_ms"] == {"p50": 40, "p99": 70}


FAULTS: list[dict[str, Any]] = [
    {"kind": "processor-lost", "at_s": 20, "for_s": 10, "target": "cpu"},
    {"kind": "load-fails", "at_s": 0, "for_s": 30, "application": "door"},
    {"kind": "slow-down", "at_s": 10, "for_s": 60, "factor": 30},
    {"kind": "memory-taken", "at_s": 30, "for_s": 30, "mb": 600},
    {"kind": "clock-step", "at_s": 10, "ms": -3_600_000},
]


@pytest.mark.nightly("a simulation for each kind of fault; the soak has them all")
@pytest.mark.parametrize("fault", FAULTS, ids=[f["kind"] for f in FAULTS])
def test_fault_costs_answers_but_loses_no_request(fault: dict[str, Any]) -> None:
    sound, faulty = _figures(scenario()), _figures(scenario(faults=[fault]))
    _check(faulty, 700)
    assert faulty["requests"] == sound["requests"]
    if fault["kind"] == "clock-step":
        assert {**faulty, "decisions": None} == {**sound, "decisions": None}
    elif fault["kind"] == "memory-taken":
        assert faulty["utility"] < sound["utility"]
    elif fault["kind"] == "slow-down":
        assert faulty["latency_ms"]["p99"] > 5 * sound["latency_ms"]["p99"]
    else:
        assert faulty["failed"] > sound["failed"] == 0


def test_fault_ends_after_its_duration() -> None:
    lost = {"kind": "processor-lost", "at_s": 4, "for_s": 2, "target": "cpu"}
    figures = _figures(scenario(faults=[lost], arrivals=[{"application": "door", "times_s": [1, 5, 7]}]))
    assert (figures["cold"], figures["failed"], figures["warm"]) == (1, 1, 1)


def test_given_forecast_loads_a_model_before_its_first_request() -> None:
    arrivals = [{"application": "door", "times_s": [10, 40], "predicted_s": [10, 40]}]
    figures = _figures(scenario(arrivals=arrivals))
    assert (figures["warm"], figures["cold"]) == (2, 0)
    unforeseen = _figures(scenario(arrivals=[{"application": "door", "times_s": [10, 40]}]))
    assert unforeseen["cold"] == 1


def test_idle_box_comes_to_rest() -> None:
    """Asked twice, then nothing for an hour: a dozen windows in the first seconds, none later, and no window is an
    event.
    """
    run = simulate(
        scenario(arrivals=[{"application": "door", "times_s": [1, 1.05]}], duration_s=3600), keep_journal=True
    )
    assert 2 <= len(run.journal.edges) <= 24
    assert run.journal.edges[-1].at_ns < 10 * 10**9
    assert not run.journal.edges[-1].opens
    assert [e for e in run.journal.events if "window" in e.name] == []


@pytest.mark.parametrize("name", ["ewma", "renewal", "rnn"])
def test_forced_forecaster_is_the_only_one_chosen(name: str) -> None:
    run = simulate(scenario(policies={"forecast": name}), keep_journal=True)
    chosen = [e.facts for e in run.journal.events if e.name == "forecaster chosen"]
    assert {facts["forecaster"] for facts in chosen} == {name}
    assert all(isinstance(errors := facts["error_ms"], dict) and list(errors) == [name] for facts in chosen)


@pytest.mark.nightly("a process for each seed")
@pytest.mark.usefixtures("processes")
def test_simulation_output_of_a_seed_is_equal_in_every_process(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(faults=FAULTS)))
    answers = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "appliance", "simulate", str(path), "--json", "--seed", "11"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        answers.append(json.dumps({**json.loads(done.stdout), "decisions": None}))
    assert answers[0] == answers[1]
    assert simulate(scenario(seed=12)).outcome.answers != simulate(scenario(seed=13)).outcome.answers


@pytest.mark.parametrize(
    ("prefer", "loss", "accuracy"),
    [("balanced", 0.4, 89.8), ("balanced", 0.6, 90), ("balanced", None, 90), ("accuracy", 0.4, 90), ("speed", 9, 89.8)],
)
def test_variant_preferred_by_the_application_is_the_only_one_loaded(
    prefer: str, loss: float | None, accuracy: float
) -> None:
    """There is room for either variant."""
    small = document()
    quick = small["models"][0]["variants"][1]
    quick.update({"accuracy": 89.8} | ({} if loss is None else {"loss": loss}))
    figures = _figures(
        scenario(
            models=small["models"],
            applications=[{"name": "door", "model": "faces", "prefer": prefer}],
            arrivals=[{"application": "door", "poisson_rps": 1}],
        )
    )
    assert (figures["accuracy_mean"], figures["loads"]) == (accuracy, 1)
