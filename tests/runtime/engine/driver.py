"""Drives a scheduler in virtual time: calls come when they are said to come, and runs take what is expected of them."""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.runtime.engine.placement import Candidate, Placed
from appliance.runtime.engine.scheduler import Scheduler
from appliance.runtime.engine.work import LONG_NS, Call, GroupFacts, Option, Out, Refusal, Run, Why


def ms(milliseconds: float) -> int:
    """Return nanoseconds."""
    return round(milliseconds * NS_PER_MS)


class Fixed:
    """A run takes what its option says, whatever its rows; or what `by_rows` says. There is memory for all runs."""

    def __init__(self, by_rows: Callable[[int], float] | None = None) -> None:
        self._by_rows = by_rows
        self.lost: set[Hashable] = set()
        """Builds that are gone."""

    def run_ns(self, option: Option, rows: int, running: int, now_ns: int) -> int | None:
        return option.run_ns if self._by_rows is None else ms(self._by_rows(rows))

    def likely_ns(self, call: Call) -> int:
        return call.likely_ns

    def has_room(self, option: Option, calls: Sequence[Call]) -> bool:
        return True

    def may_share(self, mate: Call, call: Call, option: Option) -> bool:
        return any(own.group == option.group and own.build == option.build for own in mate.options)

    def is_there(self, option: Option) -> bool:
        return option.build not in self.lost


def option(run_ms: float | None = 10, group: int = 0, build: str = "b", **more: Any) -> Option:
    """Return an option whose run takes so long; None: nobody knows how long."""
    run_ns = LONG_NS + 1 if run_ms is None else ms(run_ms)
    return Option(group, build, run_ns, is_known=run_ms is not None, **more)


def call(
    tenant: str = "t", run_ms: float | None = 10, drop_ms: float | None = None, *, application: str = "", **more: Any
) -> Call:
    """Return a call of a tenant to its only application."""
    options = more.pop("options", None) or (option(run_ms, build=f"{tenant}-net"),)
    drop_ns = None if drop_ms is None else ms(drop_ms)
    known = [one.run_ns for one in options if one.is_known]
    likely_ns = min(known) if known else LONG_NS + 1
    more.setdefault("deadline_ns", drop_ns)
    return Call(
        tenant,
        application or f"{tenant}-app",
        options,
        drop_ns=drop_ns,
        likely_ns=likely_ns,
        known_ns=min(known, default=0),
        **more,
    )


class Driver:
    """One scheduler and its virtual time, in milliseconds."""

    def __init__(self, workers: int | Sequence[GroupFacts] = 1, times: Fixed | None = None, **more: Any) -> None:
        groups = [GroupFacts(workers)] if isinstance(workers, int) else list(workers)
        self.environment = times or Fixed()
        self.scheduler = Scheduler(groups, self.environment, **more)
        self.now_ns = 0
        self.started: list[tuple[float, list[str]]] = []
        """When each run began, and the names of its calls."""
        self.outs: list[tuple[float, str, Why]] = []
        self.direct: list[Run] = []
        """Runs that began where their calls were put."""
        self.refused: dict[str, Refusal] = {}
        self.takes_ms: dict[str, float] = {}
        """Calls whose runs take another time than expected."""
        self.on_end: Callable[[Run], None] = lambda run: None
        self._events: list[tuple[int, int, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, at_ms: float, do: Callable[[], None], first: int = 1) -> None:
        """Do something at a time; of equal times runs end first."""
        heapq.heappush(self._events, (ms(at_ms), first, next(self._number), do))

    def put(self, at_ms: float, name: str, one: Call) -> Call:
        """Put a call at a time."""
        one.reference = name
        self.at(at_ms, lambda: self._put(one))
        return one

    def run(self, until_ms: float = 1_000) -> "Driver":
        """Go on until nothing more happens, or until a time."""
        while True:
            look_ns = self.scheduler.decide(self.now_ns)
            self._note(look_ns.starts, look_ns.outs)
            next_ns = look_ns.next_look_ns
            if self._events and (next_ns is None or self._events[0][0] <= next_ns):
                next_ns = self._events[0][0]
            if next_ns is None or next_ns > ms(until_ms):
                return self
            self.now_ns = max(self.now_ns, next_ns)
            if self._events and self._events[0][0] <= self.now_ns:
                heapq.heappop(self._events)[3]()

    def _put(self, one: Call) -> None:
        answer = self.scheduler.put(one, self.now_ns)
        if isinstance(answer, Refusal):
            self.refused[one.reference] = answer
        elif answer is not None:
            self.direct.append(answer)
            self._note([answer], ())

    def _note(self, starts: Sequence[Run], outs: Sequence[Out]) -> None:
        for run in starts:
            names = [one.reference for one in run.calls]
            self.started.append((self.now_ns / NS_PER_MS, names))
            took_ms = max((self.takes_ms.get(name, 0.0) for name in names), default=0.0) or run.holds_ns / NS_PER_MS
            self.at(self.now_ns / NS_PER_MS + took_ms, lambda run=run: self.end(run), first=0)  # type: ignore[misc]
        for out in outs:
            self.outs.append((round(self.now_ns / NS_PER_MS, 1), out.call.reference, out.why))

    def end(self, run: Run) -> None:
        """End a run."""
        self.scheduler.end(run, self.now_ns)
        self.on_end(run)


class LeastEnd:
    """A placement: of all candidates the one that would end last is placed first, where it ends first."""

    requeues_at_head = True

    def place(
        self, candidates: Sequence[Candidate], free_ns: Mapping[int, Sequence[int]], now_ns: int
    ) -> Placed | None:
        found = []
        for one, options, _ in candidates:
            end_ns, at = min((free_ns[own.group][0] + own.run_ns, at) for at, own in enumerate(options))
            option = options[at]
            found.append((end_ns, Placed(one, option, free_ns[option.group][0], option.run_ns)))
        return max(found, key=lambda each: each[0])[1] if found else None

    def begins(self, placed: Placed, now_ns: int) -> None:
        pass
