"""Which variants are worth choosing. Pure; called by the importer once a variant has been measured, and again when another one has.

A variant is shelved, with the reason, when it is below the floor, or when another one is at least as accurate and this one is
neither smaller in memory nor faster. The full-size original and the tenant's own variants are never shelved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.domain.catalogue import Precision, Variant
from appliance.domain.states import VariantState

NOTICEABLE = 0.05
"""A difference in memory or latency below this is measuring noise, not a gain."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state a variant should have, and why."""

    state: VariantState
    reason: str = ""


def verdicts(variants: Sequence[Variant], floor: float) -> dict[str, Verdict]:
    """Verdict by variant id for those of `variants` that are READY or SHELVED and have been measured.

    `floor` is a share of the original's accuracy in 0..1. Of equally good variants the smaller stays, then the first by name.
    O(n²) for n variants of one model.
    """
    original = next((variant for variant in variants if _is_original(variant)), None)
    judged = [variant for variant in variants if variant.servable and variant.accuracy is not None]
    found: dict[str, Verdict] = {}
    kept: list[Variant] = []
    for variant in sorted(judged, key=_preference):
        reason = "" if _is_exempt(variant) else _below(variant, original, floor) or _dominated(variant, kept)
        found[variant.id] = Verdict(VariantState.SHELVED, reason) if reason else Verdict(VariantState.READY)
        if not reason:
            kept.append(variant)
    return found


def _is_original(variant: Variant) -> bool:
    return variant.name == Precision.FP32.value


def _is_exempt(variant: Variant) -> bool:
    return _is_original(variant) or variant.precision is Precision.OWN


def _preference(variant: Variant) -> tuple[bool, float, float, float, str]:
    """Whoever comes first may push out those after it."""
    assert variant.accuracy is not None
    latency_ms = variant.profile.p50_ms() if variant.profile else 0.0
    return (not _is_exempt(variant), -variant.accuracy.points, _memory(variant), latency_ms, variant.name)


def _memory(variant: Variant) -> float:
    return variant.profile.resident_bytes if variant.profile else variant.size_bytes


def _below(variant: Variant, original: Variant | None, floor: float) -> str:
    accuracy = variant.accuracy
    assert accuracy is not None
    figure = f"{variant.name}: {accuracy.metric} {accuracy.share:.2f}"
    if accuracy.against == "labels" and original is not None and original.accuracy is not None:
        best = original.accuracy.share
        if accuracy.share < floor * best:
            return f"{figure} is below the floor {floor:.2f} of the original's {best:.2f}"
    elif accuracy.share < floor:
        return f"{figure} is below the floor {floor:.2f}"
    return ""


def _dominated(variant: Variant, others: Sequence[Variant]) -> str:
    """Why `variant` is no use beside one of `others`; empty when it is, or when it cannot be told yet."""
    for other in others:
        if _comparable(variant, other) and not _is_cheaper(variant, other):
            assert variant.accuracy is not None and other.accuracy is not None
            figures = f"{variant.accuracy.metric} {variant.accuracy.share:.3f} to {other.accuracy.share:.3f}"
            return f"{variant.name}: no more accurate than {other.name} ({figures}), and neither smaller in memory nor faster"
    return ""


def _comparable(variant: Variant, other: Variant) -> bool:
    """Both are profiled, and their accuracies mean the same; `other` is at least as accurate."""
    mine, its = variant.accuracy, other.accuracy
    if mine is None or its is None or variant.profile is None or other.profile is None:
        return False
    return (mine.metric, mine.against) == (its.metric, its.against) and its.points >= mine.points


def _is_cheaper(variant: Variant, other: Variant) -> bool:
    assert variant.profile is not None and other.profile is not None
    is_smaller = variant.profile.resident_bytes < (1 - NOTICEABLE) * other.profile.resident_bytes
    is_faster = variant.profile.p50_ms() < (1 - NOTICEABLE) * other.profile.p50_ms()
    return is_smaller or is_faster
