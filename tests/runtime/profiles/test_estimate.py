"""What is expected of a run follows what runs take."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.profiles.estimate import JUMP_MAX, SLACK_NS, TAIL_MAX, Estimate

ALPHA = 0.1
times = st.integers(0, 10**12)


def learnt(runs: list[int], start_ns: float = 1e6) -> Estimate:
    estimate = Estimate(start_ns, 1.2, start_ns)
    for took_ns in runs:
        estimate.ran(took_ns, 0, ALPHA)
    return estimate


def test_estimate_smooths_like_the_example_of_the_band_paper() -> None:
    """Profiled 100, measured 200, α = 0.1, so 110."""
    estimate = Estimate(100, 1.0, 100)
    estimate.ran(200, 0, 0.1)
    assert estimate.p50_ns == pytest.approx(110)


@given(st.floats(1, 1e12), st.floats(0, 1e12), st.lists(times, min_size=1, max_size=60), st.floats(0, 1))
def test_plain_estimate_is_the_formula_of_the_band_paper(
    start_ns: float, reference_ns: float, runs: list[int], alpha: float
) -> None:
    """However far off a run is, after however long a pause, and from the first one on."""
    estimate, expected_ns = Estimate(start_ns, 1.2, reference_ns, is_plain=True), start_ns
    for number, took_ns in enumerate(runs):
        estimate.ran(took_ns, number * 10**10, alpha)
        expected_ns = alpha * took_ns + (1 - alpha) * expected_ns
        assert estimate.p50_ns == expected_ns


def test_plain_estimate_counts_a_run_six_times_as_long_in_full() -> None:
    """8.274 ms expected, 52.665 measured: 0.1 x 52.665 + 0.9 x 8.274 = 12.7131; robust counts 16.548 for it."""
    plain, robust = Estimate(8.274e6, 1.2, 8.274e6, is_plain=True), Estimate(8.274e6, 1.2, 8.274e6)
    for one in (plain, robust):
        one.ran(52_665_000, 0, 0.1)
    assert plain.p50_ns == pytest.approx(12.7131e6)
    assert robust.p50_ns == pytest.approx(9.1014e6, abs=200)


@given(st.lists(times, max_size=60), st.floats(0, 1), st.floats(1, 1e12))
def test_estimate_stays_within_measured_and_seen_times(runs: list[int], alpha: float, start_ns: float) -> None:
    """Never below the least nor above the most of what was measured and seen; P99 is no less than the median."""
    estimate = Estimate(start_ns, 1.0, start_ns)
    for took_ns in runs:
        estimate.ran(took_ns, 0, alpha)
        assert 1.0 <= estimate.tail <= TAIL_MAX * 1.1
    margin = 1e-9 * max(start_ns, *runs, 1)
    assert min(start_ns, *runs, start_ns) - margin <= estimate.p50_ns <= max(start_ns, *runs, start_ns) + margin
    assert estimate.count == len(runs)


@given(st.floats(1, 1e12), times)
def test_slow_run_moves_the_estimate_by_a_tenth_at_most(start_ns: float, took_ns: int) -> None:
    """However long the run took."""
    estimate = Estimate(start_ns, 1.0, start_ns)
    estimate.ran(took_ns, 0, ALPHA)
    assert estimate.p50_ns <= start_ns * (1 + ALPHA * (JUMP_MAX - 1)) + ALPHA * SLACK_NS + 1e-6


@given(st.floats(0, 0.999), st.integers(0, 50))
def test_estimate_without_a_weight_learns_nothing(share: float, count: int) -> None:
    """α = 0 leaves what the import measured."""
    estimate = Estimate(1e6, 1.2, 1e6)
    for _ in range(count):
        estimate.ran(int(share * 1e7), 0, 0.0)
    assert estimate.p50_ns == 1e6


@given(st.lists(st.integers(900_000, 1_100_000), min_size=200, max_size=300), st.randoms(use_true_random=False))
def test_order_of_runs_changes_the_estimate_little(runs: list[int], random: Random) -> None:
    """Of runs that differ by a tenth each way, whichever order leads to within a tenth of the same."""
    others = list(runs)
    random.shuffle(others)
    assert learnt(runs).p50_ns == pytest.approx(learnt(others).p50_ns, rel=0.2)


@pytest.mark.parametrize("factor", [0.1, 0.5, 2, 4, 10])
def test_estimate_follows_another_speed_within_fifty_runs(factor: float) -> None:
    """Within a tenth of the truth, with noise of a tenth each way."""
    random = Random(1)
    runs = [int(1e6 * factor * random.uniform(0.9, 1.1)) for _ in range(50)]
    assert learnt(runs).p50_ns == pytest.approx(1e6 * factor, rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 2])
def test_estimate_follows_half_or_twice_the_speed_within_four_runs(factor: float) -> None:
    """Four such runs are no chance; what the mildest of them took counts, so the estimate is not beyond the truth."""
    runs = [int(1e6 * factor * noise) for noise in (1.0, 1.04, 0.97, 1.02)]
    assert learnt(runs[:3]).p50_ns == pytest.approx(1e6 * (1 + (factor - 1) * 0.271), rel=0.05)
    assert learnt(runs).p50_ns == pytest.approx(1e6 * factor, rel=0.05)
    assert learnt(runs + [10**6] * 4).p50_ns == pytest.approx(1e6, rel=0.05)


def test_estimate_after_a_burst_of_slow_runs_is_bounded() -> None:
    """Four runs that others disturbed a hundred times over are not taken at their word."""
    assert learnt([10**8] * 4).p50_ns <= 1.6 * JUMP_MAX * 1e6
    assert learnt([10**8, 10**6] * 2).p50_ns < 1.3e6


def test_estimated_p99_is_exceeded_by_about_one_run_in_a_hundred() -> None:
    """Of a skewed distribution: between half and twice one in a hundred of later runs are above it, on average."""
    random = Random(2)
    estimate = learnt([int(1e6 * random.lognormvariate(0, 0.3)) for _ in range(5000)])
    above = 0
    for _ in range(20_000):
        took_ns = int(1e6 * random.lognormvariate(0, 0.3))
        above += took_ns > estimate.p99_ns
        estimate.ran(took_ns, 0, ALPHA)
    assert 0.005 < above / 20_000 < 0.02


def test_estimate_without_a_measurement_begins_at_the_quickest_run() -> None:
    """The first run pays for pages: it is not where learning begins."""
    estimate = Estimate(50e6, 1.0)
    for took_ns in (50_000_000, 1_000_000, 1_100_000, 1_050_000, 1_000_000):
        estimate.ran(took_ns, 0, ALPHA)
    assert estimate.p50_ns == pytest.approx(1e6)


def test_estimate_of_zero_follows_runs_that_take_time() -> None:
    """A build that took no time may take some later."""
    estimate = Estimate(0.0, 1.0)
    for took_ns in [0] * 10 + [10**6] * 120:
        estimate.ran(took_ns, 0, ALPHA)
    assert estimate.p50_ns == pytest.approx(1e6, rel=0.1)
