"""Starts that planners have reserved: for how long a processor that idles may do something else meanwhile."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FOREVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class ReservedStart:
    """One of them. `start_ns`: from now, not before 0. `takes_ns`: processor → what its run takes there; of those that
    run it.
    """

    start_ns: int
    takes_ns: Mapping[int, int]


def gap_ns(starts: Iterable[ReservedStart], free_ns: Mapping[int, Sequence[int]], processor: int) -> int | None:
    """How long a run may take that begins now on an idle worker of a processor, so that no reserved start is later for
    it; None: as long as it likes, for others are free by then.

    `starts`: the soonest first; none is asked for after the one that decides. `free_ns`: processor → when each of its
    workers is free, from now; 0: it idles. Each start is where its run ends first, on the worker that would idle for
    the shortest time before.
    """
    anyway = {at: sorted(own) for at, own in free_ns.items()}
    without = {at: own[1:] if at == processor else own[:] for at, own in anyway.items()}
    for one in starts:
        if _ends_ns(one, without) > _ends_ns(one, anyway):
            return one.start_ns
    return None


def _ends_ns(one: ReservedStart, free_ns: Mapping[int, list[int]]) -> int:
    """When its run ends; the worker that it takes is free then."""
    best: tuple[int, list[int], int] | None = None
    for processor, own in free_ns.items():
        takes_ns = one.takes_ns.get(processor)
        if takes_ns is None or not own:
            continue
        at = max(0, bisect_right(own, one.start_ns) - 1)
        end_ns = max(own[at], one.start_ns) + takes_ns
        if best is None or end_ns < best[0]:
            best = end_ns, own, at
    if best is None:
        return FOREVER_NS
    end_ns, own, at = best
    del own[at]
    insort(own, end_ns)
    return end_ns
