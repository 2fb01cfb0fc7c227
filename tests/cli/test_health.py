"""The health of a box as `appliance health` shows it."""

from typing import Any

from appliance.cli.health import in_words
from appliance.wire.health import HealthShape

LATE: dict[str, Any] = {
    "id": "pipeline-late",
    "severity": "bad",
    "subject": {"kind": "pipeline", "name": "signs", "tenant": "harbour"},
    "text": "Pipeline harbour/signs finishes too few frames in time.",
    "detail": "0 of the last 11 frames were in time (200 ms)",
    "action": "Allow a longer SLO.",
    "since": "2026-03-01T12:00:00Z",
}


def lines(conditions: list[dict[str, Any]], in_all: int) -> list[str]:
    status = "bad" if conditions else "good"
    facts = {"status": status, "conditions": conditions, "conditions_in_all": in_all, "checks": []}
    return list(in_words(HealthShape.model_validate(facts)))


def test_health_of_a_box_in_order_is_one_line() -> None:
    assert lines([], 0) == ["good: everything is in order"]


def test_health_shows_each_condition_with_figures_and_what_to_do() -> None:
    """A tenant is told no figures of the box; of very many conditions the worst are shown."""
    assert lines([LATE, LATE | {"detail": ""}], 3) == [
        "bad: 3 conditions",
        "  bad   Pipeline harbour/signs finishes too few frames in time.",
        "        0 of the last 11 frames were in time (200 ms)",
        "        Allow a longer SLO. (since 2026-03-01 12:00 UTC)",
        "  bad   Pipeline harbour/signs finishes too few frames in time.",
        "        Allow a longer SLO. (since 2026-03-01 12:00 UTC)",
        "  and 1 more",
    ]
