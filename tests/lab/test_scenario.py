"""Scenarios are read from TOML and JSON alike, and a bad one is refused in one line that names the key."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from appliance.lab.problems.base import Malformed
from appliance.lab.scenario import VariantShape, latency_of, parse_scenario, read_scenario
from appliance.settings import MemorySettings, QueueSettings, ResidencySettings
from tests.lab.refusals import refusal
from tests.lab.scenarios import document, scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_scenario_of_the_project_reads_alike_from_toml_and_json(path: Path, tmp_path: Path) -> None:
    as_json = tmp_path / "scenario.json"
    as_json.write_text(json.dumps(tomllib.loads(path.read_text())))
    assert read_scenario(as_json).model_dump(exclude={"base_dir"}) == read_scenario(path).model_dump(
        exclude={"base_dir"}
    )


def test_scenario_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(policies={"selection": "most-accurate", "eviction": "lru"})))
    read = read_scenario(path, {"seed": 99, "duration_s": 5.0, "policies": {"eviction": "none"}})
    assert (read.seed, read.duration_s) == (99, 5.0)
    assert read.policies == {"selection": "most-accurate", "eviction": "none"}


def _without(key: str) -> dict[str, Any]:
    changed = document()
    del changed[key]
    return changed


def _variant(**changes: Any) -> dict[str, Any]:
    changed = document()
    changed["models"][1]["variants"][0].update(changes)
    return changed


ONE = {"application": "door"}
BAD: list[tuple[dict[str, Any], str]] = [
    (_without("box"), "box: is missing"),
    (_without("models"), "models: is missing"),
    (_without("duration_s"), "duration_s: is missing"),
    (document(duration_s=-1), "duration_s: must be > 0"),
    (document(seed="x"), "seed: must be a whole number"),
    (document(box={"memory_mb": 5, "processors": []}), "box.processors: must have at least 1"),
    (document(box={"processors": [{"name": "cpu"}]}), "box.memory_mb: is missing"),
    (document(box={"memory_mb": 5, "processors": [{"name": "a"}, {"name": "a"}]}), "box.processors[1].name: "),
    (_variant(size_mb=0), "models[1].variants[0].size_mb: must be > 0"),
    (_variant(peak_mb=1), "models[1].variants[0].peak_mb: must be >= size_mb"),
    (_variant(asleep_mb=1e6), "models[1].variants[0].asleep_mb: must be <= size_mb"),
    (_variant(wake_ms=3), "models[1].variants[0].wake_ms: is of no use without asleep_mb"),
    (_variant(asleep=True), "models[1].variants[0].asleep: needs asleep_mb, and goes with no resident"),
    (_variant(name="int8"), "models[1].variants[1].name: 'int8' is there twice"),
    (_variant(accuracy=None), "models[1].variants[0].accuracy: must be a number"),
    (_variant(latency_ms={"npu": {"1": 3}}), "models[1].variants[0].latency_ms: has nothing for processor 'cpu'"),
    (_variant(latency_ms={"cpu": {"one": 3}}), "models[1].variants[0].latency_ms.cpu.one: is not in the form"),
    (document(applications=[{"name": "a", "model": "nets"}]), "applications[0].model: 'nets' is not one of"),
    (document(arrivals=[{"application": "x", "poisson_rps": 1}]), "arrivals[0].application: 'x' is not one of"),
    (document(arrivals=[ONE]), "arrivals[0]: needs exactly one of"),
    (document(arrivals=[{**ONE, "poisson_rps": 1, "times_s": [1]}]), "arrivals[0]: needs exactly one of"),
    (document(arrivals=[{**ONE, "times_s": [1, -2]}]), "arrivals[0].times_s[1]: must be >= 0"),
    (document(arrivals=[{**ONE, "poisson_rps": 1e6}]), "duration_s: about 120000000 requests are more than"),
    (document(policies={"eviction": "best"}), "policies.eviction: 'best' is not one of"),
    (document(policies={"taste": "good"}), "policies.taste: is not one of"),
    (document(policies={"batching": "adaptive"}), "policies.batching: 'adaptive' is not one of: by-profile, none"),
    (document(faults=[{"kind": "flood", "at_s": 1}]), "faults[0].kind: 'flood' is not one of"),
    (document(faults=[{"kind": "link-down", "at_s": 1}]), "faults[0].session: is missing"),
    (document(faults=[{"kind": "slow-down", "at_s": 1}]), "faults[0].factor: is missing"),
    (document(faults=[{"kind": "memory-taken", "at_s": 1}]), "faults[0].mb: is missing"),
    (document(faults=[{"kind": "load-fails", "at_s": 1}]), "faults[0].application: is missing"),
    (
        document(faults=[{"kind": "processor-lost", "at_s": 1, "target": "npu"}]),
        "faults[0].target: 'npu' is not one of",
    ),
]


@pytest.mark.parametrize(("written", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_malformed_scenario_is_refused_by_its_key(written: dict[str, Any], sentence: str) -> None:
    assert refusal(written, parse_scenario).startswith(sentence)


@pytest.mark.parametrize("text", ["{", "[1]", "a = ", '{"seed": NaN}', "seed = 1\nseed = 2", '{"seed": 1e999}'])
def test_file_that_is_no_scenario_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    for name in ("scenario.json", "scenario.toml", "scenario"):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(Malformed) as caught:
            read_scenario(path)
        assert "\n" not in str(caught.value)


def test_latencies_are_read_by_processor_name_before_kind() -> None:
    written = document(box={"memory_mb": 700, "processors": [{"name": "cpu-0", "kind": "cpu", "concurrency": 2}]})
    rows = {"1": 40, "4x2": 90}
    written["models"][0]["variants"][0]["latency_ms"] = {"cpu": {"1": 1}, "cpu-0": rows}
    read = parse_scenario(written)
    first, second = read.models[0].variants
    assert latency_of(first, read.processor) == {(1, 1): 40, (4, 2): 90}
    assert latency_of(second, read.processor) == {(1, 1): 20}


def test_processor_with_its_own_memory_has_that_budget() -> None:
    assert scenario().memory_bytes == 700_000_000
    own = {"memory_mb": 700, "processors": [{"name": "cpu", "memory_mb": 12.5}]}
    assert scenario(box=own).memory_bytes == 12_500_000


def test_unload_time_defaults_to_a_twentieth_of_the_load_time() -> None:
    written = document()
    written["models"][0]["variants"][0]["unload_ms"] = 0
    first, second = parse_scenario(written).models[0].variants
    assert (first.unloads_in_ms, second.unloads_in_ms) == (0, 12)


def test_wake_time_defaults_to_a_tenth_of_the_load_time() -> None:
    """And a variant that says nothing of sleeping cannot sleep."""
    variant = {"name": "v", "size_mb": 10, "accuracy": 1, "load_ms": 50, "latency_ms": {"cpu": {"1": 1}}}
    shapes = [VariantShape.model_validate({**variant, **more}) for more in ({}, {"asleep_mb": 1, "wake_ms": 3})]
    assert [shape.wakes_in_ms for shape in shapes] == [5, 3]
    assert shapes[0].asleep_mb is None


def test_scenario_box_has_the_defaults_of_the_running_box() -> None:
    box, queues = scenario().box, QueueSettings()
    assert (box.queue_len_max, box.queue_total_max, box.timeout_ms) == (
        queues.len_max,
        queues.total_max,
        queues.timeout_ms,
    )
    memory = MemorySettings()
    assert (box.wait_ms_max, box.loads_parallel_max) == (memory.wait_ms_max, memory.loads_parallel_max)
    assert box.asleep_share == memory.asleep_share
    assert box.residency.model_dump() == ResidencySettings().model_dump()
