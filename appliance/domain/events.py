"""Events: what happened, told to people, logs and tests."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class EventSink(Protocol):
    """Takes events for `/v1/events`, logs and tests; never blocks."""

    def emit(self, event: str, **facts: object) -> None: ...


class Severity(StrEnum):
    """How much an event asks for somebody's attention."""

    INFO = "info"
    """Something changed, as it should."""
    WARNING = "warning"
    """Something serves worse than it could, or will soon."""
    ERROR = "error"
    """Something does not serve, or was lost."""


SEVERITIES: Mapping[str, Severity] = {
    "history damaged": Severity.ERROR,
    "pipeline without a plan": Severity.ERROR,
    "processor lost": Severity.ERROR,
    "processor unfit": Severity.ERROR,
    "session removed": Severity.ERROR,
    "variant load failed": Severity.ERROR,
    "variant lost": Severity.ERROR,
    "kind of processor avoided": Severity.WARNING,
    "pipelines not planned in time": Severity.WARNING,
    "pipelines planned slowly": Severity.WARNING,
    "processor throttled": Severity.WARNING,
    "residency thrashes": Severity.WARNING,
    "variant dismissed by requests": Severity.WARNING,
    "variant drifted": Severity.WARNING,
    "variant load skipped": Severity.WARNING,
}
"""By event; all others are `INFO`."""


def severity_of(event: str, facts: Mapping[str, object]) -> Severity:
    """Return how much an event asks for attention; a job that has failed is an error, a condition as bad as it says."""
    if event == "job progressed" and facts.get("state") == "failed":
        return Severity.ERROR
    if event == "condition began":
        return Severity.ERROR if facts.get("severity") == "bad" else Severity.WARNING
    return SEVERITIES.get(event, Severity.INFO)
