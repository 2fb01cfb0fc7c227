"""The most accurate variant that keeps the SLO comes first."""

import pytest

from appliance.policies.selection.base import SelectionInput
from appliance.policies.selection.most_accurate import MostAccurate
from tests.fakes.candidate import FakeCandidate


def order(*candidates: FakeCandidate, slo_ms: float | None = None, floor: float = 0.0) -> tuple[str, ...]:
    return MostAccurate().order(SelectionInput(candidates, slo_ms, floor)).order


FP32 = FakeCandidate("fp32", 95, 20.0, 100)
INT8 = FakeCandidate("int8", 90, 5.0, 25)


SLOW, FP16 = FakeCandidate("slow", 92, 30.0, 50), FakeCandidate("fp16", 91, 15.0, 50)
UNMEASURED = FakeCandidate("own", 100, None, 50)
EQUAL = [FakeCandidate(name, 90, p99_ms, size) for name, p99_ms, size in (("d", 5, 30), ("c", 6, 20), ("b", 5, 20))]


@pytest.mark.parametrize(
    ("candidates", "slo_ms", "expected"),
    [
        pytest.param([INT8, FP32], None, "fp32 int8", id="by accuracy without an SLO"),
        pytest.param([FP32, INT8], 40.0, "fp32 int8", id="twice the P99 just keeps the SLO"),
        pytest.param([FP32, INT8], 39.9, "int8 fp32", id="twice the P99 does not keep the SLO"),
        pytest.param([FP32, INT8], 8.0, "int8 fp32", id="one keeps the SLO where it does not wait"),
        pytest.param([FP32, SLOW, FP16, INT8], 12.0, "int8 fp16 fp32 slow", id="too slow ones last, fastest first"),
        pytest.param([FP32, INT8], 1.0, "fp32 int8", id="none keeps the SLO"),
        pytest.param([FP32, UNMEASURED], 40.0, "own fp32", id="unknown latency keeps the SLO"),
        pytest.param([*EQUAL, FakeCandidate("a", 90, 5, 20)], None, "a b c d", id="equal: by bytes, time and name"),
    ],
)
def test_variants_are_ordered_by_accuracy_within_the_slo(
    candidates: list[FakeCandidate], slo_ms: float | None, expected: str
) -> None:
    """One execution of waiting and one of its own are within the SLO (Jellyfish §IV-A eq. 5)."""
    assert order(*candidates, slo_ms=slo_ms) == tuple(expected.split())


def test_variant_below_the_accuracy_floor_is_excluded() -> None:
    assert order(FP32, INT8, floor=92) == ("fp32",)
    assert order(FP32, INT8, floor=99) == ()


def test_selection_reason_counts_variants_at_the_floor_and_slo() -> None:
    reason = MostAccurate().order(SelectionInput((FP32, INT8), 15.0, 50)).reason
    assert reason == "2 of 2 have an accuracy of at least 50, 1 keep 15 ms"
