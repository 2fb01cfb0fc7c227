"""Intervals of differences, against cases from the literature and by hand."""

import pytest

from appliance.domain.catalogue import Accuracy, SampleScore
from appliance.modelstore.importing.confidence import difference, paired, unpaired, wilson


def scores(*rows: tuple[float, float]) -> tuple[SampleScore, ...]:
    return tuple(SampleScore(*row) for row in rows)


def test_wilsons_interval() -> None:
    """Newcombe 1998 (one proportion), table I, method 3: 81 of 263 and 0 of 20."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0.5, 0) == (0, 1)


def test_newcombes_interval() -> None:
    """Newcombe 1998 (differences), table II, method 10: 56 of 70 less 48 of 80, and 9 of 10 less 3 of 10."""
    found = unpaired(56 / 70, 70, 48 / 80, 80)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert found.samples == 70
    found = unpaired(0.9, 10, 0.3, 10)
    assert (found.low, found.high) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def test_pairs_of_right_and_wrong() -> None:
    """64 samples, 8 of them right with one only: 8 / 66 ± 1.96 √(9 / 66 - (8 / 66)²) / √66 = 0.1212 ± 0.0842.

    The value is 8 / 64; the interval is not around it.
    """
    one = scores(*[(1, 1)] * 60, *[(0, 1)] * 4)
    other = scores(*[(1, 1)] * 52, *[(0, 1)] * 12)
    found = paired(one, other)
    assert (found.value, found.low, found.high) == pytest.approx((0.125, 0.0371, 0.2054), abs=5e-5)


def test_pairs_that_all_agree_leave_something_open() -> None:
    """As far as 64 samples can tell, 1.96 √(1 / 66) / √66 = 0.0297 either way."""
    one = scores(*[(1, 1)] * 60, *[(0, 1)] * 4)
    found = paired(one, one)
    assert (found.value, found.low, found.high) == pytest.approx((0, -0.0297, 0.0297), abs=5e-5)


@pytest.mark.parametrize("samples", [30, 64])
def test_four_pairs_apart_show_nothing(samples: int) -> None:
    """McNemar's exact test: 4 against 0 has p = 2 / 2⁴ = 0.125, 6 against 0 has p = 2 / 2⁶ = 0.03."""
    one = scores(*[(1, 1)] * samples)
    assert paired(one, scores(*[(1, 1)] * (samples - 4), *[(0, 1)] * 4)).low < 0
    assert paired(one, scores(*[(1, 1)] * (samples - 6), *[(0, 1)] * 6)).low > 0


def test_pairs_of_weighted_scores() -> None:
    """F1 of 6/8 and 4/8: parts of the errors -0.1875, 0.5625 and -0.375, so 0.25 ± 1.96 √(0.4921875 / 6)."""
    found = paired(scores((2, 2), (2, 2), (2, 4)), scores((2, 2), (0, 2), (2, 4)))
    assert (found.value, found.low, found.high) == pytest.approx((0.25, -0.3114, 0.8114), abs=5e-5)


def test_one_sample_says_nothing() -> None:
    found = paired(scores((1, 1)), scores((0, 1)))
    assert found.low <= 0 <= found.high


def test_pairs_only_of_the_same_samples() -> None:
    """Another set, or one that nobody wrote down: as if independent.

    A set that was cut short by time is paired as far as it goes.
    """
    right, wrong = scores(*[(1, 1)] * 40), scores(*[(1, 1)] * 30, *[(0, 1)] * 10)
    one = Accuracy(100, "top-1", "labels", 40, "", right, "s")
    same = difference(one, Accuracy(75, "top-1", "labels", 40, "", wrong, "s"))
    assert same == paired(right, wrong)
    for other in (Accuracy(75, "top-1", "labels", 40, "", wrong, "t"), Accuracy(75, "top-1", "labels", 40)):
        assert difference(one, other) == unpaired(1.0, 40, 0.75, 40)
    short = Accuracy(100, "top-1", "labels", 32, "", right[:32], "s")
    assert difference(short, Accuracy(75, "top-1", "labels", 40, "", wrong, "s")) == paired(right[:32], wrong[:32])
