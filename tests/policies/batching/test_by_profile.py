"""A batch has to beat the same requests one by one over all workers."""

from collections.abc import Callable, Mapping, Sequence

import pytest
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


ONE = WaitingRequest(1)


@pytest.mark.parametrize(
    ("times_ms", "requests", "free_ms", "together"),
    [
        pytest.param(SENTENCES, [ONE], [], 1, id="single request"),
        pytest.param(LINES, [ONE] * 20, [], 1, id="network that loses"),
        pytest.param(LINES, [ONE] * 20, [300], 1, id="network that loses, beside a busy worker"),
        pytest.param(SENTENCES, [ONE] * 2, [0], 1, id="two idle workers"),
        # One by one on this worker: 2.3 and 4.6 ms; together both end at 3.7: 7.4 in place of 6.9, so not.
        pytest.param(SENTENCES, [ONE] * 2, [50], 1, id="two beside a busy worker"),
        # 2.3 + 4.6 + 6.9 + 9.2 = 23; in pairs 3.7 + 3.7 + 7.4 + 7.4 = 22.2; at once 24.
        pytest.param(SENTENCES, [ONE] * 4, [50], 2, id="four beside a busy worker"),
        # On one worker: 6 + 12 + 18 + 24, four times each, is 240; in pairs 266, in eights 283, one by one 313.
        pytest.param(SENTENCES, [ONE] * 16, [], 4, id="long queue"),
        pytest.param(SENTENCES, [WaitingRequest(1, int(2.5 * MS)), *[ONE] * 15], [], 1, id="one would be late"),
        pytest.param(SENTENCES, [WaitingRequest(1, MS), *[ONE] * 15], [], 4, id="one is late anyway"),
        # Four together take 1.5 ms each: less than a request nearly as wide as the widest takes alone, not than half.
        pytest.param(SENTENCES, [WaitingRequest(1, alone_ns=int(2.2 * MS))] * 16, [], 4, id="nearly as wide"),
        pytest.param(SENTENCES, [WaitingRequest(1, alone_ns=int(1.2 * MS))] * 16, [], 1, id="half as wide"),
    ],
)
def test_requests_run_together_where_that_gains_and_makes_none_late(
    times_ms: Mapping[int, float], requests: list[WaitingRequest], free_ms: list[float], together: int
) -> None:
    assert ask(times_ms, requests, free_ms) == together


def test_batch_is_never_larger_than_allowed() -> None:
    assert ask(SENTENCES, [ONE] * 16, items_max=2) == 2
    assert ask(SENTENCES, [WaitingRequest(3)] * 16, items_max=4) == 1


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
