"""How a network can be cut: units, and the subgraphs that they merge into (Band §4.2, Fig. 9 and 10).

A *unit* is a largest group of operators that are adjacent by data dependency and have the same processors; every
operator is in one (BA-03). A *subgraph* is one unit, or a merge of adjacent ones that some processor can run whole;
smaller ones are kept (BA-04). Both are convex: what an operator of the group needs of another one never goes through a
third outside of it, else neither could run before the other. Sets of units are bits of a number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SUBGRAPHS_MAX = 4096
"""A wide graph has a merge for every choice of its branches. Beyond so many its units run in one order only, and only
neighbours in that order are merged.
"""
CHOICES_MAX = 1 << 18
"""The same for the choices that a search has: subgraphs times the sets of units that can be done."""


@dataclass(frozen=True, slots=True)
class Operator:
    """`processors`: those that run it. `inputs`: the operators whose results it takes."""

    name: str
    processors: frozenset[str]
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subgraph:
    """`units` are bits; `ops` in an order in which they can run; `latency_ms` by the processors that run all of it."""

    units: int
    ops: tuple[str, ...]
    latency_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A network's units, in an order in which they can run, and its subgraphs."""

    name: str
    units: tuple[tuple[str, ...], ...]
    subgraphs: tuple[Subgraph, ...]
    whole: int
    """All units."""
    next: Mapping[int, tuple[tuple[int, Subgraph], ...]]
    """By what is done: the subgraphs that can run then, largest first, each with what is done after it."""
    order: tuple[int, ...]
    """The keys of `next` and `whole`, each after all that can come before it."""
    operators: tuple[Operator, ...]
    """What it was made of, in an order in which they can run ..."""
    latency_ms: Mapping[str, Mapping[str, float]]
    """... by processor and operator, as far as they run there."""
    searches: dict[object, object] = field(default_factory=dict, repr=False)
    """What a search over it has worked out, once and for all."""


class Uncuttable(ValueError):
    """The operators are no graph that can run."""


def partition(
    name: str,
    operators: Sequence[Operator],
    latency_ms: Mapping[str, Mapping[str, float]],
    done: frozenset[str] = frozenset(),
) -> Partition:
    """Cut what is not `done` of a network; latencies are by processor and operator, and add up.

    Raises: Uncuttable, for a cycle.
    """
    left = [operator for operator in _sorted(operators) if operator.name not in done]
    groups = _merged(_grown(left), left)
    place = {op.name: index for index, group in enumerate(groups) for op in group}
    before = [0] * len(groups)
    for op in left:
        for needed in op.inputs:
            if needed in place and place[needed] != place[op.name]:
                before[place[op.name]] |= 1 << place[needed]
    graph = _Units(before, [group[0].processors for group in groups])

    def subgraph(units: int) -> Subgraph:
        ops = [op.name for index in _bits(units) for op in groups[index]]
        shared = sorted(graph.processors_of(units))
        return Subgraph(units, tuple(ops), {p: sum(latency_ms[p][op] for op in ops) for p in shared})

    whole = (1 << len(groups)) - 1
    subgraphs = tuple(subgraph(units) for units in graph.merges())
    following = _choices(graph, subgraphs, whole) if len(subgraphs) <= SUBGRAPHS_MAX else None
    if following is None:
        subgraphs = tuple(subgraph(units) for units in graph.runs())
        following = _choices_in_order(subgraphs, whole)
    units = tuple(tuple(op.name for op in group) for group in groups)
    order = tuple(sorted({*following, whole}, key=lambda done: (done.bit_count(), done)))
    known = {p: {op.name: ms[op.name] for op in left if p in op.processors} for p, ms in latency_ms.items()}
    return Partition(name, units, subgraphs, whole, following, order, tuple(left), known)


def uncut(name: str, latency_ms: Mapping[str, float]) -> Partition:
    """A network that runs in one piece; latencies by the processors that run it."""
    only = Subgraph(1, (name,), dict(sorted(latency_ms.items())))
    operator = Operator(name, frozenset(latency_ms))
    known = {processor: {name: took_ms} for processor, took_ms in only.latency_ms.items()}
    return Partition(name, ((name,),), (only,), 1, {0: ((1, only),)}, (0, 1), (operator,), known)


# -- operators to units ------------------------------------------------------------------------------------------------


def units_of(operators: Sequence[Operator]) -> list[list[Operator]]:
    """The units, in an order in which they can run. Raises: Uncuttable, for a cycle."""
    ordered = _sorted(operators)
    return _merged(_grown(ordered), ordered)


def _sorted(operators: Sequence[Operator]) -> list[Operator]:
    """Every operator after its inputs, else as given. Raises: Uncuttable."""
    known = {op.name: op for op in operators}
    missing = {op.name: sum(needed in known for needed in set(op.inputs)) for op in operators}
    takers: dict[str, list[str]] = {name: [] for name in known}
    for op in operators:
        for needed in set(op.inputs) & known.keys():
            takers[needed].append(op.name)
    ready = [op.name for op in operators if not missing[op.name]]
    ordered = []
    for name in ready:  # grows while it is gone through
        ordered.append(known[name])
        for taker in takers[name]:
            missing[taker] -= 1
            if not missing[taker]:
                ready.append(taker)
    if len(ordered) < len(operators):
        raise Uncuttable(f"operator {next(name for name in known if missing[name])!r} waits for itself")
    return ordered


def _grown(ordered: Sequence[Operator]) -> list[list[Operator]]:
    """Groups that are convex, but may not be as large as they could: each grows from an operator that can run, by what
    can run after it on the same processors and takes a result of it.
    """
    known = {op.name for op in ordered}
    missing = {op.name: {needed for needed in op.inputs if needed in known} for op in ordered}
    takers: dict[str, list[Operator]] = {op.name: [] for op in ordered}
    for op in ordered:
        for needed in missing[op.name]:
            takers[needed].append(op)
    ready = {op.name: op for op in ordered if not missing[op.name]}
    groups = []
    while ready:
        seed = ready.pop(next(iter(ready)))
        group = [seed]
        for op in group:  # grows while it is gone through
            for taker in takers[op.name]:
                missing[taker.name].discard(op.name)
                if missing[taker.name]:
                    continue
                if taker.processors == seed.processors:
                    group.append(taker)
                else:
                    ready[taker.name] = taker
        groups.append(group)
    return groups


def _merged(groups: list[list[Operator]], ordered: Sequence[Operator]) -> list[list[Operator]]:
    """Groups with the same processors that are adjacent are one, where that leaves no cycle; in an order to run."""
    while True:
        place = {op.name: index for index, group in enumerate(groups) for op in group}
        after: list[set[int]] = [set() for _ in groups]
        for op in ordered:
            for needed in op.inputs:
                if needed in place and place[needed] != place[op.name]:
                    after[place[needed]].add(place[op.name])
        pair = next(
            (
                (first, second)
                for first, followers in enumerate(after)
                for second in sorted(followers)
                if groups[first][0].processors == groups[second][0].processors and not _detour(after, first, second)
            ),
            None,
        )
        rank = {op.name: index for index, op in enumerate(ordered)}
        if pair is None:
            return _in_order(groups, after, rank)
        first, second = pair
        both = sorted(groups[first] + groups[second], key=lambda op: rank[op.name])
        groups = [group for index, group in enumerate(groups) if index not in pair] + [both]


def _detour(after: Sequence[set[int]], first: int, second: int) -> bool:
    """Whether a way leads from one group to the other through a third."""
    seen = after[first] - {second}
    ahead = list(seen)
    while ahead:
        for follower in after[ahead.pop()]:
            if follower == second:
                return True
            if follower not in seen:
                seen.add(follower)
                ahead.append(follower)
    return False


def _in_order(
    groups: Sequence[list[Operator]], after: Sequence[set[int]], rank: Mapping[str, int]
) -> list[list[Operator]]:
    waits = [0] * len(groups)
    for followers in after:
        for follower in followers:
            waits[follower] += 1
    first = [min(rank[op.name] for op in group) for group in groups]
    ready = sorted((index for index, count in enumerate(waits) if not count), key=lambda index: first[index])
    ordered = []
    while ready:
        index = ready.pop(0)
        ordered.append(groups[index])
        for follower in after[index]:
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
        ready.sort(key=lambda index: first[index])
    return ordered


# -- units to subgraphs ------------------------------------------------------------------------------------------------


class _Units:
    """The graph of units. `before`: the units that each takes results of, as bits, in an order to run."""

    def __init__(self, before: Sequence[int], processors: Sequence[frozenset[str]]) -> None:
        self._processors = processors
        self.before = before
        self._near = list(before)
        self._above = [0] * len(before)  # all that each unit depends on
        for index, needed in enumerate(before):
            for other in _bits(needed):
                self._near[other] |= 1 << index
                self._above[index] |= self._above[other] | 1 << other
        self._below = [0] * len(before)
        for index in range(len(before)):
            for other in _bits(self._above[index]):
                self._below[other] |= 1 << index

    def processors_of(self, units: int) -> frozenset[str]:
        return frozenset.intersection(*(self._processors[index] for index in _bits(units)))

    def needs(self, units: int) -> int:
        """What must be done before."""
        needed = 0
        for index in _bits(units):
            needed |= self.before[index]
        return needed & ~units

    def merges(self) -> list[int]:
        """Every convex, connected set of units that some processor runs whole, the smaller first, until there are too
        many. A set of n units is always one of n - 1 and a neighbour: some source or sink of it can be left out, and
        the rest stays connected.
        """
        found = [1 << index for index, processors in enumerate(self._processors) if processors]
        seen = set(found)
        for units in found:  # grows while it is gone through
            for index in _bits(self._neighbours(units)):
                larger = units | 1 << index
                if larger not in seen and self._is_convex(larger) and self.processors_of(larger):
                    seen.add(larger)
                    found.append(larger)
            if len(found) > SUBGRAPHS_MAX:
                break
        return sorted(found, key=_by_size)

    def runs(self) -> list[int]:
        """Neighbours in the order of units that some processor runs whole; of those that begin with a unit all, or the
        shorter ones and the longest.
        """
        found = []
        longest = SUBGRAPHS_MAX // max(1, len(self.before))
        for first, shared in enumerate(self._processors):
            units = 0
            begun = []
            for index in range(first, len(self.before)):
                shared = shared & self._processors[index]
                if not shared:
                    break
                units |= 1 << index
                begun.append(units)
            found += begun[:longest] + begun[max(longest, len(begun) - 1) :]
        return sorted(found, key=_by_size)

    def _neighbours(self, units: int) -> int:
        near = 0
        for index in _bits(units):
            near |= self._near[index]
        return near & ~units

    def _is_convex(self, units: int) -> bool:
        above = below = 0
        for index in _bits(units):
            above |= self._above[index]
            below |= self._below[index]
        return not above & below & ~units


def _choices(
    graph: _Units, subgraphs: Sequence[Subgraph], whole: int
) -> dict[int, tuple[tuple[int, Subgraph], ...]] | None:
    """By what is done: what can run then, largest first, and what is done after it; None when that is too much."""
    needs = [(graph.needs(one.units), one) for one in reversed(subgraphs)]
    found: dict[int, tuple[tuple[int, Subgraph], ...]] = {}
    ahead = [0]
    while ahead:
        done = ahead.pop()
        if done in found or done == whole:
            continue
        if (len(found) + 1) * len(needs) > CHOICES_MAX:
            return None
        found[done] = tuple((done | one.units, one) for need, one in needs if not (need & ~done or one.units & done))
        ahead.extend(after for after, _one in found[done])
    return found


def _choices_in_order(subgraphs: Sequence[Subgraph], whole: int) -> dict[int, tuple[tuple[int, Subgraph], ...]]:
    """The same where what is done are the first units."""
    found: dict[int, list[tuple[int, Subgraph]]] = {}
    for one in reversed(subgraphs):
        done = (one.units & -one.units) - 1
        found.setdefault(done, []).append((done | one.units, one))
    return {done: tuple(choices) for done, choices in found.items() if done != whole}


def _by_size(units: int) -> tuple[int, tuple[int, ...]]:
    return units.bit_count(), tuple(_bits(units))


def _bits(units: int) -> Iterator[int]:
    while units:
        lowest = units & -units
        yield lowest.bit_length() - 1
        units ^= lowest
