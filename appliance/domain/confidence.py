"""How sure a difference of two accuracies is, given how few samples they were measured on: an interval at 95 %. Pure.

Where both were measured on the same samples, of these in pairs. Samples that are right or wrong: the interval of
Agresti and Min (2005) for matched proportions, Wald's with half a pair more of each of the four kinds, without which a
handful of samples on which the two differ, or none, would show too much. Others: the standard error of a difference of
ratio estimates, each sample's part of the error being (score - accuracy * weight) / mean weight. Else Newcombe's
interval for two independent proportions (1998, method 10, made of Wilson's). That holds for every figure of 0 to 1, for
none varies more than a proportion of the same mean does; it is only wider than need be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from appliance.domain.accuracy import Z, points
from appliance.domain.catalogue import Accuracy, SampleScore, Variant

_PAIRS_MIN = 4
"""Fewer pairs say nothing about a fidelity: two that happen to be equal have no spread at all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One accuracy less another, as shares, with its interval."""

    value: float
    low: float
    high: float
    samples: int
    """Of the smaller set, or of the pairs."""


def difference(one: Accuracy, other: Accuracy) -> Difference:
    """`one` less `other`."""
    pairs = min(len(one.scores), len(other.scores))
    if pairs and one.sample_set and one.sample_set == other.sample_set:
        return paired(one.scores[:pairs], other.scores[:pairs])
    return unpaired(one.share, one.samples, other.share, other.samples)


def losses(variants: Sequence[Variant]) -> Mapping[str, float]:
    """Variant id → points that it may be behind the most accurate of `variants` at 95 %; who is not in it may be
    behind by anything.

    A fidelity is shown by the spread of its samples, so a few of them suffice. With labels it takes many.
    """
    measured = [v for v in variants if v.accuracy is not None]
    if not measured or len(measured) < len(variants):  # an import goes on: the best may be yet to come
        return {}
    verified = [v for v in measured if v.is_verified] or measured
    best = min(verified, key=lambda v: (-v.accuracy_points, not v.is_original, v.number, v.name))
    found: dict[str, float] = {best.id: 0.0}
    for variant in measured:
        loss = _loss(best.accuracy, variant.accuracy)
        if variant is not best and loss is not None:
            found[variant.id] = loss
    return found


def _loss(best: Accuracy | None, other: Accuracy | None) -> float | None:
    """Points; None where the two figures cannot be compared."""
    assert best is not None and other is not None
    if other.loss_points is not None:
        return other.loss_points
    if (best.metric, best.against) != (other.metric, other.against):
        return None
    if best.against == "labels":
        return max(0.0, points(difference(best, other).high))
    pairs = min(len(best.scores), len(other.scores))
    if pairs < _PAIRS_MIN or not best.sample_set or best.sample_set != other.sample_set:
        return None
    return max(0.0, points(by_spread(best.scores[:pairs], other.scores[:pairs]).high))


def paired(ones: Sequence[SampleScore], others: Sequence[SampleScore]) -> Difference:
    """Of two variants on the same samples, in the same order; at least one."""
    if all(score.weight == 1 and score.value_sum in (0, 1) for score in (*ones, *others)):
        return matched(ones, others)
    return by_spread(ones, others)


def by_spread(ones: Sequence[SampleScore], others: Sequence[SampleScore]) -> Difference:
    """Of two variants on the same samples, by how much the differences of single samples vary."""
    count = len(ones)
    one, errors = _errors(ones)
    other, others_errors = _errors(others)
    apart = [a - b for a, b in zip(errors, others_errors, strict=True)]
    mean = sum(apart) / count
    spread = sum((each - mean) ** 2 for each in apart)
    half = _quantile(count - 1) * sqrt(spread / (count * (count - 1))) if count > 1 else 1.0
    return Difference(one - other, one - other - half, one - other + half, count)


def matched(ones: Sequence[SampleScore], others: Sequence[SampleScore]) -> Difference:
    """Of two variants that are right or wrong on the same samples."""
    gained = sum(a.value_sum > b.value_sum for a, b in zip(ones, others, strict=True))
    lost = sum(a.value_sum < b.value_sum for a, b in zip(ones, others, strict=True))
    count = len(ones)
    middle = (gained - lost) / (count + 2)
    half = Z * sqrt((gained + lost + 1) / (count + 2) - middle**2) / sqrt(count + 2)
    return Difference((gained - lost) / count, max(-1.0, middle - half), min(1.0, middle + half), count)


def unpaired(one: float, samples: int, other: float, others_samples: int) -> Difference:
    """Of two shares that were measured on different samples."""
    low, high = wilson(one, samples)
    others_low, others_high = wilson(other, others_samples)
    value = one - other
    below = sqrt((one - low) ** 2 + (others_high - other) ** 2)
    above = sqrt((high - one) ** 2 + (other - others_low) ** 2)
    return Difference(value, value - below, value + above, min(samples, others_samples))


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion; without samples it may be anything."""
    if samples < 1:
        return 0.0, 1.0
    squared = Z * Z
    centre = share + squared / (2 * samples)
    half = Z * sqrt(share * (1 - share) / samples + squared / (4 * samples * samples))
    whole = 1 + squared / samples
    return (centre - half) / whole, (centre + half) / whole


def _quantile(freedom: int) -> float:
    """Two-sided 95 % of Student's t, by its expansion about `Z` (Abramowitz and Stegun 26.7.5).

    For 3 degrees of freedom 0.1 % too small, from 10 on right to four digits.
    """
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return Z + sum(term / float(freedom**power) for power, term in enumerate(terms, 1))


def _errors(scores: Sequence[SampleScore]) -> tuple[float, list[float]]:
    """The ratio Σ score / Σ weight, and each sample's part of its error; 1 where there was nothing to find."""
    weight = sum(score.weight for score in scores)
    if not weight:
        return 1.0, [0.0] * len(scores)
    ratio = sum(score.value_sum for score in scores) / weight
    mean = weight / len(scores)
    return ratio, [(score.value_sum - ratio * score.weight) / mean for score in scores]
