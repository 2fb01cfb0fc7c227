"""Several processors in the lab's own engine: groups, kinds, networks in parts, and processors that are lost."""

from pathlib import Path
from typing import Any

import pytest

from appliance.lab.scenario import read_scenario
from appliance.lab.simulation import simulate
from tests.lab.scenarios import CPU, NPU, figures, resident, several

pytestmark = pytest.mark.gate("whole simulations")

BIG, LITTLE = {"name": "big", "kind": "cpu"}, {"name": "little", "kind": "cpu"}
SCENARIOS = Path(__file__).parents[2] / "scenarios"


def _written(*processors: dict[str, Any], rps: float = 50, **changes: Any) -> dict[str, Any]:
    """`faces` takes 10 ms on the first processor and on an NPU 4, on little cores 30."""
    latencies = {"big": {"1": 10}, "little": {"1": 30}, "cpu": {"1": 10}, "npu": {"1": 4}}
    own = {name: row for name, row in latencies.items() if name in [one["name"] for one in processors]}
    models, arrivals = [resident("faces", latency_ms=own)], [{"application": "door", "poisson_rps": rps}]
    given = {"models": models, "arrivals": arrivals, "duration_s": 12, **changes}
    return several(*processors, slo_ms=150, **given)


def used(found: dict[str, Any]) -> dict[str, int]:
    return {name: one["batches"] for name, one in found["processors"].items()}


@pytest.mark.nightly("minutes of many requests")
def test_big_and_little_cores_serve_a_common_queue() -> None:
    """More than the big cores could do alone; the little ones have a third as much, and nothing is loaded twice."""
    found = figures(_written(BIG, LITTLE, rps=120))
    assert found["failed"] == found["cold"] == found["loads"] == 0
    assert found["warm"] == sum(used(found).values()) > 12 * 105
    assert used(found)["little"] == pytest.approx(used(found)["big"] / 3, rel=0.35)
    assert found["memory_peak_mb"] == 100
    assert found == figures(_written(BIG, LITTLE, rps=120))


def test_network_serves_on_its_quickest_processor_kind() -> None:
    """As in the box: whole on one kind, unless memory speaks against it."""
    found = figures(_written(CPU, NPU))
    assert used(found)["cpu"] == 0
    assert used(found)["npu"] == found["requests"]


@pytest.mark.parametrize(("memory_mb", "loads"), [(500, 1), (150, 0)])
def test_network_on_a_busy_kind_serves_on_a_second_kind_if_memory_allows(memory_mb: int, loads: int) -> None:
    """As long as there is memory for both; else what the first kind cannot do in time is late."""
    box = {"memory_mb": memory_mb, "processors": [CPU, NPU]}
    found = figures(_written(CPU, NPU, box=box, rps=320, duration_s=4))
    assert found["failed"] == 0
    assert found["loads"] == loads
    assert used(found)["npu"] > 0.95 * 4 * 250
    assert used(found)["cpu"] == pytest.approx(4 * 70 * loads, rel=0.3)


def test_processor_kinds_on_the_same_core_take_turns() -> None:
    """Never more runs at once than cores."""
    box = {
        "memory_mb": 500,
        "processors": [{**CPU, "group": "cores"}, {"name": "vector", "group": "cores"}],
        "groups": [{"name": "cores", "cores": 1}],
    }
    models = [
        resident("faces", latency_ms={"cpu": {"1": 10}, "vector": {"1": 30}}),
        resident("words", latency_ms={"cpu": {"1": 30}, "vector": {"1": 10}}),
    ]
    applications = [{"name": "door", "model": "faces"}, {"name": "captions", "model": "words"}]
    arrivals = [{"application": one["name"], "times_s": [1.0] * 5} for one in applications]
    found = figures(_written(box=box, models=models, applications=applications, arrivals=arrivals))
    assert used(found) == {"cpu": 5, "vector": 5}
    assert found["latency_ms"]["p99"] == pytest.approx(100, abs=1)


@pytest.mark.parametrize("lost", ["big", "little"])
def test_cores_lost_for_seven_seconds_lose_no_answer(lost: str) -> None:
    """Under full load: every request has one answer, what ran there runs again elsewhere, and then the cores are used
    again."""
    faults = [{"kind": "processor-lost", "target": lost, "at_s": 3, "for_s": 7}]
    found = figures(_written(BIG, LITTLE, rps=130, faults=faults))
    assert found["failed"] == 0
    assert found["warm"] + found["cold"] + found["dropped"] == found["requests"]
    assert found["loads"] == 0
    in_5_s = {"big": 500, "little": 167}
    assert 0.8 * in_5_s[lost] < used(found)[lost] <= 1.02 * in_5_s[lost]


def test_lost_processor_kind_is_replaced_and_serves_again_on_return() -> None:
    """Its builds go with it and are loaded on the first kind; when the kind is back they serve there again."""
    faults = [{"kind": "processor-lost", "target": "npu", "at_s": 3, "for_s": 7}]
    found = figures(_written(CPU, NPU, rps=90, faults=faults))
    assert found["failed"] == 0
    assert found["warm"] + found["cold"] + found["dropped"] == found["requests"]
    assert used(found)["cpu"] > 400
    assert used(found)["npu"] > 350
    assert found["loads"] >= 2


def _in_parts(**changes: Any) -> dict[str, Any]:
    """A network of which the NPU lacks an operator in the middle."""
    units = {
        "ops": [
            {"name": "body", "processors": ["cpu", "npu"]},
            {"name": "resize", "processors": ["cpu"], "inputs": ["body"]},
            {"name": "heads", "processors": ["cpu", "npu"], "inputs": ["resize"]},
        ],
        "latency_ms": {"cpu": {"body": 30, "resize": 4, "heads": 20}, "npu": {"body": 5, "heads": 6}},
    }
    return _written(CPU, NPU, **{"models": [resident("faces", units=units)], **changes})


@pytest.mark.nightly("minutes of many requests")
def test_network_in_parts_uses_both_processor_kinds() -> None:
    """While a request is on the CPU others have the NPU."""
    found = figures(_in_parts(rps=60))
    assert found["failed"] == found["dropped"] == 0
    assert used(found)["npu"] > 0.9 * 2 * found["requests"]


@pytest.mark.nightly("a long simulation")
def test_processor_kind_not_needed_by_parts_helps_where_the_others_are_taken() -> None:
    """A third kind runs all of the network, more slowly than the other two together."""
    gpu = {"name": "gpu"}
    units = _in_parts()["models"][0]["variants"][0]["units"]
    ops = [{**op, "processors": [*op["processors"], "gpu"]} for op in units["ops"]]
    latency_ms = {**units["latency_ms"], "gpu": {"body": 40, "resize": 6, "heads": 30}}
    box = {"memory_mb": 500, "processors": [CPU, NPU, gpu]}
    models = [resident("faces", units={"ops": ops, "latency_ms": latency_ms}, load_ms=50)]
    found = figures(_in_parts(box=box, models=models, rps=100, duration_s=4))
    assert used(found)["gpu"] > 10
    assert found["memory_peak_mb"] == pytest.approx(267, abs=1)


def test_network_in_parts_survives_the_loss_of_a_processor_kind() -> None:
    """Each request under way then goes on elsewhere with what it has, and is answered once."""
    faults = [{"kind": "processor-lost", "target": "npu", "at_s": 3, "for_s": 7}]
    found = figures(_in_parts(rps=40, faults=faults))
    assert found["failed"] == 0
    assert found["warm"] + found["cold"] + found["dropped"] == found["requests"]
    assert found["warm"] > 0.9 * found["requests"] * 5 / 12


@pytest.mark.nightly("a long simulation")
def test_scenario_of_four_processors_runs_in_the_engine() -> None:
    """With the NPU lost for seven of thirty seconds."""
    read = read_scenario(SCENARIOS / "four-processors.toml", {"duration_s": 20})
    found: dict[str, Any] = simulate(read).outcome.document()
    assert found["failed"] == 0
    assert min(used(found)[name] for name in ("gpu", "npu")) > 300


def test_hot_phone_loses_its_npu_and_no_answer() -> None:
    """The end of its eleven minutes, in ten seconds."""
    lost = [{"kind": "processor-lost", "target": "npu", "at_s": 2, "for_s": 3}]
    read = read_scenario(SCENARIOS / "hot-phone.toml", {"duration_s": 10, "faults": lost})
    answers = simulate(read).outcome.answers
    assert {answer.kind for answer in answers} <= {"warm", "cold", "dropped"}
    in_time = [answer.variant is not None and not answer.is_late for answer in answers if answer.at_ns > 7e9]
    assert sum(in_time) > 0.98 * len(in_time)
