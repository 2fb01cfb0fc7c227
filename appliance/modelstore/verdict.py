"""Whether a variant is worth choosing by itself. Pure."""

from appliance.domain.catalogue import Variant
from appliance.domain.states import VariantState

GAIN = 0.95
"""What counts as smaller or faster: at most this share of the original's; measurements differ by a few percent from run to run."""


def verdict(variant: Variant, original: Variant | None, accuracy_floor: float) -> tuple[VariantState, str]:
    """READY, or SHELVED with the reason: below the floor, or neither more accurate nor smaller nor faster than `original`.

    `original` is the full-size fp32 variant, None where this is that one, which is always ready.
    """
    if original is None:
        return VariantState.READY, ""
    accuracy = variant.accuracy
    if accuracy is not None and accuracy.value < accuracy_floor:
        return VariantState.SHELVED, (
            f"{accuracy.metric} {accuracy.value:.3f} against {accuracy.against} is below the floor of {accuracy_floor:g}"
        )
    if accuracy is not None and original.accuracy is not None and accuracy.value > original.accuracy.value:
        return VariantState.READY, ""
    if variant.profile is None or original.profile is None:
        return VariantState.READY, ""
    if variant.profile.resident_bytes <= GAIN * original.profile.resident_bytes:
        return VariantState.READY, ""
    if variant.profile.p50_ms() <= GAIN * original.profile.p50_ms():
        return VariantState.READY, ""
    return VariantState.SHELVED, (
        f"no use on this box: {variant.profile.resident_bytes / 2**20:.1f} MiB and {variant.profile.p50_ms():.1f} ms "
        f"against {original.profile.resident_bytes / 2**20:.1f} MiB and {original.profile.p50_ms():.1f} ms of {original.name}"
    )
