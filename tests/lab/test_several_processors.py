"""Scenarios with several processors, or networks in units: where runs go, losses, tenants, and what is refused."""

from random import Random
from typing import Any

import pytest

from appliance.lab.clairvoyant.reference import references
from appliance.lab.report import report
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.dispatch import DISPATCH_POLICIES
from tests.harness.lanes import seeds
from tests.lab.refusals import refusal
from tests.lab.scenarios import CPU, NPU, document, figures, resident, several

pytestmark = pytest.mark.gate("whole simulations")


def _written(*processors: dict[str, Any], times_s: list[float] | None = None, **changes: Any) -> dict[str, Any]:
    """`faces` takes 40 ms on the CPU and 10 on the NPU."""
    models = [resident("faces", latency_ms={"cpu": {"1": 40}, "npu": {"1": 10}})]
    arrivals = [{"application": "door", "times_s": times_s or [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}]
    return several(*processors, **{"models": models, "arrivals": arrivals, **changes})


def test_workers_of_a_processor_run_concurrently() -> None:
    """Two runs at once take 15 ms each, and nothing is assumed of more."""
    model = resident("faces", latency_ms={"npu": {"1": 10, "1x2": 15}})

    found = figures(_written(CPU, {**NPU, "concurrency": 2}, models=[model]))

    assert found["processors"]["npu"]["batches"] == 6
    assert found["latency_ms"]["p99"] == 45


def test_network_in_units_runs_each_unit_on_its_processor() -> None:
    """5 ms on the NPU, 4 on the CPU, 6 on the NPU; meanwhile others have the NPU."""
    graph = {
        "ops": [
            {"name": "body", "processors": ["cpu", "npu"]},
            {"name": "resize", "processors": ["cpu"], "inputs": ["body"]},
            {"name": "head", "processors": ["cpu", "npu"], "inputs": ["resize"]},
        ],
        "latency_ms": {"cpu": {"body": 90, "resize": 4, "head": 90}, "npu": {"body": 5, "head": 6}},
    }
    box = {"memory_mb": 500, "processors": [CPU, NPU]}

    one = figures(_written(box=box, models=[resident("faces", units=graph)], times_s=[1.0]))
    both = figures(_written(box=box, models=[resident("faces", units=graph)], times_s=[1.0, 1.0]))

    assert one["latency_ms"]["p99"] == 15
    assert both["latency_ms"]["p99"] < 2 * 15
    assert {name: use["batches"] for name, use in both["processors"].items()} == {"cpu": 2, "npu": 4}


def test_network_in_units_on_equal_processors_runs_as_one_unit() -> None:
    latency_ms = {"cpu": {"1": 40}, "npu": {"1": 10}}
    pieces = _written(CPU, NPU, models=[resident("faces", latency_ms=latency_ms, units=4)])
    assert figures(pieces) == figures(_written(CPU, NPU))


def test_requests_fail_when_their_only_processor_never_returns() -> None:
    lost = [{"kind": "processor-lost", "target": "npu", "at_s": 0.5}]
    model = resident("faces", latency_ms={"npu": {"1": 10}})

    found = figures(_written(CPU, NPU, models=[model], faults=lost))

    assert (found["failed"], found["warm"]) == (6, 0)


def test_slowed_down_processor_takes_longer() -> None:
    slow = [{"kind": "slow-down", "target": "npu", "at_s": 0.5, "for_s": 1, "factor": 3}]

    found = figures(_written(NPU, CPU, faults=slow, times_s=[1.0, 3.0]))

    assert found["latency_ms"] == {"p50": 10, "p99": 30}


def test_tenant_is_not_delayed_by_the_flood_of_another() -> None:
    """One floods; the other's requests do not wait behind all of it."""
    applications = [
        {"name": "flood", "model": "faces", "tenant": "loud", "late": "run"},
        {"name": "door", "model": "faces", "tenant": "calm"},
    ]
    arrivals = [
        {"application": "flood", "times_s": [1.0] * 100},
        {"application": "door", "times_s": [1.02, 1.05, 1.08]},
    ]

    found = figures(_written(NPU, CPU, applications=applications, arrivals=arrivals))

    assert found["applications"]["door"]["latency_ms"]["p99"] <= 60


def test_requests_beyond_the_queue_limit_are_dropped() -> None:
    """One of six runs, four wait."""
    box = {"memory_mb": 500, "processors": [CPU, NPU], "queue_len_max": 4}
    assert figures(_written(box=box))["dropped"] == 1


def test_processors_own_memory_counts_when_none_is_shared() -> None:
    box = {"processors": [{**CPU, "memory_mb": 60}, {**NPU, "memory_mb": 50}]}
    assert figures(_written(box=box))["warm"] == 6


def test_networks_that_run_on_different_processors_share_a_box() -> None:
    """No processor runs both."""
    models = [resident("faces", latency_ms={"npu": {"1": 10}}), resident("words", latency_ms={"cpu": {"1": 20}})]
    applications = [{"name": "door", "model": "faces"}, {"name": "text", "model": "words"}]
    arrivals = [{"application": name, "times_s": [1.0, 2.0]} for name in ("door", "text")]

    found = figures(_written(CPU, NPU, models=models, applications=applications, arrivals=arrivals))

    assert {name: use["batches"] for name, use in found["processors"].items()} == {"cpu": 2, "npu": 2}
    assert found["applications"]["door"]["latency_ms"]["p99"] == 10
    assert found["applications"]["text"]["latency_ms"]["p99"] == 20


def _parted() -> dict[str, Any]:
    """A network that no processor runs whole."""
    ops = [{"name": "body", "processors": ["npu"]}, {"name": "head", "processors": ["cpu"], "inputs": ["body"]}]
    return resident("faces", units={"ops": ops, "latency_ms": {"cpu": {"head": 4}, "npu": {"body": 5}}})


def test_network_that_no_processor_runs_whole_runs_in_parts() -> None:
    found = figures(_written(CPU, NPU, models=[_parted()], times_s=[1.0]))

    assert (found["failed"], found["latency_ms"]["p99"]) == (0, 9)


def test_requests_fail_while_a_part_has_no_processor() -> None:
    lost = [{"kind": "processor-lost", "target": "npu", "at_s": 2, "for_s": 2}]

    found = figures(_written(CPU, NPU, models=[_parted()], faults=lost, times_s=[1.0, 3.0, 8.0]))

    assert (found["failed"], found["warm"] + found["cold"]) == (1, 2)


def test_processors_of_a_kind_on_the_same_cores_run_beside_one_another() -> None:
    twins = [{"name": name, "kind": "cpu", "group": "cores"} for name in ("a", "b")]
    box = {"memory_mb": 500, "processors": twins, "groups": [{"name": "cores", "cores": 2}]}

    found = figures(_written(box=box, times_s=[1.0, 1.0]))

    assert {name: use["batches"] for name, use in found["processors"].items()} == {"a": 1, "b": 1}
    assert found["latency_ms"]["p99"] == 40


def test_report_of_several_processors_shows_networks_in_parts() -> None:
    scenario = parse_scenario(_written(CPU, NPU, models=[_parted()]))
    assert "faces" in report(scenario, simulate(scenario, keep_journal=True), "t")


def test_simulation_figures_depend_on_the_seed_alone() -> None:
    written = _written(CPU, NPU, arrivals=[{"application": "door", "poisson_rps": 80}])
    assert figures(written) == figures(written)
    assert figures(written) != figures({**written, "seed": 4})


@pytest.mark.parametrize("policy", DISPATCH_POLICIES)
def test_dispatch_policy_answers_or_drops_every_request(policy: str) -> None:
    arrivals = [{"application": "door", "poisson_rps": 50}]
    found = figures(_written(CPU, NPU, arrivals=arrivals, policies={"dispatch": policy}))
    assert found["requests"] == found["warm"] + found["cold"] + found["dropped"]


GRAPH = {"ops": [{"name": "a", "processors": ["cpu"]}], "latency_ms": {"cpu": {"a": 1}}}
WRONG = [
    ({"box": {"memory_mb": 50, "processors": [CPU, CPU]}}, "box.processors[1].name"),
    (
        {"box": {"memory_mb": 5, "processors": [CPU, NPU], "groups": [{"name": "x", "cores": 1}]}},
        "box.groups[0].name: ",
    ),
    ({"policies": {"dispatch": "magic"}}, "policies.dispatch: "),
    ({"models": [resident("faces", latency_ms={"gpu": {"1": 1}})]}, "models[0].variants[0].latency_ms: has nothing"),
    (
        {"models": [resident("faces", units={**GRAPH, "latency_ms": {}})]},
        "models[0].variants[0].units.latency_ms.cpu: lacks operator 'a'",
    ),
    (
        {"models": [resident("faces", units={**GRAPH, "ops": [{"name": "a", "processors": ["dsp"]}]})]},
        "models[0].variants[0].units.ops[0].processors: has none",
    ),
    (
        {"models": [resident("faces", units={**GRAPH, "ops": [{**GRAPH["ops"][0], "inputs": ["a"]}]})]},  # type: ignore[index]
        "models[0].variants[0].units.ops: operator 'a' waits for itself",
    ),
    (
        {
            "box": {"memory_mb": 500, "processors": [CPU, {"name": "second", "kind": "npu"}, NPU]},
            "models": [resident("faces", latency_ms={"cpu": {"1": 40}, "second": {"1": 10}})],
        },
        "box.processors[2].kind: is that of 'second'",
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_impossible_scenario_is_refused_by_its_key(changes: dict[str, Any], message: str) -> None:
    assert refusal(_written(CPU, NPU, **changes), figures).startswith(message)


def test_clairvoyant_reference_refuses_several_processors() -> None:
    with pytest.raises(ValueError, match="several processors"):
        references(parse_scenario(_written(CPU, NPU)), [0.5])


def test_scenario_with_one_processor_makes_no_dispatch_decisions() -> None:
    """A box's own scenario names all its policies."""
    found = simulate(parse_scenario(document(policies={"dispatch": "fifo"}))).outcome.document()
    assert "dispatch" not in found["decisions"]  # type: ignore[operator]


@pytest.mark.parametrize("seed", seeds(gate=4, nightly=12))
def test_random_box_answers_each_request_once(seed: int) -> None:
    """Processors in groups, with workers, that are lost and slowed down; graphs; tenants; queues that are full."""
    random = Random(seed)
    names = [f"p{n}" for n in range(random.randint(2, 5))]
    processors: list[dict[str, Any]] = [
        {"name": name, "kind": random.choice(("cpu", "npu")), "concurrency": random.randint(1, 2)} for name in names
    ]
    for shape in processors:
        if random.random() < 0.5:
            shape["group"] = "cores"
    groups = [{"name": "cores", "cores": 1}] if any("group" in shape for shape in processors) else []

    kinds = sorted({shape["kind"] for shape in processors})

    def graph() -> dict[str, Any]:
        ops = [f"op{n}" for n in range(random.randint(1, 5))]
        able = {op: random.sample(kinds, random.randint(1, len(kinds))) for op in ops}
        return {
            "ops": [
                {"name": op, "processors": able[op], "inputs": random.sample(ops[:n], random.randint(0, min(n, 2)))}
                for n, op in enumerate(ops)
            ],
            "latency_ms": {name: {op: random.uniform(0, 20) for op in ops if name in able[op]} for name in kinds},
        }

    models = [
        resident("faces", latency_ms={"cpu": {"1": 30}, "npu": {"1": 8, "1x2": 12}}),
        resident("words", units=graph()),
    ]
    applications: list[dict[str, Any]] = [
        {"name": "door", "model": "faces", "latency_slo_ms": 60, "tenant": "a"},
        {"name": "late", "model": "faces", "latency_slo_ms": 60, "late": "run", "tenant": "b"},
        {"name": "text", "model": "words", "tenant": "b"},
    ]
    wrongs = ({"kind": "processor-lost"}, {"kind": "slow-down", "factor": 2.5})
    faults = [
        {
            **random.choice(wrongs),
            "target": random.choice(names),
            "at_s": random.uniform(0, 4),
            "for_s": random.uniform(0.1, 2),
        }
        for _ in range(4)
    ]
    written = _written(
        box={"memory_mb": 500, "processors": processors, "groups": groups, "queue_total_max": 50},
        models=models,
        applications=applications,
        arrivals=[{"application": a["name"], "poisson_rps": random.uniform(5, 60)} for a in applications],
        faults=faults,
        policies={"dispatch": random.choice(sorted(DISPATCH_POLICIES))},
        duration_s=5,
        seed=seed,
    )

    found = figures(written)

    assert found["requests"] == sum(found[kind] for kind in ("warm", "cold", "failed", "dropped"))
    assert all(0 <= use["busy"] <= 1 for use in found["processors"].values())
    assert sum(one["requests"] for one in found["applications"].values()) == found["requests"] > 0
    assert figures(written) == found
