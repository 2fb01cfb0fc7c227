"""The dispatcher of `appliance plan`: lists, statuses, one-line messages."""

import json
import subprocess
import sys
from typing import Any

import pytest

from appliance.lab.plan import plan_one, plan_text
from appliance.lab.problems.base import Malformed

PROBLEM: dict[str, Any] = {
    "kind": "adaptation",
    "models": [
        {"name": "yolo-128", "accuracy": 0.21, "input_bytes": 9000, "latency_ms": {"1": 23, "2": 28}},
        {"name": "yolo-160", "accuracy": 0.25, "input_bytes": 14000, "latency_ms": {"1": 60, "2": 70}},
    ],
    "workers": 2,
    "previous": ["yolo-128", "yolo-128"],
    "clients": [{"name": "c1", "rate_rps": 15, "slo_ms": 100, "bandwidth_bps": 15000000}],
    "seed": 1,
}


def with_client(**changes: Any) -> dict[str, Any]:
    return {**PROBLEM, "clients": [PROBLEM["clients"][0], {**PROBLEM["clients"][0], "name": "c2", **changes}]}


def test_adaptation_problem_of_the_format_has_the_documented_answer() -> None:
    answer: Any = plan_text(json.dumps(PROBLEM)).answer

    assert answer["workers"] == [{"worker": 0, "model": "yolo-128", "batch": 1, "clients": ["c1"]}]
    assert answer["unmapped"] == []
    assert answer["objective"] == pytest.approx(3.15)
    assert answer["prefetch"] == ["yolo-160"]
    assert answer["elapsed_ms"] > 0
    assert answer["reason"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (with_client(slo_ms=0), "clients[1].slo_ms: must be > 0"),
        (with_client(slo_ms="90"), "clients[1].slo_ms: must be a number"),
        (with_client(rate_rps=True), "clients[1].rate_rps: must be a number"),
        (with_client(bandwidth_bps=None), "clients[1].bandwidth_bps: must be a number"),
        (with_client(name="c1"), "clients[1].name: 'c1' is there twice"),
        ({**PROBLEM, "workers": 0}, "workers: must be >= 1"),
        ({**PROBLEM, "workers": 10**9}, "workers: must be <= 256"),
        ({**PROBLEM, "models": []}, "models: must have at least 1"),
        ({**PROBLEM, "previous": ["yolo-999"]}, "previous[0]: 'yolo-999' is not one of: yolo-128, yolo-160"),
        ({**PROBLEM, "policy": "magic"}, "policy: 'magic' is not one of: "),
        ({k: v for k, v in PROBLEM.items() if k != "clients"}, "clients: is missing"),
        (
            {**PROBLEM, "models": [{**PROBLEM["models"][0], "latency_ms": {"x": 1}}]},
            "models[0].latency_ms.x: is not in the form",
        ),
        (
            {**PROBLEM, "models": [{**PROBLEM["models"][0], "latency_ms": {"1": -1}}]},
            "models[0].latency_ms.1: must be > 0",
        ),
        ({"kind": "chess"}, "kind: 'chess' is not one of: adaptation"),
        ({}, "kind: is missing"),
        (7, "problem: must be an object"),
    ],
)
def test_malformed_adaptation_problem_names_its_key(document: Any, message: str) -> None:
    """One line with the key at fault and what it must be."""
    with pytest.raises(Malformed) as caught:
        plan_text(json.dumps(document))

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"kind": Infinity}', "[" * 100_000, "1" * 10_000])
def test_plan_input_that_is_no_json_is_refused(text: str) -> None:
    """Broken, infinite, endlessly nested or endless numbers: a sentence, no traceback."""
    with pytest.raises(Malformed):
        plan_text(text)


def test_problem_list_is_answered_item_by_item() -> None:
    """A malformed problem among others has an error in its place, and the outcome says so; an empty list is fine."""
    outcome = plan_text(json.dumps([PROBLEM, with_client(slo_ms=-1), 3]))
    answers: Any = outcome.answer

    assert outcome.malformed
    assert answers[0]["workers"]
    assert answers[1] == {"error": "clients[1].slo_ms: must be > 0"}
    assert answers[2] == {"error": "problem: must be an object"}
    assert plan_text("[]").answer == []


def test_problem_with_unknown_keys_is_planned() -> None:
    """Keys that other tools add change nothing."""
    assert plan_text(json.dumps({**PROBLEM, "comment": {"by": "me"}})).answer


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "appliance", "plan", "-"], input=text, capture_output=True, text=True, check=False
    )


@pytest.mark.usefixtures("processes", "ports")
def test_plan_command_answers_on_stdout_and_refuses_with_status_2() -> None:
    """JSON alone on standard output and 0; the message on standard error and 2; a list with a bad problem: both
    answers and 2.
    """
    good, bad = run(json.dumps(PROBLEM)), run(json.dumps(with_client(slo_ms=0)))
    mixed = run(json.dumps([PROBLEM, {}]))

    assert good.returncode == 0
    assert json.loads(good.stdout)["unmapped"] == []
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "clients[1].slo_ms: must be > 0\n")
    assert mixed.returncode == 2
    assert json.loads(mixed.stdout)[1] == {"error": "kind: is missing"}


def test_page_of_decisions_is_planned_as_a_list_of_problems() -> None:
    """What `/v1/decisions` answers: its problems in order, those that a tenant may not see left out."""
    page = {"items": [{"id": 2, "problem": PROBLEM}, {"id": 1, "problem": None}], "next_cursor": None}
    answers = plan_text(json.dumps(page)).answer
    assert isinstance(answers, list)
    assert [{**answer, "elapsed_ms": 0} for answer in answers] == [{**plan_one(PROBLEM), "elapsed_ms": 0}]
