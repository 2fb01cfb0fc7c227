"""Who need not run on a throttled processor, because others have time for it.

A processor that is too hot gets cool, and quick, again where it has less to do. It is slow, not lost: for its sake
nothing is refused, nothing is late, and nobody waits long.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

PATIENCE_NS = 20_000_000
"""A wait of so long costs no short run much; a longer run may wait for as long as it takes itself."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job. `takes_ns`: processor → what all that is left of it takes there, of those that run all of that.
    `left_ns`: until its deadline; None: it has none.
    """

    takes_ns: Mapping[int, int]
    left_ns: int | None


def spared(jobs: Sequence[Waiting], free_ns: Mapping[int, Sequence[int]], throttled: Collection[int]) -> list[bool]:
    """Whether each job, in the order in which they have their turns, is left to processors that are not throttled: one
    of them ends it in time, behind those before it, and begins with it soon.

    `free_ns`: processor → when each of its workers is free, from now, of those that are there. Each job takes the place
    where it is done first. Cost: a heap's for each job and processor.
    """
    lines = {at: list(own) for at, own in free_ns.items() if at not in throttled and own}
    for line in lines.values():
        heapq.heapify(line)
    found = []
    for job in jobs:
        ends: dict[int, int] = {}
        for at, line in lines.items():
            takes_ns = job.takes_ns.get(at)
            if takes_ns is None or line[0] > max(PATIENCE_NS, takes_ns):
                continue
            if job.left_ns is None or line[0] + takes_ns <= job.left_ns:
                ends[at] = line[0] + takes_ns
        if ends:
            at = min(ends, key=lambda one: (ends[one], one))
            heapq.heapreplace(lines[at], ends[at])
        found.append(bool(ends))
    return found
