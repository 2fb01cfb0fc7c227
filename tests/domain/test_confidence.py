"""Intervals of differences, against cases from the literature and by hand."""

from dataclasses import replace
from math import sqrt

import pytest

from appliance.domain.catalogue import Accuracy, Evidence, SampleScore, Variant
from appliance.domain.confidence import difference, losses, paired, unpaired, wilson
from tests.fakes.engine import make_variant


def scores(*rows: tuple[float, float]) -> tuple[SampleScore, ...]:
    return tuple(SampleScore(*row) for row in rows)


def test_wilson_interval_matches_published_cases() -> None:
    """Newcombe 1998 (one proportion), table I, method 3: 81 of 263 and 0 of 20."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0.5, 0) == (0, 1)


def test_newcombe_interval_matches_published_cases() -> None:
    """Newcombe 1998 (differences), table II, method 10: 56 of 70 less 48 of 80, and 9 of 10 less 3 of 10."""
    found = unpaired(56 / 70, 70, 48 / 80, 80)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert found.samples == 70
    found = unpaired(0.9, 10, 0.3, 10)
    assert (found.low, found.high) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def test_paired_difference_of_binary_scores_matches_hand_computation() -> None:
    """64 samples, 8 of them right with one only: 8 / 66 ± 1.96 √(9 / 66 - (8 / 66)²) / √66 = 0.1212 ± 0.0842.

    The value is 8 / 64; the interval is not around it.
    """
    one = scores(*[(1, 1)] * 60, *[(0, 1)] * 4)
    other = scores(*[(1, 1)] * 52, *[(0, 1)] * 12)
    found = paired(one, other)
    assert (found.value, found.low, found.high) == pytest.approx((0.125, 0.0371, 0.2054), abs=5e-5)


def test_paired_difference_of_equal_scores_keeps_interval_around_zero() -> None:
    """As far as 64 samples can tell, 1.96 √(1 / 66) / √66 = 0.0297 either way."""
    one = scores(*[(1, 1)] * 60, *[(0, 1)] * 4)
    found = paired(one, one)
    assert (found.value, found.low, found.high) == pytest.approx((0, -0.0297, 0.0297), abs=5e-5)


@pytest.mark.parametrize("samples", [30, 64])
def test_paired_difference_of_four_discordant_pairs_is_inconclusive(samples: int) -> None:
    """McNemar's exact test: 4 against 0 has p = 2 / 2⁴ = 0.125, 6 against 0 has p = 2 / 2⁶ = 0.03."""
    one = scores(*[(1, 1)] * samples)
    assert paired(one, scores(*[(1, 1)] * (samples - 4), *[(0, 1)] * 4)).low < 0
    assert paired(one, scores(*[(1, 1)] * (samples - 6), *[(0, 1)] * 6)).low > 0


def test_paired_difference_of_weighted_scores_matches_hand_computation() -> None:
    """F1 of 6/8 and 4/8: parts of the errors -0.1875, 0.5625 and -0.375, so 0.25 ± 4.271 √(0.4921875 / 6).

    Student's t for two degrees of freedom is 4.303; the expansion is 0.7 % below.
    """
    found = paired(scores((2, 2), (2, 2), (2, 4)), scores((2, 2), (0, 2), (2, 4)))
    assert (found.value, found.low, found.high) == pytest.approx((0.25, -0.9731, 1.4731), abs=5e-5)


def test_paired_difference_of_one_sample_is_inconclusive() -> None:
    found = paired(scores((1, 1)), scores((0, 1)))
    assert found.low <= 0 <= found.high


def test_paired_empty_pictures_score_one_without_detections() -> None:
    """Two empty pictures: an answer without objects has no error and scores 1, two invented objects score 0."""
    silent = scores((0, 0), (0, 0))
    same, apart = paired(silent, silent), paired(silent, scores((0, 2), (0, 0)))
    assert (same.value, same.low, same.high, same.samples) == (0.0, 0.0, 0.0, 2)
    assert (apart.value, apart.low, apart.high, apart.samples) == (1.0, 1.0, 1.0, 2)


def test_accuracy_difference_is_paired_only_for_same_samples() -> None:
    """Another sample set, or one that was not recorded, is compared as if independent; a set that was cut short by time
    is paired as far as it goes.
    """
    right, wrong = scores(*[(1, 1)] * 40), scores(*[(1, 1)] * 30, *[(0, 1)] * 10)
    one = Accuracy(100, "top-1", "labels", 40, "", right, "s")
    same = difference(one, Accuracy(75, "top-1", "labels", 40, "", wrong, "s"))
    assert same == paired(right, wrong)
    for other in (Accuracy(75, "top-1", "labels", 40, "", wrong, "t"), Accuracy(75, "top-1", "labels", 40)):
        assert difference(one, other) == unpaired(1.0, 40, 0.75, 40)
    short = Accuracy(100, "top-1", "labels", 32, "", right[:32], "s")
    assert difference(short, Accuracy(75, "top-1", "labels", 40, "", wrong, "s")) == paired(right[:32], wrong[:32])


def fidelity(name: str, *values: float, against: str = "fp32", samples: str = "s") -> Variant:
    """A measured variant; each sample counts 1."""
    taken = scores(*[(value, 1) for value in values])
    mean = 100 * sum(values) / len(values)
    accuracy = Accuracy(mean, "cosine", against, len(values), "", taken, samples)
    return replace(make_variant("t/m", name), accuracy=accuracy)


FP32 = fidelity("fp32", 1, 1, 1, 1)


def loss(*variants: Variant) -> float | None:
    """Of the last one."""
    return losses(variants).get(variants[-1].id)


def test_fidelity_loss_of_similar_samples_is_bounded_tightly() -> None:
    """Mean 0.9997, standard deviation 0.0001: 0.03 points and 3.18 × 0.01 / √4 of them."""
    found = loss(FP32, fidelity("int8", 0.9998, 0.9996, 0.9997, 0.9997))
    assert found == pytest.approx(0.03 + 3.1786 * 0.00816497 / 2, abs=1e-4)


def test_fidelity_loss_of_differing_samples_is_bounded_loosely() -> None:
    found = loss(FP32, fidelity("int8", 1, 1, 1, 0.96))
    assert found is not None
    assert found > 1 + 1


def test_labelled_accuracy_needs_more_samples_than_fidelity() -> None:
    """Four samples that both variants get right say next to nothing."""
    found = loss(fidelity("fp32", 1, 1, 1, 1, against="labels"), fidelity("int8", 1, 1, 1, 1, against="labels"))
    assert found == pytest.approx(100 * 1.959964 * sqrt(1 / 6) / sqrt(6), abs=1e-3)


def test_accuracy_loss_without_comparable_samples_is_unknown() -> None:
    """Other samples, too few of them, none kept by an earlier version, another metric; a model half imported."""
    assert loss(FP32, fidelity("int8", 1, 1, 1, 0.9, samples="t")) is None
    assert loss(FP32, fidelity("int8", 1, 1, 0.9)) is None
    assert loss(FP32, replace(make_variant("t/m", "int8"), accuracy=Accuracy(99.9, "cosine", "fp32", 64))) is None
    assert loss(FP32, fidelity("int8", 1, 1, 1, 0.9, against="labels")) is None
    assert losses([FP32, fidelity("int8", 1, 1, 1, 1), replace(make_variant("t/m", "fp16"), accuracy=None)]) == {}


def test_stated_accuracy_loss_takes_precedence_over_scores() -> None:
    """A scenario has no samples."""
    stated = replace(make_variant("t/m", "int8"), accuracy=Accuracy(99, "given", "given", 1, loss_points=1.5))
    assert loss(FP32, stated) == 1.5


def test_unverified_variant_is_no_baseline_for_verified_variants() -> None:
    """However close to the original the variant seems on noise."""
    right = (SampleScore(1, 1),) * 40
    labelled = Accuracy(100, "top-1", "labels", 40, "", right, "s")
    verified = [replace(make_variant("t/m", name), accuracy=labelled) for name in ("fp32", "int8")]
    noise = Accuracy(100, "1-error", "fp32", 4, "", right[:4], "synthetic", evidence=Evidence.NOISE)
    mine = replace(make_variant("t/m", "a"), accuracy=noise)
    assert losses([*verified, mine]) == losses(verified)
