"""Drop curves by variant: rates and gaps, from results that were compared on a device."""

from random import Random

import pytest

from appliance.policies.sending.curves import SAMPLES_MIN, STALE, VARIANTS_MAX, DropCurves


def _own(curves: DropCurves, variant: str, rate: float, base: float = 0.0, times: int = 15) -> None:
    for stride in (4, 8) * times:
        curves.observe(variant, variant, stride, base + rate * stride)


def test_drop_rates_are_estimated_by_variant() -> None:
    """What the small one loses is not taken for what the large one does."""
    curves = DropCurves()
    assert curves.known() == {}
    _own(curves, "large", 0.004)
    _own(curves, "small", 0.01)
    assert {name: drop.rate for name, drop in curves.known().items()} == pytest.approx({"large": 0.004, "small": 0.01})
    fitted = curves.fitted("large")
    assert fitted is not None
    assert fitted.rate == pytest.approx(0.004)
    assert curves.fitted("none") is None


def test_variant_gap_leaves_out_age_and_jitter() -> None:
    """Small beside a fresh large one: 0.03 of gap + 0.01 a frame + 0.1 in which the large variant differs from
    itself."""
    random, curves = Random(1), DropCurves()
    _own(curves, "large", 0.004, base=0.1)
    _own(curves, "small", 0.01, base=0.12)
    for at, stride in enumerate((4, 8, 6, 4, 8, 6, 4)):
        wild = 0.9 if at == 2 else 0.03 + 0.01 * stride + 0.1 + random.gauss(0.0, 0.002)
        curves.observe("small", "large", stride, wild)
    assert curves.known()["small"].gaps == pytest.approx({"large": 0.03}, abs=0.005)
    assert curves.known()["large"].gaps == {}


def test_variant_gap_needs_enough_samples_and_is_never_negative() -> None:
    curves = DropCurves()
    _own(curves, "a", 0.01)
    for _ in range(SAMPLES_MIN - 1):
        curves.observe("a", "b", 5, 0.02)
    assert curves.known()["a"].gaps == {}
    curves.observe("a", "b", 5, 0.02)
    assert curves.known()["a"].gaps == {"b": 0.0}


def test_drop_curves_forget_old_samples_and_surplus_variants() -> None:
    """Drop curves hold no more variants than a box has; a result of the frame itself says nothing."""
    curves = DropCurves()
    _own(curves, "a", 0.01)
    curves.observe("a", "a", 0, 0.5)
    for at in range(STALE + 1):
        curves.observe("b", "b", 4 + at % 5, 0.02)
    assert set(curves.known()) == {"b"}
    for at in range(2 * VARIANTS_MAX):
        curves.observe(f"v{at}", f"v{at}", 4, 0.02)
    assert len(curves.known()) == VARIANTS_MAX
