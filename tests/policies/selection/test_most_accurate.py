"""The most accurate variant that keeps the SLO comes first."""

import pytest

from appliance.policies.selection.base import SelectionInput
from appliance.policies.selection.most_accurate import MostAccurate
from tests.fakes.candidate import FakeCandidate


def order(*candidates: FakeCandidate, slo_ms: float | None = None, floor: float = 0.0) -> tuple[str, ...]:
    return MostAccurate().order(SelectionInput(candidates, slo_ms, floor)).order


FP32 = FakeCandidate("fp32", 95, 20.0, 100)
INT8 = FakeCandidate("int8", 90, 5.0, 25)


def test_accuracy_first() -> None:
    """Without an SLO the best wins."""
    assert order(INT8, FP32) == ("fp32", "int8")


@pytest.mark.parametrize(("slo_ms", "first"), [(40.0, "fp32"), (39.9, "int8")])
def test_twice_the_p99_must_fit(slo_ms: float, first: str) -> None:
    """One execution of waiting and one of its own (Jellyfish §IV-A eq. 5); at the edge it still fits."""
    assert order(FP32, INT8, slo_ms=slo_ms)[0] == first


def test_where_none_keeps_it_those_in_time_without_waiting_come_first() -> None:
    """int8 needs 10 ms behind another run, but 5 alone."""
    assert order(FP32, INT8, slo_ms=8.0) == ("int8", "fp32")


def test_those_too_slow_come_last_fastest_first() -> None:
    """Behind the one that keeps it speed decides, not accuracy."""
    slow = FakeCandidate("slow", 92, 30.0, 50)
    fp16 = FakeCandidate("fp16", 91, 15.0, 50)
    assert order(FP32, slow, fp16, INT8, slo_ms=12.0) == ("int8", "fp16", "fp32", "slow")


def test_an_slo_that_none_keeps_changes_nothing() -> None:
    assert order(FP32, INT8, slo_ms=1.0) == order(FP32, INT8) == ("fp32", "int8")


def test_floor_excludes() -> None:
    """Below the application's accuracy floor a variant is no candidate at all."""
    assert order(FP32, INT8, floor=92) == ("fp32",)
    assert order(FP32, INT8, floor=99) == ()


def test_an_unknown_latency_is_taken_to_fit() -> None:
    """Not measured yet."""
    new = FakeCandidate("own", 100, None, 50)
    assert order(FP32, new, slo_ms=40.0) == ("own", "fp32")


def test_ties_go_to_the_smaller_then_the_faster_then_by_name() -> None:
    """Equal accuracy: fewer bytes; equal bytes: less time; equal time: the name."""
    rows = [FakeCandidate("d", 90, 5.0, 30), FakeCandidate("c", 90, 6.0, 20), FakeCandidate("b", 90, 5.0, 20)]
    assert order(*rows, FakeCandidate("a", 90, 5.0, 20)) == ("a", "b", "c", "d")


def test_reason_counts() -> None:
    """The reason says how many reach the floor and how many keep the SLO."""
    reason = MostAccurate().order(SelectionInput((FP32, INT8), 15.0, 50)).reason
    assert reason == "2 of 2 reach the accuracy floor 50, 1 keep 15 ms"
