"""Decisions as text and compared, of any kind."""

import datetime
from typing import Any

from appliance.cli.decision_text import lines, row
from appliance.cli.decisions import differences, has_outcome
from appliance.wire.decisions import DecisionShape
from tests.cli.blank import blank

AT = datetime.datetime(2026, 3, 1, 12, 30, 5, tzinfo=datetime.UTC)
PROBLEM = {
    "kind": "residency",
    "policy": "lru",
    "memory_mb": 1200.000007,
    "applications": [
        {
            "name": "harbour/face",
            "variants": [{"name": "int8", "size_mb": 140.000003}, {"name": "fp32", "size_mb": 500.000001}],
            "resident": None,
            "pinned": False,
            "keep": [],
        }
    ],
}
ANSWER = {
    "outcome": "cold",
    "serve": "int8",
    "actions": [{"application": "harbour/face", "from": None, "to": "int8"}],
    "free_mb": 59.9,
    "reason": "int8 fits",
}


def _decision(**changed: Any) -> DecisionShape:
    facts: dict[str, Any] = {"id": 7, "at": AT, "kind": "residency", "is_whole": True, "reason": "int8 fits"}
    facts |= {"application": "harbour/face", "concerned": ["harbour/face", "museum/sound"]}
    return blank(DecisionShape, **facts | {"problem": PROBLEM, "answer": ANSWER} | changed)


def test_decision_row_shows_outcome_actions_and_reason() -> None:
    shown = "2026-03-01 12:30:05|residency|harbour/face|cold|harbour/face – → int8|int8 fits"
    assert row(_decision()) == [7, *shown.split("|")]


def test_decision_row_of_a_pipeline_names_the_pipeline() -> None:
    planned = _decision(kind="pipeline", application=None, answer={"outcome": "planned", "pipeline": "harbour/signs"})
    assert row(planned)[2:5] == ["pipeline", "harbour/signs", "planned"]


def test_decision_of_unknown_kind_is_shown_with_its_own_keys() -> None:
    """No outcome, no actions, other keys: what is there is shown, what is not is a dash."""
    problem, answer = {"kind": "weather", "rain": True}, {"mm": [1, 2.5]}
    other = _decision(kind="weather", application=None, concerned=[], problem=problem, answer=answer)
    assert row(other)[3:6] == ["–", "–", "–"]
    shown = list(lines(other, 80))
    assert "  mm 1, 2.5" in shown
    assert "  kind weather, rain yes" in shown


def test_decision_text_shows_the_whole_problem_within_screen_width() -> None:
    shown = list(lines(_decision(), 60))
    assert all(len(line) <= 60 for line in shown)
    assert "concerns also museum/sound" in shown
    text = "\n".join(shown)
    for part in ("because int8 fits", "serve int8", "memory_mb 1200", "fp32  size_mb 500", "resident –", "pinned no"):
        assert part in text


def test_masked_decision_says_what_is_not_shown() -> None:
    shown = "\n".join(lines(_decision(is_whole=False, problem=None, reason="", application=None), 80))
    assert "not shown: another tenant's application asked" in shown
    assert "no reason is shown" in shown


def test_decision_answers_are_compared_without_timings_and_words() -> None:
    """An earlier version gave its reasons in other words, and a tenant may not read all of them."""
    assert differences(ANSWER, {**ANSWER, "elapsed_ms": 0.2}) == []
    assert differences({**ANSWER, "elapsed_ms": 9.0}, {**ANSWER, "elapsed_ms": 0.2}) == []
    assert differences({"outcome": "cold", "reason": ""}, ANSWER) == []
    assert differences({**ANSWER, "reason": "harbour/door: absent to int8"}, ANSWER) == []
    assert differences(ANSWER, {**ANSWER, "serve": "fp32", "free_mb": 0.0}) == ["serve", "free_mb"]
    assert differences({"mm": 1}, ANSWER) == ["mm"]


def test_folded_problem_is_compared_by_the_outcome_that_it_has_again() -> None:
    """10 ms waited of 9 allowed is dropped again, 8 ms is not; what no policy decided cannot differ."""
    recorded = {"outcome": "dropped"}
    late = {"kind": "drop", "waited_ms": 10.0, "deadline_ms": 9.0}
    assert has_outcome(late, recorded)
    assert not has_outcome(late | {"waited_ms": 8.0}, recorded)
    assert has_outcome({"kind": "drop", "plan": None}, recorded)
