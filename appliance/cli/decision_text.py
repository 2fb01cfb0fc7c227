"""A decision as text for a person, whatever its kind: documents are told key by key, and no key is needed."""

import datetime
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appliance.wire.decisions import DecisionShape

NONE = "–"


def row(decision: "DecisionShape") -> list[object]:
    """Cells of the list: id, time, kind, what it is about, outcome, changes, and the sentence of its reason."""
    return [
        decision.id,
        moment(decision.at),
        decision.kind,
        decision.application or decision.answer.get("pipeline") or NONE,
        scalar(decision.answer.get("outcome")),
        "; ".join(changes(decision.answer)) or NONE,
        decision.reason.partition(". ")[0] or NONE,
    ]


def lines(decision: "DecisionShape", width: int) -> Iterator[str]:
    """All of a decision: the answer first, then what was known."""
    asked = f"asked by {decision.application}" if decision.application else "no request, or another tenant"
    head = f"decision {decision.id}, {decision.kind}, {moment(decision.at)} UTC, {asked}"
    yield from textwrap.wrap(head, width)
    if others := [name for name in decision.concerned if name != decision.application]:
        yield from textwrap.wrap(f"concerns also {', '.join(others)}", width)
    yield from textwrap.wrap(f"because {decision.reason}" if decision.reason else "no reason is shown", width)
    yield "answer"
    yield from told({key: value for key, value in decision.answer.items() if key != "reason"}, width)
    yield "problem" if decision.is_whole else "problem, without other tenants' part"
    yield from (
        told(decision.problem, width) if decision.problem else ["  not shown: another tenant's application asked"]
    )


def told(document: Mapping[str, Any], width: int, indent: str = "  ") -> Iterator[str]:
    """A document in lines: its plain values together, then each list of documents item by item, no empty lists."""
    nested = {key: value for key, value in document.items() if _is_documents(value)}
    plain = {key: value for key, value in document.items() if key not in nested and value not in ([], {})}
    if moves := changes(document):
        nested.pop("actions")
        plain["actions"] = "; ".join(moves)
    pairs = [f"{key} {scalar(value)}" for key, value in plain.items()]
    yield from textwrap.wrap(", ".join(pairs), width, initial_indent=indent, subsequent_indent=indent)
    for key, items in nested.items():
        yield f"{indent}{key}"
        for item in items:
            yield from _item(item, width, indent + "  ")


def changes(answer: Mapping[str, Any]) -> list[str]:
    """`museum/sound fp32 → int8` for each action that has this form."""
    return [
        f"{action.get('application', NONE)} {scalar(action['from'])} → {scalar(action['to'])}"
        for action in answer.get("actions") or ()
        if isinstance(action, dict) and {"from", "to"} <= action.keys()
    ]


def moment(at: datetime.datetime) -> str:
    """To the second, as the box has it (UTC)."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def scalar(value: object) -> str:
    """A value on one line: numbers with six digits, names as they are."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(scalar, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {scalar(one)}" for key, one in value.items())
    return str(value)


def _is_documents(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _item(item: Mapping[str, Any], width: int, indent: str) -> Iterator[str]:
    """By its name, where it has one; an item without documents inside takes one paragraph."""
    rest = {key: value for key, value in item.items() if key != "name"}
    name = scalar(item["name"]) if "name" in item else "-"
    if any(map(_is_documents, rest.values())):
        yield indent + name
        yield from told(rest, width, indent + "  ")
        return
    text = f"{name}  {scalar({key: value for key, value in rest.items() if value != []})}"
    yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ")
