"""Which variants keep a latency SLO."""

import pytest

from appliance.domain.slo import fits_alone, keeps_slo, preferred

P99_MS = {"fp32": 20.0, "int8": 5.0}


@pytest.mark.parametrize(
    ("p99_ms", "slo_ms", "keeps", "alone"),
    [
        (5.0, 10.0, True, True),
        (5.0, 9.9, False, True),
        (5.0, 5.0, False, True),
        (5.0, 4.9, False, False),
        (5.0, None, True, True),
        (None, 1.0, True, True),
    ],
)
def test_variant_keeps_slo_when_twice_its_p99_fits(
    p99_ms: float | None, slo_ms: float | None, keeps: bool, alone: bool
) -> None:
    """At the edge it still does, and an unknown P99 is taken to fit; a run alone needs one P99."""
    assert (keeps_slo(p99_ms, slo_ms), fits_alone(p99_ms, slo_ms)) == (keeps, alone)


@pytest.mark.parametrize(
    ("slo_ms", "first"),
    [
        (None, ["fp32", "int8"]),
        (40.0, ["fp32", "int8"]),
        (39.0, ["int8"]),
        (9.0, ["int8"]),
        (4.0, ["fp32", "int8"]),
    ],
)
def test_variants_that_keep_the_slo_are_preferred(slo_ms: float | None, first: list[str]) -> None:
    """Where none keeps it, variants that are in time alone; else all."""
    assert preferred(list(P99_MS), P99_MS.__getitem__, slo_ms) == first
