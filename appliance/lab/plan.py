"""`appliance plan`: one decision, or a list of them, on problems written as JSON.

It reads the kind, lets that kind's module read the rest, times the policy call alone and adds `elapsed_ms`. The
policies are the running box's own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from appliance.clock import NS_PER_MS, SystemClock
from appliance.lab.problems.base import Malformed, Question


@dataclass(frozen=True, slots=True)
class Outcome:
    """`answer` is what goes to standard output; with `malformed`, a problem in a list was, and its answer says why."""

    answer: object
    malformed: bool = False


def plan_text(text: str) -> Outcome:
    """Answer the problem, or each of the list of problems (or page of stored decisions), in `text`.

    Raises: Malformed for a single bad problem or for what is no JSON.
    """
    document = _problems_of(_parsed(text))
    if not isinstance(document, list):
        return Outcome(plan_one(document))
    answers: list[object] = []
    malformed = False
    for problem in document:
        try:
            answers.append(plan_one(problem))
        except Malformed as error:
            malformed = True
            answers.append({"error": str(error)})
    return Outcome(answers, malformed)


def _problems_of(document: object) -> object:
    """The problems on a page of `/v1/decisions`; any other document as it is."""
    if not isinstance(document, dict) or "kind" in document or not isinstance(document.get("items"), list):
        return document
    items = [item for item in document["items"] if isinstance(item, dict)]
    return [item["problem"] for item in items if item.get("problem") is not None]


def plan_one(document: object) -> dict[str, object]:
    """The answer of one problem. Raises: Malformed."""
    if not isinstance(document, dict):
        raise Malformed("problem", "must be an object")
    if document.get("plan", document) is None:  # a stored decision that no policy made
        return {"plan": None, "reason": str(document.get("why", "no policy was asked"))}
    question = _reader(document)(document)
    clock = SystemClock()
    start_ns = clock.now_ns()
    plan = question.decide()
    elapsed_ns = clock.now_ns() - start_ns
    return {**question.answer(plan), "elapsed_ms": round(elapsed_ns / NS_PER_MS, 4)}


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Malformed("", f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise Malformed("", "not a problem: nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise Malformed("", f"not JSON: {error}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise Malformed("", f"not JSON: {constant} is no number there")


# Kinds. A module is imported when its kind is asked for, so that one kind does not pay for the imports of all.


def _adaptation(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import adaptation

    return adaptation.read(document)


def _admission(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import limits

    return limits.read_admission(document)


def _budget(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import limits

    return limits.read_budget(document)


def _drop(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import limits

    return limits.read_drop(document)


def _dispatch(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import dispatch

    return dispatch.read(document)


def _neighbours(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import neighbours

    return neighbours.read(document)


def _offload(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import offload

    return offload.read(document)


def _pipeline(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import pipeline

    return pipeline.read(document)


def _residency(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import residency

    return residency.read(document)


def _selection(document: Mapping[str, Any]) -> Question[Any]:
    from appliance.lab.problems import selection

    return selection.read(document)


KINDS: Mapping[str, Callable[[Mapping[str, Any]], Question[Any]]] = {
    "adaptation": _adaptation,
    "admission": _admission,
    "budget": _budget,
    "drop": _drop,
    "dispatch": _dispatch,
    "neighbours": _neighbours,
    "offload": _offload,
    "pipeline": _pipeline,
    "residency": _residency,
    "selection": _selection,
}


def _reader(document: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Question[Any]]:
    kind = document.get("kind")
    if "kind" not in document:
        raise Malformed("kind", "is missing")
    if not isinstance(kind, str):
        raise Malformed("kind", "must be a string")
    if kind in KINDS:
        return KINDS[kind]
    raise Malformed("kind", f"{kind[:200]!r} is not one of: {', '.join(KINDS)}")
