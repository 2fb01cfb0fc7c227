"""Kind `dispatch` of `appliance plan`: the format's example, random graphs against everything tried, bad problems."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.lab.plan import plan_one, plan_text
from tests.checkers import dispatch as checker
from tests.harness.lanes import examples
from tests.instances import dispatch as instances
from tests.lab.refusals import refusal

PROBLEM: dict[str, Any] = {
    "kind": "dispatch",
    "policy": "least-slack",
    "now_ms": 0,
    "transfer_ms": 0,
    "processors": [{"name": "cpu", "busy_until_ms": 0}, {"name": "npu", "busy_until_ms": 7}],
    "models": [
        {
            "name": "m",
            "ops": [
                {"name": "1", "processors": ["cpu", "npu"], "inputs": []},
                {"name": "2", "processors": ["cpu"], "inputs": ["1"]},
            ],
            "latency_ms": {"cpu": {"1": 5, "2": 4}, "npu": {"1": 2}},
        }
    ],
    "jobs": [{"name": "j1", "model": "m", "done_ops": [], "arrival_ms": 0, "slo_ms": 80}],
}


def changed(key: str, **changes: Any) -> dict[str, Any]:
    """The example with its last entry of a list changed."""
    return {**PROBLEM, key: [*PROBLEM[key][:-1], {**PROBLEM[key][-1], **changes}]}


def test_dispatch_problem_of_the_format_has_the_documented_answer() -> None:
    answer: Any = plan_text(json.dumps(PROBLEM)).answer

    assert answer["models"]["m"]["units"] == [["1"], ["2"]]
    assert answer["models"]["m"]["subgraphs"] == [
        {"ops": ["1"], "processors": ["cpu", "npu"]},
        {"ops": ["2"], "processors": ["cpu"]},
        {"ops": ["1", "2"], "processors": ["cpu"]},
    ]
    assert answer["decision"] == {
        "job": "j1",
        "ops": ["1", "2"],
        "processor": "cpu",
        "start_ms": 0,
        "expected_latency_ms": 9,
        "slack_ms": 71,
    }
    assert answer["violated"] == []
    assert answer["reason"]
    assert answer["elapsed_ms"] > 0


@examples(gate=80)
@given(seed=st.integers(0, 2**32))
def test_dispatch_decision_is_the_best_of_an_exhaustive_search(seed: int) -> None:
    """Units, subgraphs, expected latency, slack and the first run, on graphs that are no chain."""
    problem = instances.drawn(seed)

    assert checker.faults(problem, plan_one(problem)) == []


@examples(gate=60)
@given(seed=st.integers(0, 2**32))
def test_dispatch_decision_for_a_started_job_is_the_best_rest(seed: int) -> None:
    """A job goes on from its first run, on the processor that holds its results."""
    problem = instances.drawn(seed, jobs=1)
    first: Any = plan_one(problem)["decision"]
    if first is None:
        return
    (job,) = problem["jobs"]
    model = next(model for model in problem["models"] if model["name"] == job["model"])
    if len(first["ops"]) == len(model["ops"]):
        return
    rest = {**problem, "jobs": [{**job, "done_ops": first["ops"], "processor": first["processor"]}]}

    assert checker.faults(rest, plan_one(rest)) == []


def test_half_done_unit_is_cut_anew() -> None:
    ops = [{"name": str(i), "processors": ["cpu"], "inputs": [str(i - 1)] if i else []} for i in range(3)]
    model = {"name": "m", "ops": ops, "latency_ms": {"cpu": {"0": 5, "1": 4, "2": 3}}}
    answer = plan_one({**PROBLEM, "models": [model], "jobs": [{**PROBLEM["jobs"][0], "done_ops": ["0"]}]})

    decision: Any = answer["decision"]
    assert (decision["ops"], decision["expected_latency_ms"]) == (["1", "2"], 7)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (changed("jobs", slo_ms=0), "jobs[0].slo_ms: must be > 0"),
        (changed("jobs", model="x"), "jobs[0].model: 'x' is not one of: m"),
        (changed("jobs", done_ops=["2"]), "jobs[0].done_ops[0]: '2' cannot be done before '1'"),
        (changed("jobs", done_ops=["7"]), "jobs[0].done_ops[0]: '7' is not one of: 1, 2"),
        ({**PROBLEM, "jobs": PROBLEM["jobs"] * 2}, "jobs[1].name: 'j1' is there twice"),
        ({**PROBLEM, "policy": "magic"}, "policy: 'magic' is not one of: "),
        ({**PROBLEM, "transfer_ms": -1}, "transfer_ms: must be >= 0"),
        (changed("processors", busy_until_ms="7"), "processors[1].busy_until_ms: must be a number"),
        (changed("processors", name="cpu"), "processors[1].name: 'cpu' is there twice"),
        (changed("models", latency_ms={"cpu": {"1": 5, "2": 4}}), "models[0].latency_ms.npu: lacks operator '1'"),
        (changed("models", latency_ms={"cpu": {"1": -5}}), "models[0].latency_ms.cpu.1: must be >= 0"),
        (
            changed("models", ops=[{**PROBLEM["models"][0]["ops"][0], "inputs": ["1"]}]),
            "models[0].ops: operator '1' waits for itself",
        ),
        (
            changed("models", ops=[{**PROBLEM["models"][0]["ops"][0], "inputs": ["9"]}]),
            "models[0].ops[0].inputs[0]: '9' is not one of: 1",
        ),
        ({**PROBLEM, "tenants": [{"name": "a", "weight": 0}]}, "tenants[0].weight: must be > 0"),
        (
            {**changed("jobs", tenant="b"), "tenants": [{"name": "a", "weight": 1}]},
            "jobs[0].tenant: 'b' is not one of: a",
        ),
    ],
)
def test_malformed_dispatch_problem_names_its_key(problem: dict[str, Any], message: str) -> None:
    assert refusal(problem).startswith(message)
