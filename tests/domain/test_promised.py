"""Counts of promises by how they ended."""

from appliance.domain.promised import PromiseCounts, PromiseEnd


def test_promise_counts_add_each_end_to_its_own_number() -> None:
    counts = PromiseCounts()
    for end, times in zip(PromiseEnd, (4, 3, 2, 1), strict=True):
        for _ in range(times):
            counts.count(end)
    assert (counts.totals, counts.counted) == ((4, 3, 2, 1), 10)
