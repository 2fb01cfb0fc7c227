"""As many as the profile says that all are better off together.

On CPUs most networks lose by batches, so "take all" is no choice: a batch has to beat the same requests one by one
over all workers (Jellyfish §4.1 and Scrooge §3.3 plan with the same profiles; here nothing is planned ahead).
"""

import heapq
from collections.abc import Iterator, Sequence

from appliance.policies.batching.base import BatchingInput, WaitingRequest


class ByProfile:
    """Weighs runs of 1, 2, 4 … requests, and of as many as fit: the requests in line are given to the workers as these
    become free, so many at a time. Of those where the last one ends no later than one by one, and none of them is late
    that would not be one by one, the choice is the least sum of all ends; of equal ones the smaller. O(n log² n).
    """

    shares = True

    def together(self, problem: BatchingInput) -> int:
        line = problem.requests
        ends = _ends(problem, line, 1)
        late, last_ns = _late(line, ends), max(ends)
        best, best_ns = 1, sum(ends)
        for size in _sizes(line, problem.items_max):
            ends = _ends(problem, line, size)
            if max(ends) <= last_ns and sum(ends) < best_ns and _late(line, ends) <= late:
                best, best_ns = size, sum(ends)
        return best


def late_of(problem: BatchingInput, size: int) -> int:
    """How many of the requests in line would be late, where each run takes `size` of them."""
    return len(_late(problem.requests, _ends(problem, problem.requests, size)))


def _sizes(line: Sequence[WaitingRequest], items_max: int) -> Iterator[int]:
    """Counts of requests whose items fit into one run."""
    fitting = items = 0
    for request in line:
        items += request.items
        if items > items_max:
            break
        fitting += 1
    size = 2
    while size < fitting:
        yield size
        size *= 2
    if fitting > 1:
        yield fitting


def _ends(problem: BatchingInput, line: Sequence[WaitingRequest], size: int) -> list[int]:
    """When each request ends, where each run takes `size` of them, or as many as fit."""
    free = [0, *problem.free_ns]
    heapq.heapify(free)
    ends: list[int] = []
    at = 0
    while at < len(line):
        count, items = 1, line[at].items
        while count < size and at + count < len(line) and items + line[at + count].items <= problem.items_max:
            items += line[at + count].items
            count += 1
        alone_ns = line[at].alone_ns if count == 1 else None
        end_ns = free[0] + (problem.run_ns(items) if alone_ns is None else alone_ns)
        heapq.heapreplace(free, end_ns)
        ends += [end_ns] * count
        at += count
    return ends


def _late(line: Sequence[WaitingRequest], ends: Sequence[int]) -> set[int]:
    return {i for i, one in enumerate(line) if one.end_by_ns is not None and ends[i] > one.end_by_ns}
