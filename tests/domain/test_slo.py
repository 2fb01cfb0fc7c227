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
def test_a_run_to_wait_for_and_its_own(p99_ms: float | None, slo_ms: float | None, keeps: bool, alone: bool) -> None:
    """Twice the P99 must fit; at the edge it still does; what is not known is taken to fit."""
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
def test_who_goes_first(slo_ms: float | None, first: list[str]) -> None:
    """Who keeps it, else who is in time alone, else all."""
    assert preferred(list(P99_MS), P99_MS.__getitem__, slo_ms) == first
