"""Which variants are worth choosing.

Pure; called by the importer once a variant has been measured, and again when another one has.

A variant is excluded, with the reason, when it is below the floor, or when another one is more accurate and this one
is neither smaller in memory nor faster. More accurate is what is so for sure: by more than the samples leave open at
95 % (`domain.confidence`), and with `SAMPLES_MIN` of them at least. Where it only looks so the variant stays, and its
reason says that. The original needs no samples where the figure is agreement with the original. It and the tenant's own
variants are never excluded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.domain.accuracy import SAMPLES_MIN, meaning_of
from appliance.domain.catalogue import Precision, Variant
from appliance.domain.confidence import difference
from appliance.domain.states import VariantState

NOTICEABLE = 0.05
"""A difference in memory or latency below this is measuring noise, not a gain."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state a variant should have, and why; of a ready one, why it was not excluded although that seemed right."""

    state: VariantState
    reason: str = ""


def dominance(variants: Sequence[Variant], floor: float) -> dict[str, Judgement]:
    """Judgement by variant id for those of `variants` that are READY or EXCLUDED and have been measured.

    `floor` is a share of the original's accuracy in 0..1. Of equally good variants the smaller stays, then the first by
    name. O(n²) for n variants of one model.
    """
    original = next((variant for variant in variants if variant.is_original), None)
    judged = [variant for variant in variants if variant.servable and variant.accuracy is not None]
    found: dict[str, Judgement] = {}
    kept: list[Variant] = []
    for variant in sorted(judged, key=_preference):
        found[variant.id] = _judgement(variant, original, kept, floor)
        if found[variant.id].state is VariantState.READY:
            kept.append(variant)
    return found


def _judgement(variant: Variant, original: Variant | None, kept: Sequence[Variant], floor: float) -> Judgement:
    if _is_exempt(variant):
        return Judgement(VariantState.READY)
    if below := _below(variant, original, floor):
        return Judgement(VariantState.EXCLUDED, below)
    doubt = ""
    for other in kept:
        if _comparable(variant, other) and not _is_cheaper(variant, other):
            in_doubt = _doubt(variant, other, original)
            if not in_doubt:
                return Judgement(VariantState.EXCLUDED, _dominated(variant, other, original))
            doubt = doubt or in_doubt
    return Judgement(VariantState.READY, doubt)


def _is_exempt(variant: Variant) -> bool:
    return variant.is_original or variant.precision is Precision.OWN


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
    called = meaning_of(accuracy.against, Precision.FP32 if original is None else original.precision)
    figure = f"its {called}, {accuracy.metric} {accuracy.share:.2f},"
    if accuracy.against == "labels" and original is not None and original.accuracy is not None:
        best = original.accuracy.share
        if accuracy.share < floor * best:
            return f"{figure} is below the floor {floor:.2f} of the original's {best:.2f}"
    elif accuracy.share < floor:
        return f"{figure} is below the floor {floor:.2f}"
    return ""


def _dominated(variant: Variant, other: Variant, original: Variant | None) -> str:
    figures = _figures(variant, other, original)
    return f"no better than {other.name} ({figures}), and neither smaller in memory nor faster"


def _doubt(variant: Variant, other: Variant, original: Variant | None) -> str:
    """Why it cannot be said that `other` is the more accurate one; empty when it can."""
    mine, its = variant.accuracy, other.accuracy
    assert mine is not None and its is not None
    if other.is_original and its.against == "fp32":
        return ""  # nothing is more like the original than itself
    found = difference(its, mine)
    if found.samples >= SAMPLES_MIN and found.low > 0:
        return ""
    wanted = f", of {SAMPLES_MIN} that it takes," if found.samples < SAMPLES_MIN else ""
    return (
        f"stays available beside {other.name}, which seems no worse ({_figures(variant, other, original)}) and is no "
        f"larger and no slower: {found.samples} samples{wanted} do not show that "
        f"(the difference is {found.low:+.3f} to {found.high:+.3f} at 95 %)"
    )


def _figures(variant: Variant, other: Variant, original: Variant | None) -> str:
    assert variant.accuracy is not None and other.accuracy is not None
    called = meaning_of(variant.accuracy.against, Precision.FP32 if original is None else original.precision)
    return f"{called}, {variant.accuracy.metric}: {variant.accuracy.share:.3f} to {other.accuracy.share:.3f}"


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
