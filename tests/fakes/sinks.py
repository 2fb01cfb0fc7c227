"""Sinks that remember what they were told."""

from collections.abc import Callable, Mapping
from typing import Any


class Events:
    """Port `EventSink`; `on_event` is called at each."""

    def __init__(self, on_event: Callable[[str], None] = lambda event: None) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._on_event = on_event

    def emit(self, event: str, **facts: object) -> None:
        self.told.append((event, dict(facts)))
        self._on_event(event)

    def of(self, event: str) -> list[dict[str, Any]]:
        """The facts of every event of this name, in order."""
        return [facts for name, facts in self.told if name == event]


class Decisions:
    """Port `DecisionSink`."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[str, object]]] = []

    def record(self, kind: str, decision: Mapping[str, object]) -> None:
        self.told.append((kind, decision))
