"""The quickest way to do what is left of a job: a sequence of subgraphs, and the processor of each (Band §4.3.1).

Dynamic programming over what is done. To have come somewhere earlier is never worse, since a processor that is busy
until then serves whoever comes later no sooner; so of the ways to a state on a processor one is kept. With n units in a
row and p processors that is O(p·n²) (BA-14).

What a job takes on idle processors depends on its network alone, and is worked out once for all states, from the end.
It is what a search on busy ones cannot beat, so ways that could not even then be quicker than a known one are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from appliance.policies.dispatch.base import FOREVER
from appliance.policies.dispatch.partition import Partition, Subgraph

SEARCHES_MAX = 32
"""Processors come and go, and each set of them needs a search of its own: so many are remembered."""
ANYWHERE, ELSEWHERE = -1, -2
"""Places of a job's results beside the processors, which go by their index: nothing has to be moved; all has to."""


@dataclass(frozen=True, slots=True)
class Run:
    """One step of a way: `processor` by index."""

    subgraph: Subgraph
    processor: int
    took_ms: float
    after: int
    """What is done then, as bits."""
    rest_ms: float = 0.0
    """What is left takes at least so long after it."""


class Way(NamedTuple):
    """When the job is done, and how it begins: the first run, and when."""

    finish_ms: float
    start_ms: float
    first: Run


@dataclass(frozen=True, slots=True)
class Idle:
    """The best way on idle processors: how long it takes (infinite when they cannot do it), its first run and when that
    begins, and when it first needs each processor; milliseconds from now.
    """

    took_ms: float
    first: Run | None
    start_ms: float
    begins_ms: tuple[tuple[int, float], ...]

    def finish_ms(self, now_ms: float, free_ms: Sequence[float]) -> float:
        """The same way on processors that are free from then on: whatever it waits for longest delays all of it."""
        delay_ms = 0.0
        for processor, begin_ms in self.begins_ms:
            late_ms = free_ms[processor] - begin_ms - now_ms
            delay_ms = late_ms if late_ms > delay_ms else delay_ms
        return now_ms + self.took_ms + delay_ms

    def way(self, now_ms: float, free_ms: Sequence[float]) -> Way:
        """The same, and how it begins. Only where there is something to do, and it can be done."""
        assert self.first is not None, "possible, and not done"
        start_ms = max(now_ms + self.start_ms, free_ms[self.first.processor])
        return Way(self.finish_ms(now_ms, free_ms), start_ms, self.first)


_IMPOSSIBLE = Idle(FOREVER, None, 0.0, ())


class Left:
    """What is left of jobs that have come equally far: the same at each decision."""

    __slots__ = ("begins", "best", "done", "place", "took_ms", "ways")

    def __init__(self, done: int, place: int, ways: tuple[Idle, ...], best: Idle) -> None:
        self.done, self.place, self.best = done, place, best
        """`best` of the ways on idle processors: impossible where they cannot do it."""
        self.ways = ways
        """The best one that begins on each processor; none where nothing is left, or they cannot do it."""
        self.took_ms = best.took_ms
        """What the best way takes on idle processors; infinite where they cannot do it."""
        self.begins = tuple([(way.first.processor, way.start_ms, way.took_ms, way) for way in ways if way.first])
        """The ways, taken apart: what they begin on and when, and how long they take."""

    def bounds(self, now_ms: float, free_ms: Sequence[float]) -> tuple[float, Idle]:
        """A job is not done before the first; the second is a good way to do it.

        Whatever begins on a processor begins when that is free, and then takes no less than on idle ones. Infinite
        where the rest is not possible, or nothing is left to do.
        """
        earliest_ms, best = FOREVER, self.best
        for processor, start_ms, took_ms, way in self.begins:
            begin_ms = free_ms[processor] - start_ms
            end_ms = took_ms + (begin_ms if begin_ms > now_ms else now_ms)
            if end_ms < earliest_ms:
                earliest_ms, best = end_ms, way
        return earliest_ms, best


class Search:
    """Over one network, for some processors and a time to transfer results between them."""

    def __init__(self, partition: Partition, processors: Sequence[str], transfer_ms: float) -> None:
        self._whole, self._transfer_ms = partition.whole, transfer_ms
        self._next = partition.next
        self._index = {name: place for place, name in enumerate(processors)}
        self._runs: dict[int, tuple[Run, ...]] = {}
        """By what is done: what can run then, the quickest way to the end first; of equal ones the larger ..."""
        self._steps: dict[int, list[tuple[float, float, float, int, int, Run]]] = {}
        """... and, taken apart: it takes, and with what is left, and that; its processor; what is done after it."""
        self._order = partition.order
        self._left: dict[tuple[int, int], Left] = {}
        """By what is done and where its results are."""
        self._at: dict[tuple[int, str | None], Left] = {}
        """The same by the name of the processor."""
        nothing_left = Idle(0.0, None, 0.0, ())
        places = ANYWHERE, ELSEWHERE, *range(len(processors))
        for place in places:
            self._left[self._whole, place] = Left(self._whole, place, (), nothing_left)
        first, *later = self._order
        for done in reversed(later[:-1]):
            self._take_apart(done)
            for place in places:
                self._find(done, place)
        if first != self._whole:
            self._take_apart(first)
            self._find(first, ANYWHERE)  # where a job begins; other places when they are asked for

    def left(self, done: int, at: str | None) -> Left:
        """`at`: the processor that holds the results; one that is lost is elsewhere, None is anywhere."""
        found = self._at.get((done, at))
        if found is None:
            place = ANYWHERE if at is None else self._index.get(at, ELSEWHERE)
            found = self._at[done, at] = self._left.get((done, place)) or self._find(done, place)
        return found

    def quickest(self, left: Left, now_ms: float, free_ms: Sequence[float], bounds: tuple[float, Idle]) -> Way:
        """The quickest of all ways; of equal ones that with the larger first runs. It must be possible.
        `bounds`: those of what is left.
        """
        earliest_ms, good = bounds
        best = good.way(now_ms, free_ms)
        if best.finish_ms <= earliest_ms:
            return best
        limit_ms, transfer_ms, whole = best.finish_ms, self._transfer_ms, self._whole
        # By what is done: the earliest end on each processor, and how the way there began.
        reached: dict[int, dict[int, tuple[float, float, Run | None]]] = {left.done: {left.place: (now_ms, 0.0, None)}}
        for state in self._order:
            ends = reached.get(state)
            if not ends or state == whole:
                continue
            moved_ms, moved_start_ms, moved_first = min(ends.values(), key=_end)
            here_ms = moved_ms
            if ANYWHERE not in ends:
                moved_ms += transfer_ms
            for took_ms, least_ms, rest_ms, processor, after, run in self._steps[state]:
                if here_ms + least_ms >= limit_ms:
                    break  # all that follow take longer
                begin_ms = free_ms[processor]
                if begin_ms + least_ms >= limit_ms:
                    continue
                ready_ms, start_ms, first = moved_ms, moved_start_ms, moved_first
                if processor in ends and ends[processor][0] <= ready_ms:
                    ready_ms, start_ms, first = ends[processor]
                begin_ms = ready_ms if ready_ms > begin_ms else begin_ms
                end_ms = begin_ms + took_ms
                if end_ms + rest_ms >= limit_ms:
                    continue
                if first is None:
                    start_ms, first = begin_ms, run
                if after == whole:
                    limit_ms, best = end_ms, Way(end_ms, start_ms, first)
                    continue
                known = reached.setdefault(after, {})
                if processor not in known or end_ms < known[processor][0]:
                    known[processor] = end_ms, start_ms, first
        return best

    def after(self, run: Run, place: int, now_ms: float, free_ms: Sequence[float]) -> Way:
        """The quickest way that begins with a run; it ends in infinity where the rest is not possible."""
        moved_ms = 0.0 if place in (run.processor, ANYWHERE) else self._transfer_ms
        start_ms = max(now_ms + moved_ms, free_ms[run.processor])
        end_ms = start_ms + run.took_ms
        if run.after == self._whole:
            return Way(end_ms, start_ms, run)
        left = self._left[run.after, run.processor]
        if left.took_ms == FOREVER:
            return Way(FOREVER, start_ms, run)
        return Way(self.quickest(left, end_ms, free_ms, left.bounds(end_ms, free_ms)).finish_ms, start_ms, run)

    def _find(self, done: int, place: int) -> Left:
        """Work it out; what can follow is known."""
        ways = self._idle_ways(done, place)
        found = self._left[done, place] = Left(done, place, ways, min(ways, key=_took, default=_IMPOSSIBLE))
        return found

    def _take_apart(self, done: int) -> None:
        runs = self._runs[done] = self._runs_after(done)
        self._steps[done] = [
            (run.took_ms, run.took_ms + run.rest_ms, run.rest_ms, run.processor, run.after, run) for run in runs
        ]

    def _runs_after(self, done: int) -> tuple[Run, ...]:
        """What can run then; what can follow is known."""
        runs = [
            Run(subgraph, self._index[name], took_ms, after, self._left[after, self._index[name]].took_ms)
            for after, subgraph in self._next[done]
            for name, took_ms in subgraph.latency_ms.items()
            if name in self._index
        ]
        return tuple(sorted(runs, key=_least))

    def _idle_ways(self, done: int, place: int) -> tuple[Idle, ...]:
        best: dict[int, tuple[float, float, Run]] = {}
        for run in self._runs[done]:
            start_ms = 0.0 if place in (run.processor, ANYWHERE) else self._transfer_ms
            took_ms = start_ms + run.took_ms + run.rest_ms
            if took_ms < best.get(run.processor, (FOREVER,))[0]:
                best[run.processor] = took_ms, start_ms, run
        return tuple(self._idle_way(*found) for found in best.values())

    def _idle_way(self, took_ms: float, start_ms: float, run: Run) -> Idle:
        end_ms = start_ms + run.took_ms
        later = {p: end_ms + begin_ms for p, begin_ms in self._left[run.after, run.processor].best.begins_ms}
        return Idle(took_ms, run, start_ms, tuple((later | {run.processor: start_ms}).items()))


def search(partition: Partition, processors: tuple[str, ...], transfer_ms: float) -> Search:
    """Made once for a partition and what it depends on."""
    known: dict[tuple[tuple[str, ...], float], Search] = partition.searches  # type: ignore[assignment]
    key = processors, transfer_ms
    if key not in known:
        if len(known) > SEARCHES_MAX:
            known.clear()
        known[key] = Search(partition, processors, transfer_ms)
    return known[key]


def _least(run: Run) -> float:
    return run.took_ms + run.rest_ms


def _took(way: Idle) -> float:
    return way.took_ms


def _end(way: tuple[float, float, Run | None]) -> float:
    return way[0]
