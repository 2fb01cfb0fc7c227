"""`appliance plan`, kind `offload`: written problem in, written plan out, and what is refused with which key."""

import json
from typing import Any

import pytest

from appliance.lab.plan import plan_one, plan_text
from appliance.lab.problems.base import Malformed
from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.runtime.decisions.sessions import offload_problem_json
from tests.lab.refusals import refusal


def _problem(**changes: Any) -> dict[str, Any]:
    """The example of the format."""
    client = {
        "name": "c1",
        "drop_rate": 0.005,
        "accuracy_slo": 0.03,
        "uplink_ms": 10,
        "downlink_ms": 4,
        "last_frame": 18,
        "last_arrival_ms": 310,
        "last_result_frame": 18,
        "last_result_ms": 340,
    }
    new = {"name": "c9", "drop_rate": 0.006, "accuracy_slo": 0.04, "uplink_ms": 14, "downlink_ms": 6}
    return {
        "kind": "offload",
        "fps": 60,
        "now_ms": 400,
        "horizon_ms": 1000,
        "busy_until_ms": 410,
        "grace": 0.1,
        "inference_ms": {"1": 20, "2": 26, "4": 40},
        "clients": [client],
        "waiting": [new],
        **changes,
    }


@pytest.mark.parametrize("policy", ["static", "clipper-like", "chameleon-like", "arise-alpha", "arise", "earliest-due"])
def test_offload_policy_answer_has_all_keys_and_consistent_frames(policy: str) -> None:
    answer: Any = plan_one(_problem(policy=policy))
    assert set(answer) >= {"clients", "admitted", "removed", "batches", "reason", "elapsed_ms"}
    for client in answer["clients"]:
        frames = [f for b in answer["batches"] for name, f in b["requests"] if name == client["name"]]
        assert client["frames"] == frames
        assert set(client) >= {"name", "interval", "batch", "variant", "expected_drop"}


def test_offload_plan_serves_as_previous_plan_of_the_next_problem() -> None:
    """`batches` of an answer are `previous.batches` of a problem 200 ms later."""
    first: Any = plan_one(_problem())
    later: Any = plan_one(_problem(now_ms=600, busy_until_ms=600, previous={"batches": first["batches"]}))
    assert later["removed"] == []


def test_offload_answer_names_the_variant_of_clients_and_batches() -> None:
    """With candidates, each client and each batch says which variant it runs."""
    problem = _problem()
    problem["waiting"][0]["variants"] = [
        {"name": "small", "accuracy_gap": 0.01, "uplink_ms": 9, "inference_ms": {"1": 8, "2": 10}},
        {"name": "large", "accuracy_gap": 0.0, "uplink_ms": 14, "inference_ms": {"1": 20, "2": 26}},
    ]
    answer: Any = plan_one(problem)
    assert {c["name"]: c["variant"] for c in answer["clients"]}["c9"] in ("small", "large")
    assert {b["variant"] for b in answer["batches"]} >= {None}


def test_offload_arrivals_count_more_than_the_given_uplink() -> None:
    """Six frames that took 30 ms each: no batch holds a frame that 10 ms would bring in time and 30 would not."""
    problem = _problem(waiting=[])
    problem["clients"][0]["arrivals"] = [[f, f * 1000 / 60 + 30.0] for f in range(6, 18, 2)]
    answer: Any = plan_one(problem)
    assert answer["batches"]
    for batch in answer["batches"]:
        assert all(f * 1000 / 60 + 29.9 <= batch["start_ms"] for _, f in batch["requests"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fps": 0}, "fps: must be > 0"),
        ({"policy": "best"}, "policy: 'best' is not one of: static"),
        ({"inference_ms": {}}, "inference_ms: must have at least 1"),
        ({"inference_ms": {"two": 5}}, "inference_ms.two: is not in the form"),
        ({"inference_ms": {"1": 1e-9}}, "inference_ms: more than 20000 batches"),
        ({"horizon_ms": 1e7}, "horizon_ms: must hold at most 20000 frames"),
        ({"clients": [{"name": "x"}]}, "clients[0].drop_rate: is missing"),
    ],
)
def test_malformed_offload_problem_is_refused_by_its_key(changes: dict[str, Any], message: str) -> None:
    assert refusal(_problem(**changes)).startswith(message)


def test_offload_client_both_served_and_waiting_is_refused() -> None:
    problem = _problem()
    problem["waiting"][0]["name"] = "c1"
    with pytest.raises(Malformed, match=r"waiting\[0\].name: 'c1' is among the clients already"):
        plan_one(problem)


def test_offload_result_without_a_time_is_refused() -> None:
    problem = _problem()
    del problem["clients"][0]["last_result_ms"]
    with pytest.raises(Malformed, match=r"clients\[0\].last_result_ms: is missing"):
        plan_one(problem)


def test_problem_list_answers_good_and_malformed_problems() -> None:
    """The malformed problem says why, the good one is planned, and the whole says that something was wrong."""
    outcome = plan_text(json.dumps([_problem(), _problem(fps=-1)]))
    answers: Any = outcome.answer
    assert outcome.malformed
    assert answers[0]["admitted"] == ["c9"]
    assert answers[1] == {"error": "fps: must be > 0"}


def test_offload_variant_may_have_a_drop_rate_of_its_own() -> None:
    """Written as it is recorded, and read again; a problem without it is what it was."""
    variants = tuple(
        Variant(name, gap, 4.0, {1: 5.0}, rate) for name, gap, rate in (("a", 0.0, None), ("b", 0.1, 0.02))
    )
    client = Client("c", 0.004, 0.06, 10.0, 5.0, variants=variants, reference_stride=0.0)
    written = offload_problem_json(OffloadInput(30.0, 0.0, 1000.0, {1: 5.0}, waiting=(client,)))
    assert [variant.get("drop_rate") for variant in written["waiting"][0]["variants"]] == [None, 0.02]
    answer: Any = plan_one(written)
    assert answer["clients"][0]["variant"] == "a"
    written["waiting"][0]["variants"][1]["drop_rate"] = -1.0
    with pytest.raises(Malformed, match="drop_rate"):
        plan_one(written)
