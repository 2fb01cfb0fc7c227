"""Who was in memory when, told from a journal and cut into as many columns as a picture has."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.domain.names import application_id, content_of
from appliance.lab.composition import content_names
from appliance.lab.journal import Edge, Entry, Journal
from appliance.lab.scenario import Scenario

_COMES = ("variant loaded", "variant woken")
_GOES = ("variant unloaded", "variant asleep")


@dataclass(frozen=True, slots=True)
class Stay:
    """A variant in memory from one time to another, nanoseconds after the start; `rank` 0 is its model's most
    accurate.
    """

    model: str
    variant: str
    rank: int
    size_bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Window:
    """A model was expected to be asked: its application was a maximalist."""

    model: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """Everything that the picture of the memory shows."""

    end_ns: int
    stays: tuple[Stay, ...]
    windows: tuple[Window, ...]
    used: tuple[tuple[int, int], ...]
    """(time, bytes in use from then on), loads and leaving builds included, as the memory manager counts."""
    budgets: tuple[tuple[int, int], ...]
    """(time, budget from then on); the first at 0."""


def timeline_of(scenario: Scenario, journal: Journal, end_ns: int) -> Timeline:
    """The timeline of a journal that was kept."""
    events = journal.events
    return Timeline(
        end_ns,
        tuple(_stays(scenario, events, end_ns)),
        tuple(windows_of(scenario, journal.edges, end_ns)),
        tuple((e.at_ns, used) for e in events if isinstance(used := e.facts.get("used_bytes"), int)),
        ((0, scenario.budget_bytes), *_budgets(events)),
    )


def columns(spans: Sequence[tuple[int, int]], end_ns: int, count: int) -> list[tuple[int, int]]:
    """Runs of columns [first, last) that the spans touch, joined: thousands of short windows become a few shapes."""
    touched = [False] * count
    for start_ns, stop_ns in spans:
        first = min(count - 1, start_ns * count // max(1, end_ns))
        last = min(count - 1, max(first, (stop_ns * count - 1) // max(1, end_ns)))
        touched[first : last + 1] = [True] * (last + 1 - first)
    runs: list[tuple[int, int]] = []
    for column, is_touched in enumerate(touched):
        if is_touched and runs and runs[-1][1] == column:
            runs[-1] = (runs[-1][0], column + 1)
        elif is_touched:
            runs.append((column, column + 1))
    return runs


def levels(timeline: Timeline, models: Sequence[str], count: int) -> list[tuple[Stay | None, ...]]:
    """For each column, what was in memory of each model at its middle: the most accurate of them, or None."""
    by_model = {m: sorted((s for s in timeline.stays if s.model == m), key=lambda s: s.start_ns) for m in models}
    starts = {m: [s.start_ns for s in stays] for m, stays in by_model.items()}
    rows: list[tuple[Stay | None, ...]] = []
    for column in range(count):
        at_ns = (2 * column + 1) * timeline.end_ns // (2 * count)
        rows.append(tuple(_at(by_model[m], starts[m], at_ns) for m in models))
    return rows


def _at(stays: Sequence[Stay], starts: Sequence[int], at_ns: int) -> Stay | None:
    index = bisect_right(starts, at_ns)
    there = [s for s in stays[max(0, index - 8) : index] if s.end_ns > at_ns]
    return min(there, key=lambda s: s.rank, default=None)


def _budgets(events: Sequence[Entry]) -> list[tuple[int, int]]:
    changes = [(e.at_ns, e.facts.get("budget_bytes")) for e in events if e.name == "budget changed"]
    return [(at_ns, budget) for at_ns, budget in changes if isinstance(budget, int)]


def _stays(scenario: Scenario, events: Sequence[Entry], end_ns: int) -> list[Stay]:
    names = content_names(scenario)
    ranks = {
        (m.name, v.name): rank
        for m in scenario.models
        for rank, v in enumerate(sorted(m.variants, key=lambda v: (-v.accuracy, v.size_mb)))
    }
    since: dict[str, Entry] = {}
    stays: list[Stay] = []

    def close(build: str, stop_ns: int) -> None:
        loaded = since.pop(build, None)
        if loaded is not None:
            model, variant = names[content_of(build)]
            size = loaded.facts["bytes"]
            assert isinstance(size, int)
            stays.append(Stay(model, variant, ranks[model, variant], size, loaded.at_ns, stop_ns))

    for event in events:
        build = event.facts.get("build")
        if isinstance(build, str) and event.name in _COMES:
            since[build] = event
        elif isinstance(build, str) and event.name in _GOES:
            close(build, event.at_ns)
    for build in list(since):
        close(build, end_ns)
    return stays


def windows_of(scenario: Scenario, edges: Sequence[Edge], end_ns: int) -> list[Window]:
    """Those that are still open last to the end."""
    models = {application_id(a.tenant, a.name): a.model for a in scenario.applications}
    since: dict[str, int] = {}
    windows: list[Window] = []
    for edge in edges:
        if edge.opens:
            since[edge.application] = edge.at_ns
        elif edge.application in since:
            windows.append(Window(models[edge.application], since.pop(edge.application), edge.at_ns))
    windows += [Window(models[application], start_ns, end_ns) for application, start_ns in since.items()]
    return windows


def by_model(windows: Sequence[Window]) -> Mapping[str, list[tuple[int, int]]]:
    """Model → its windows as spans."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for window in windows:
        spans.setdefault(window.model, []).append((window.start_ns, window.end_ns))
    return spans
