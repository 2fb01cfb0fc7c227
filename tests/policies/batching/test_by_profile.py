"""A batch has to beat the same requests one by one over all workers."""

from collections.abc import Callable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.batching.base import BatchingInput, WaitingRequest
from appliance.policies.batching.by_profile import ByProfile

MS = 1_000_000


def table(ms: Mapping[int, float]) -> Callable[[int], int]:
    """Run times by items, between them in proportion."""

    def run_ns(items: int) -> int:
        size = min((s for s in ms if s >= items), default=max(ms))
        return int(ms[size] * MS * max(1, items / size))

    return run_ns


def ask(
    ms: Mapping[int, float],
    requests: Sequence[WaitingRequest],
    free_ms: Sequence[float] = (),
    items_max: int = 16,
) -> int:
    problem = BatchingInput(requests, items_max, table(ms), [int(f * MS) for f in free_ms])
    return ByProfile().together(problem)


SENTENCES = {1: 2.3, 2: 3.7, 4: 6.0, 8: 11.8, 16: 23.4}
"""A network that gains up to four items and nothing more."""
LINES = {1: 11.0, 2: 23.0, 4: 56.0}
"""One that loses."""


def test_single_request_runs_alone() -> None:
    assert ask(SENTENCES, [WaitingRequest(1)]) == 1


def test_network_that_loses_by_batches_is_never_batched() -> None:
    assert ask(LINES, [WaitingRequest(1)] * 20) == 1
    assert ask(LINES, [WaitingRequest(1)] * 20, [300]) == 1


def test_requests_on_two_idle_workers_are_not_batched() -> None:
    assert ask(SENTENCES, [WaitingRequest(1)] * 2, [0]) == 1


def test_requests_beside_a_busy_worker_are_batched_when_that_gains() -> None:
    # one by one on this worker: 2.3 and 4.6 ms; together both end at 3.7: 7.4 in place of 6.9, so not
    assert ask(SENTENCES, [WaitingRequest(1)] * 2, [50]) == 1
    # four: 2.3 + 4.6 + 6.9 + 9.2 = 23; in pairs 3.7 + 3.7 + 7.4 + 7.4 = 22.2; at once 24
    assert ask(SENTENCES, [WaitingRequest(1)] * 4, [50]) == 2


def test_long_queue_runs_in_batches_that_gain_most() -> None:
    # sixteen on one worker: 6 + 12 + 18 + 24, four times each, is 240; in pairs 266, in eights 283, one by one 313
    assert ask(SENTENCES, [WaitingRequest(1)] * 16) == 4


def test_batch_is_never_larger_than_allowed() -> None:
    assert ask(SENTENCES, [WaitingRequest(1)] * 16, items_max=2) == 2
    assert ask(SENTENCES, [WaitingRequest(3)] * 16, items_max=4) == 1


def test_batch_that_makes_a_request_late_is_not_formed() -> None:
    hurried = [WaitingRequest(1, int(2.5 * MS)), *[WaitingRequest(1)] * 15]
    assert ask(SENTENCES, hurried) == 1


def test_narrow_requests_quick_alone_are_not_padded_for_a_wide_request() -> None:
    """Four together take 1.5 ms each: less than a request nearly as wide as the widest takes alone, more than a request
    half as wide."""
    assert ask(SENTENCES, [WaitingRequest(1, alone_ns=int(2.2 * MS))] * 16) == 4
    assert ask(SENTENCES, [WaitingRequest(1, alone_ns=int(1.2 * MS))] * 16) == 1


def test_request_late_anyway_does_not_prevent_a_batch() -> None:
    assert ask(SENTENCES, [WaitingRequest(1, MS), *[WaitingRequest(1)] * 15]) == 4


@given(
    runs=st.lists(st.integers(1, 1000), min_size=4, max_size=4).map(sorted),
    requests=st.lists(
        st.builds(WaitingRequest, st.integers(1, 4), st.none() | st.integers(0, 5000)), min_size=1, max_size=12
    ),
    free=st.lists(st.integers(0, 3000), max_size=3),
)
def test_batch_ends_no_later_than_single_runs_and_makes_no_request_late(
    runs: list[int], requests: list[WaitingRequest], free: list[int]
) -> None:
    times = dict(zip((1, 2, 4, 8), runs, strict=True))

    def run_ns(items: int) -> int:
        return times[next(size for size in times if size >= items)]

    count = ByProfile().together(BatchingInput(requests, 8, run_ns, free))
    assert 1 <= count <= len(requests)
    if count == 1:
        return
    assert sum(request.items for request in requests[:count]) <= 8
    # those of the run itself, one by one over all workers
    end_ns = run_ns(sum(request.items for request in requests[:count]))
    workers = sorted([0, *free])
    ends = []
    for request in requests:
        at = min(range(len(workers)), key=workers.__getitem__)
        workers[at] += run_ns(request.items)
        ends.append(workers[at])
    assert end_ns <= max(ends)
    for request, alone_ns in zip(requests[:count], ends, strict=False):
        if request.end_by_ns is not None and alone_ns <= request.end_by_ns:
            assert end_ns <= request.end_by_ns
