"""What runs that belong to no session take of a worker."""

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.runtime.serving.unplanned import UnplannedRuns


def test_unplanned_share_of_a_busy_worker_rises_to_all_of_its_time() -> None:
    """Runs of 100 ms, one behind the other: after 2 s 1 - 1/e of its time, after 20 s all of it; never more. However
    long the runs are: one of 2 s is as much.
    """
    runs, one = UnplannedRuns(), UnplannedRuns()
    one.ran(2 * NS_PER_S, 2 * NS_PER_S)
    for number in range(1, 201):
        runs.ran(100 * NS_PER_MS, number * 100 * NS_PER_MS)
        if number == 20:
            assert runs.share(2 * NS_PER_S) == pytest.approx(0.632, abs=0.001)
    assert one.share(2 * NS_PER_S) == pytest.approx(0.632, abs=0.001)
    assert runs.share(20 * NS_PER_S) == pytest.approx(1.0, abs=1e-4)
    assert runs.share(20 * NS_PER_S) <= 1.0


def test_unplanned_share_decays_without_being_read() -> None:
    """A third of the time, 20 ms of 60, for 20 s; 2 s later it is 1/e of that."""
    runs = UnplannedRuns()
    for number in range(1, 334):
        runs.ran(20 * NS_PER_MS, number * 60 * NS_PER_MS)
    end_ns = 333 * 60 * NS_PER_MS
    assert runs.share(end_ns) == pytest.approx(1 / 3, rel=0.02)
    assert runs.share(end_ns + 2 * NS_PER_S) == pytest.approx(1 / 3 / 2.718, rel=0.02)


def test_longest_unplanned_run_counts_for_ten_seconds() -> None:
    """Short runs after it do not make it shorter; ten seconds do, and where nothing runs there is none."""
    runs = UnplannedRuns()
    for second, took_ms in enumerate([5, 120, *[6] * 11]):
        runs.ran(took_ms * NS_PER_MS, second * NS_PER_S)
        expected = 5 if second == 0 else 120 if second <= 11 else 6
        assert runs.longest_ns(second * NS_PER_S) == expected * NS_PER_MS
    assert runs.longest_ns(23 * NS_PER_S) == 0
