"""What runs of a build take, by batch and by how many are under way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.catalogue import Latency
from appliance.domain.profiles import INLINE
from appliance.runtime.profiles.estimate import TRUSTED_NS
from appliance.runtime.profiles.times import BACK, CELLS_MAX, DRIFT, RunTimes

ROWS = (Latency(1, 10, 12), Latency(4, 30, 36), Latency(1, 14, 18, concurrency=2), Latency(4, 44, 50, concurrency=2))
NOW = 1000 * NS_PER_S


class Told:
    """What was told of drifts."""

    def __init__(self) -> None:
        self.drifts: list[bool] = []

    def __call__(self, times: RunTimes) -> None:
        self.drifts.append(times.is_drifted)


def times_of(told: Told | None = None, *, is_measured: bool = True) -> RunTimes:
    return RunTimes(ROWS, 0.1, told or Told(), is_measured=is_measured)


def ran(times: RunTimes, items: int, running: int, took_ms: float, now_ns: int = NOW, *, count: int = 50) -> None:
    """So many runs alike."""
    for _ in range(count):
        times.ran(items, running, round(took_ms * NS_PER_MS), now_ns)


@pytest.mark.parametrize(
    ("items", "running", "expected_ms"),
    [(0, 1, 10), (1, 1, 10), (2, 1, 30), (4, 1, 30), (8, 1, 60), (1, 2, 14), (3, 2, 44), (1, 3, 14), (1, INLINE, 10)],
)
def test_expected_time_before_any_run_is_as_measured_at_import(items: int, running: int, expected_ms: float) -> None:
    """Of the nearest larger batch, beyond the largest in proportion; of as many runs at once as were measured."""
    assert times_of().expected_ns(items, running, NOW) == expected_ms * NS_PER_MS


def test_expected_time_follows_runs_of_the_case_else_ballooning() -> None:
    """A case that has run goes by its runs; a case that has not, by the import times how much slower all has become."""
    times = times_of()
    ran(times, 1, 1, 20)
    assert times.expected_ns(1, 1, NOW) == pytest.approx(20 * NS_PER_MS, rel=0.01)
    assert times.ballooning == pytest.approx(2, rel=0.01)
    assert times.expected_ns(4, 2, NOW) == pytest.approx(88 * NS_PER_MS, rel=0.01)
    ran(times, 4, 2, 44)
    assert times.expected_ns(4, 2, NOW) == pytest.approx(44 * NS_PER_MS, rel=0.01)
    assert times.expected_ns(1, 1, NOW) == pytest.approx(20 * NS_PER_MS, rel=0.01)


def test_slow_expected_time_that_no_run_confirms_is_forgotten() -> None:
    """Where a request is refused because its run is expected to be late, no run would ever show that it is quick again:
    after a while the import's figure counts. What is quicker than that stays.
    """
    times = times_of()
    for _ in range(50):
        times.ran(1, 1, 30 * NS_PER_MS, NOW)
        times.ran(4, 1, 10 * NS_PER_MS, NOW)
    assert times.expected_ns(1, 1, NOW + TRUSTED_NS) > 29 * NS_PER_MS
    later = NOW + TRUSTED_NS + 1
    assert times.expected_ns(1, 1, later) == 10 * NS_PER_MS
    assert times.expected_ns(4, 1, later) < 11 * NS_PER_MS
    times.ran(1, 1, 30 * NS_PER_MS, later)
    assert times.expected_ns(1, 1, later) > 29 * NS_PER_MS
    times.ran(1, 1, 15 * NS_PER_MS, later + TRUSTED_NS + 1)
    assert times.expected_ns(1, 1, later + TRUSTED_NS + 1) == 15 * NS_PER_MS


def test_plain_expected_times_are_each_cases_own() -> None:
    """By hand, α = 0.1: 0.1 x 50 + 0.9 x 10 = 14 and 0.1 x 2 + 0.9 x 14 = 12.8 ms, which stand without runs too. A case
    that has not run stays as measured; runs on the event loop are all told.
    """
    times = RunTimes(ROWS, 0.1, Told(), is_plain=True)
    times.ran(1, 1, 50 * NS_PER_MS, NOW)
    assert times.expected_ns(1, 1, NOW) == 14 * NS_PER_MS
    later = NOW + 2 * TRUSTED_NS
    assert times.expected_ns(1, 1, later) == 14 * NS_PER_MS
    assert times.in_time_ns(1, 1, later, 12 * NS_PER_MS) == 14 * NS_PER_MS
    assert times.in_time_ns(1, 1, later + NS_PER_S, 12 * NS_PER_MS) == 10 * NS_PER_MS
    times.ran(1, 1, 2 * NS_PER_MS, later + NS_PER_S)
    assert times.expected_ns(1, 1, later + NS_PER_S) == pytest.approx(12.8 * NS_PER_MS, abs=1)
    assert times.expected_ns(4, 2, NOW) == 44 * NS_PER_MS
    times.ran(4, 2, 54 * NS_PER_MS, later)
    assert times.expected_ns(4, 2, later) == 45 * NS_PER_MS
    short = RunTimes((Latency(1, 0.2, 0.3),), 0.1, Told(), is_plain=True)
    short.ran(1, INLINE, NS_PER_MS // 5, NOW)
    assert short.skips == 0


def test_plain_expected_times_are_restored_plain() -> None:
    """14 ms before the restart; a run of 50 ms moves it to 0.1 x 50 + 0.9 x 14 = 17.6 ms."""
    times = RunTimes(ROWS, 0.1, Told(), is_plain=True)
    times.restore(1, 1, 14 * NS_PER_MS, 18 * NS_PER_MS, 3, NOW)
    times.ran(1, 1, 50 * NS_PER_MS, NOW)
    assert times.expected_ns(1, 1, NOW) == pytest.approx(17.6 * NS_PER_MS, abs=1)


def test_drift_of_run_times_and_the_end_of_drift_are_told_once_each() -> None:
    """Not with every run; and around the bound it does not go to and fro."""
    told = Told()
    times = times_of(told)
    ran(times, 1, 1, 20)
    assert (told.drifts, times.is_drifted) == ([True], True)
    for took_ms in (14, 16) * 50:  # about the bound
        times.ran(1, 1, took_ms * NS_PER_MS, NOW)
    assert BACK < times.ballooning < DRIFT + 0.1
    assert told.drifts == [True]
    ran(times, 1, 1, 10)
    assert told.drifts == [True, False]
    ran(times, 1, 1, 5)
    assert told.drifts == [True, False, True]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), st.floats(0.7, 1.4)), max_size=200))
def test_drift_of_run_times_is_not_told_within_the_bound(runs: list[tuple[int, int, float]]) -> None:
    """However the runs come."""
    told = Told()
    times = times_of(told)
    for items, running, factor in runs:
        reference_ns = times_of().expected_ns(items, running, NOW)
        times.ran(items, running, int(reference_ns * factor), NOW)
    assert told.drifts == []
    assert 0.7 - 1e-6 <= times.ballooning <= 1.4 + 1e-6


def test_single_slow_run_is_no_drift() -> None:
    """A run of a second among runs of ten milliseconds."""
    told = Told()
    times = times_of(told)
    times.ran(1, 1, NS_PER_S, NOW)
    assert told.drifts == []
    assert times.expected_ns(1, 1, NOW) <= 11.1 * NS_PER_MS


def test_short_runs_do_not_count_as_ballooning() -> None:
    """The time to hand a run to a worker and back is as long as the run."""
    told = Told()
    times = RunTimes((Latency(1, 0.05, 0.1), Latency(64, 3.0, 4.0)), 0.1, told)
    ran(times, 1, 1, 0.2)
    assert times.expected_ns(1, 1, NOW) == pytest.approx(200_000, rel=0.01)
    assert (times.ballooning, told.drifts) == (1.0, [])


def test_inline_runs_are_timed_apart_from_runs_on_workers() -> None:
    """What a worker takes with the way there does not keep a run off the loop; what the loop takes does, until runs on
    a worker show that it has become quick again.
    """
    times = RunTimes((Latency(1, 0.2, 0.3),), 0.1, Told())
    ran(times, 1, 1, 0.4)
    assert times.inline_ns(1, NOW) == 200_000
    ran(times, 1, INLINE, 0.6, NOW + 1)
    assert times.inline_ns(1, NOW + 1) == pytest.approx(600_000, rel=0.01)
    ran(times, 1, 1, 0.1, NOW + 2)
    assert times.inline_ns(1, NOW + 2) == pytest.approx(100_000, rel=0.02)


def test_expected_time_of_an_unmeasured_size_follows_the_first_runs() -> None:
    """Until there was a run, as the import says of another size; then as its runs."""
    times = times_of(is_measured=False)
    assert times.expected_ns(1, 1, NOW) == 10 * NS_PER_MS
    ran(times, 1, 1, 70, count=5)
    assert times.expected_ns(1, 1, NOW) == 70 * NS_PER_MS
    assert times.ballooning == 1.0


def test_number_of_timed_cases_is_bounded() -> None:
    """A caller who sends every batch size there is does not fill the memory."""
    times = times_of()
    for items in range(1, 1000):
        times.ran(items, 1, NS_PER_S, NOW)
    assert len(list(times.estimates())) == CELLS_MAX
    assert times.expected_ns(999, 1, NOW) > 0


def test_flood_of_sizes_does_not_end_the_learning_of_other_sizes() -> None:
    """The sizes that ran last are known: else a flood of sizes that never come again would have batches that lose be
    hoped for as long as the box runs.
    """
    times = times_of(is_measured=False)
    for items in range(100, 100 + CELLS_MAX):
        times.ran(items, 1, NS_PER_S, NOW)
    before = {(items, running): one.p50_ns for items, running, one in times.estimates()}
    for i in range(1, 20):
        times.ran(1, 1, 10 * NS_PER_MS, NOW + i)
        times.ran(2, 1, 25 * NS_PER_MS, NOW + i)
    assert len(list(times.estimates())) == CELLS_MAX
    assert times.hoped_ns(2, 1, NOW) == pytest.approx(25 * NS_PER_MS, rel=0.01)
    times.saved({key: round(p50_ns) for key, p50_ns in before.items()})  # some of those have gone meanwhile


def test_new_measurement_replaces_the_reference_and_keeps_the_runs() -> None:
    """What runs have shown stays; what they are compared with is new."""
    times = times_of()
    ran(times, 1, 1, 20)
    times.refer((Latency(1, 20, 22),))
    assert times.expected_ns(1, 1, NOW) == pytest.approx(20 * NS_PER_MS, rel=0.01)
    ran(times, 1, 1, 20)
    assert times.ballooning == pytest.approx(1, rel=0.01)


def test_inline_runs_that_are_as_expected_are_only_sampled() -> None:
    """What learning costs is felt where a run takes microseconds; a run that has become slow is looked at each time."""
    times = RunTimes((Latency(1, 0.02, 0.03),), 0.1, Told())

    def run(took_ns: int) -> int:
        """As the engine does; how many runs of fifty were looked at."""
        before = sum(one.count for _, _, one in times.estimates())
        for _ in range(50):
            if times.skips:
                times.skips -= 1
            else:
                times.ran(1, INLINE, took_ns, NOW)
        return sum(one.count for _, _, one in times.estimates()) - before

    assert run(20_000) == 13
    assert run(40_000) > 13
    assert times.inline_ns(1, NOW) == pytest.approx(40_000, rel=0.1)


def test_case_without_runs_follows_others_after_a_processor_change() -> None:
    """A run alone has shown little, runs beside others are known to take twice as long: so does a run alone, and a
    batch. An inline run, which is on another core, does not.
    """
    times = times_of()
    for running in (1, INLINE):
        times.ran(1, running, 10 * NS_PER_MS, NOW)
    for at in range(4):
        times.ran(1, 2, 28 * NS_PER_MS, NOW + 1 + at)
    assert times.expected_ns(1, 2, NOW) == pytest.approx(28 * NS_PER_MS, rel=0.01)
    assert times.expected_ns(1, 1, NOW) == pytest.approx(20 * NS_PER_MS, rel=0.01)
    assert times.expected_ns(1, INLINE, NOW) == pytest.approx(10 * NS_PER_MS, rel=0.01)


def test_short_runs_do_not_change_expected_times_of_long_runs() -> None:
    """A row takes a fifth of a millisecond, and a worker's way there and back half of one: that is no slower processor,
    and sixteen rows take hardly longer for it.
    """
    times = RunTimes((Latency(1, 0.2, 0.3), Latency(16, 3.0, 3.6)), 0.1, Told())
    times.ran(16, 1, 3 * NS_PER_MS, NOW)
    for at in range(20):
        times.ran(1, 1, 7 * NS_PER_MS // 10, NOW + 1 + at)
    assert times.expected_ns(1, 1, NOW) == pytest.approx(0.7 * NS_PER_MS, rel=0.1)
    assert times.expected_ns(16, 1, NOW) == 3 * NS_PER_MS


def test_likely_time_of_an_unread_request_is_that_of_the_last_run() -> None:
    """Of one item; as the import says where that run is long ago."""
    times = times_of()
    assert times.likely_ns(NOW) == 10 * NS_PER_MS
    for _ in range(50):
        times.ran(1, 2, 28 * NS_PER_MS, NOW)
        times.ran(4, 1, 90 * NS_PER_MS, NOW)
    assert times.likely_ns(NOW) == pytest.approx(28 * NS_PER_MS, rel=0.01)
    assert times.likely_ns(NOW + TRUSTED_NS + 1) == 10 * NS_PER_MS


def test_ballooning_is_over_where_nothing_runs() -> None:
    """As with expected times: a caller that goes by ballooning asks for no runs, and none could show that
    it is over.
    """
    times = times_of()
    ran(times, 1, 1, 20)
    assert times.ballooning_at(NOW + TRUSTED_NS) == pytest.approx(2, rel=0.01)
    assert times.ballooning_at(NOW + TRUSTED_NS + 1) == 1.0
    ran(times, 1, 1, 5, count=100)
    assert times.ballooning_at(NOW + TRUSTED_NS + 1) == pytest.approx(0.5, rel=0.01)


def test_spread_of_runs_is_p99_over_median_as_measured() -> None:
    """Of as many at once; of the nearest batch, and of fewer at once, where that is all."""
    rows = (Latency(1, 10.0, 12.0), Latency(4, 30.0, 33.0), Latency(1, 14.0, 21.0, 2))
    times = RunTimes(rows, 0.1, Told())
    assert [times.spread(items, 1) for items in (1, 2, 4, 8)] == pytest.approx([1.2, 1.1, 1.1, 1.1])
    assert [times.spread(1, running) for running in (1, 2, 3)] == pytest.approx([1.2, 1.5, 1.5])
    assert times.spread(4, 2) == pytest.approx(1.5)
    assert RunTimes((Latency(1, 10.0, 12.0),), 0.1, Told()).spread(1, 2) == pytest.approx(1.2)
    assert RunTimes((Latency(1, 0.0, 0.0),), 0.1, Told()).spread(1, 1) == 1.0
