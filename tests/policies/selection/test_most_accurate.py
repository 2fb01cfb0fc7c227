"""The most accurate variant that keeps the SLO comes first."""

import pytest

from appliance.policies.selection.base import SelectionInput
from appliance.policies.selection.most_accurate import MostAccurate
from tests.fakes.candidate import FakeCandidate


def order(*candidates: FakeCandidate, slo_ms: float | None = None, floor: float = 0.0) -> tuple[str, ...]:
    return MostAccurate().order(SelectionInput(candidates, slo_ms, floor)).order


FP32 = FakeCandidate("fp32", 95, 20.0, 100)
INT8 = FakeCandidate("int8", 90, 5.0, 25)


def test_variant_order_without_an_slo_is_by_accuracy() -> None:
    """Without an SLO the best wins."""
    assert order(INT8, FP32) == ("fp32", "int8")


@pytest.mark.parametrize(("slo_ms", "first"), [(40.0, "fp32"), (39.9, "int8")])
def test_variant_comes_first_only_if_twice_its_p99_keeps_the_slo(slo_ms: float, first: str) -> None:
    """One execution of waiting and one of its own (Jellyfish §IV-A eq. 5); at the edge it still fits."""
    assert order(FP32, INT8, slo_ms=slo_ms)[0] == first


def test_variant_fast_enough_without_waiting_comes_first_if_none_keeps_slo() -> None:
    """int8 needs 10 ms behind another run, but 5 alone."""
    assert order(FP32, INT8, slo_ms=8.0) == ("int8", "fp32")


def test_variants_too_slow_for_the_slo_come_last_fastest_first() -> None:
    """Behind the variant that keeps the SLO speed decides, not accuracy."""
    slow = FakeCandidate("slow", 92, 30.0, 50)
    fp16 = FakeCandidate("fp16", 91, 15.0, 50)
    assert order(FP32, slow, fp16, INT8, slo_ms=12.0) == ("int8", "fp16", "fp32", "slow")


def test_slo_that_no_variant_keeps_does_not_change_the_order() -> None:
    assert order(FP32, INT8, slo_ms=1.0) == order(FP32, INT8) == ("fp32", "int8")


def test_variant_below_the_accuracy_floor_is_excluded() -> None:
    """Below the application's accuracy floor a variant is no candidate at all."""
    assert order(FP32, INT8, floor=92) == ("fp32",)
    assert order(FP32, INT8, floor=99) == ()


def test_variant_of_unknown_latency_is_taken_to_keep_the_slo() -> None:
    new = FakeCandidate("own", 100, None, 50)
    assert order(FP32, new, slo_ms=40.0) == ("own", "fp32")


def test_equally_accurate_variants_are_ordered_by_size_speed_and_name() -> None:
    """Equal accuracy: fewer bytes; equal bytes: less time; equal time: the name."""
    rows = [FakeCandidate("d", 90, 5.0, 30), FakeCandidate("c", 90, 6.0, 20), FakeCandidate("b", 90, 5.0, 20)]
    assert order(*rows, FakeCandidate("a", 90, 5.0, 20)) == ("a", "b", "c", "d")


def test_selection_reason_counts_variants_at_the_floor_and_slo() -> None:
    reason = MostAccurate().order(SelectionInput((FP32, INT8), 15.0, 50)).reason
    assert reason == "2 of 2 reach the accuracy floor 50, 1 keep 15 ms"
