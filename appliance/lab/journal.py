"""What a simulation remembers of the box: every event and, when a report is wanted, every window, and every decision
with its reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.domain.events import EventSink
from appliance.lab.loop import START_NS, VirtualClock

RESIDENCY = "residency"
"""Kind of the decisions about variants in memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An event or a decision, `at_ns` after the start."""

    at_ns: int
    name: str
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Edge:
    """A window of an application opens or closes, `at_ns` after the start."""

    at_ns: int
    application: str
    opens: bool


class Journal:
    """Ports `EventSink`, `WindowSink` and `DecisionSink`; passes events on.

    Keeps nothing unless `keeps` is set: an hour has hundreds of thousands. The first `residency_max` decisions about
    memory are kept in any case, and all of them are counted.
    """

    def __init__(self, clock: VirtualClock, onward: EventSink, *, keeps: bool = False) -> None:
        self._clock = clock
        self._onward = onward
        self.keeps = keeps
        self.on_event: Callable[[], None] = lambda: None
        """Called after each event: where a simulation checks what must always hold."""
        self.events: list[Entry] = []
        self.edges: list[Edge] = []
        self.decisions: list[Entry] = []
        self.residency_max = 0
        self.residency_count = 0

    def emit(self, event: str, **facts: object) -> None:
        if self.keeps:
            self.events.append(Entry(self._clock.now_ns() - START_NS, event, facts))
        self._onward.emit(event, **facts)
        self.on_event()

    def window_opened(self, application: str) -> None:
        self._edge(application, opens=True)

    def window_closed(self, application: str, *, answered: bool) -> None:
        self._edge(application, opens=False)

    def record(self, kind: str, decision: Mapping[str, object]) -> None:
        is_residency = kind == RESIDENCY
        self.residency_count += is_residency
        if self.keeps or (is_residency and self.residency_count <= self.residency_max):
            self.decisions.append(Entry(self._clock.now_ns() - START_NS, kind, decision))

    def _edge(self, application: str, *, opens: bool) -> None:
        if self.keeps:
            self.edges.append(Edge(self._clock.now_ns() - START_NS, application, opens))
