"""The order of modules: critical path, and the nesting of series and parallel parts that makes splitting an SLO
easy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Edge = tuple[int, int]


class CyclicError(ValueError):
    """The edges have a cycle through the module at `index`."""

    def __init__(self, index: int) -> None:
        super().__init__(f"a cycle through module {index}")
        self.index = index


@dataclass(frozen=True, slots=True)
class Series:
    """Parts one after the other: latencies add."""

    parts: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parts beside one another: the slowest counts."""

    parts: tuple["Tree", ...]


Tree = int | Series | Parallel


def topological(count: int, edges: Iterable[Edge]) -> tuple[int, ...]:
    """Modules with every edge pointing forward; of several that could be next, the lowest index.

    Raises: CyclicError.
    """
    after = [[n for m, n in edges if m == i] for i in range(count)]
    waits = [0] * count
    for targets in after:
        for n in targets:
            waits[n] += 1
    ready = sorted((i for i in range(count) if not waits[i]), reverse=True)
    order: list[int] = []
    while ready:
        m = ready.pop()
        order.append(m)
        for n in after[m]:
            waits[n] -= 1
            if not waits[n]:
                ready.append(n)
                ready.sort(reverse=True)
    if len(order) < count:
        raise CyclicError(next(i for i in range(count) if waits[i]))
    return tuple(order)


def critical_path_ms(latencies_ms: Sequence[float], edges: Sequence[Edge]) -> float:
    """The longest sum of latencies along the edges (eq. 2c-2d)."""
    done = list(latencies_ms)
    for n in topological(len(done), edges):
        done[n] = latencies_ms[n] + max((done[m] for m, target in edges if target == n), default=0.0)
    return max(done, default=0.0)


def longest_through(latencies_ms: Sequence[float], edges: Sequence[Edge]) -> tuple[float, ...]:
    """For each module the longest path that contains it."""
    order = topological(len(latencies_ms), edges)
    until, since = list(latencies_ms), list(latencies_ms)
    for n in order:
        until[n] += max((until[m] for m, target in edges if target == n), default=0.0)
    for m in reversed(order):
        since[m] += max((since[n] for source, n in edges if source == m), default=0.0)
    return tuple(u + s - own for u, s, own in zip(until, since, latencies_ms, strict=True))


def decompose(count: int, edges: Sequence[Edge]) -> Tree | None:
    """The nesting whose critical path is the graph's; None when there is none (an N in the order).

    Chains, forks, joins and trees have one.
    """
    before = _closure(count, edges)
    related = [before[i] | sum(1 << j for j in range(count) if before[j] >> i & 1) for i in range(count)]
    return _nest(tuple(range(count)), related, before)


def levels(count: int, edges: Sequence[Edge]) -> Tree:
    """A nesting at least as strict as the graph: modules of equal depth beside one another, depths one after the
    other.
    """
    depth = [0] * count
    for n in topological(count, edges):
        depth[n] = max((depth[m] + 1 for m, target in edges if target == n), default=0)
    parts = [tuple(i for i in range(count) if depth[i] == d) for d in range(max(depth, default=0) + 1)]
    return Series(tuple(Parallel(part) if len(part) > 1 else part[0] for part in parts))


def loosened(index: int, latencies_ms: Sequence[float], edges: Sequence[Edge]) -> Tree:
    """A nesting at most as strict as the graph: one long path through `index`, all else beside it."""
    path = [index]
    for forward in (True, False):
        here = index
        while True:
            nexts = sorted({n if forward else m for m, n in edges if (m if forward else n) == here})
            if not nexts:
                break
            here = max(nexts, key=lambda i: (latencies_ms[i], -i))
            path.append(here) if forward else path.insert(0, here)
    others = tuple(i for i in range(len(latencies_ms)) if i not in path)
    return Parallel((Series(tuple(path)), *others))


def _closure(count: int, edges: Sequence[Edge]) -> list[int]:
    """By module, the bits of all that must come before it."""
    before = [0] * count
    for n in topological(count, edges):
        for m, target in edges:
            if target == n:
                before[n] |= before[m] | 1 << m
    return before


def _nest(members: tuple[int, ...], related: Sequence[int], before: Sequence[int]) -> Tree | None:
    if len(members) == 1:
        return members[0]
    beside = _components(members, related, joined=True)
    if len(beside) > 1:
        parts = [_nest(part, related, before) for part in beside]
    else:
        behind = _components(members, related, joined=False)
        if len(behind) == 1:
            return None
        behind.sort(key=lambda part: before[part[0]].bit_count())
        parts = [_nest(part, related, before) for part in behind]
    whole = tuple(part for part in parts if part is not None)
    if len(whole) < len(parts):
        return None
    return Parallel(whole) if len(beside) > 1 else Series(whole)


def _components(members: tuple[int, ...], related: Sequence[int], joined: bool) -> list[tuple[int, ...]]:
    """Groups of `members` connected by being related (`joined`) or by not being."""
    left = set(members)
    groups: list[tuple[int, ...]] = []
    while left:
        group = [min(left)]
        left.remove(group[0])
        for i in group:
            found = sorted(j for j in left if bool(related[i] >> j & 1) == joined)
            group.extend(found)
            left.difference_update(found)
        groups.append(tuple(sorted(group)))
    return groups
