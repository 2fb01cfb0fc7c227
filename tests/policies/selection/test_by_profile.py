"""Speed and accuracy as the application prefers, after the SLO and the floor."""

import pytest

from appliance.domain.catalogue import Prefer
from appliance.policies.selection.base import SelectionInput, SelectionPlan
from appliance.policies.selection.by_profile import ByProfile
from tests.fakes.candidate import FakeCandidate

RESNET = (
    FakeCandidate("fp32", 100.0, 64.0, 131, p50_ms=58.0, loss=0.0),
    FakeCandidate("int8", 99.97, 28.0, 40, p50_ms=25.0, loss=0.04),
)
"""Measured: next to nothing is lost, and it takes less than half the time."""
SHUFFLENET = (
    FakeCandidate("fp32", 100.0, 5.1, 29, p50_ms=4.6, loss=0.0),
    FakeCandidate("int8", 99.9, 6.2, 12, p50_ms=5.6, loss=0.2),
)
"""Measured: quantised it is slower."""


def plan(
    *candidates: FakeCandidate, prefer: Prefer = Prefer.BALANCED, slo_ms: float | None = None, floor: float = 0.0
) -> SelectionPlan:
    return ByProfile().order(SelectionInput(candidates, slo_ms, floor, prefer, loss_max=0.5))


@pytest.mark.parametrize(
    ("prefer", "resnet", "shufflenet"),
    [(Prefer.BALANCED, "int8", "fp32"), (Prefer.ACCURACY, "fp32", "fp32"), (Prefer.SPEED, "int8", "fp32")],
)
def test_first_variant_follows_the_preference(prefer: Prefer, resnet: str, shufflenet: str) -> None:
    assert plan(*RESNET, prefer=prefer).order[0] == resnet
    assert plan(*SHUFFLENET, prefer=prefer).order[0] == shufflenet


@pytest.mark.parametrize("loss", [None, 0.51])
def test_balanced_preference_takes_a_faster_variant_only_with_proof(loss: float | None) -> None:
    """Without samples enough the order stays; speed alone asks for no proof."""
    int8 = FakeCandidate("int8", 99.97, 28.0, 40, p50_ms=25.0, loss=loss)
    assert plan(RESNET[0], int8).order == ("fp32", "int8")
    assert plan(RESNET[0], int8, prefer=Prefer.SPEED).order == ("int8", "fp32")


def test_accuracy_floor_comes_before_speed() -> None:
    rough = FakeCandidate("rough", 60.0, 3.0, 10, p50_ms=2.0, loss=45.0)
    assert plan(*RESNET, rough, prefer=Prefer.SPEED).order == ("rough", "int8", "fp32")
    assert plan(*RESNET, rough, prefer=Prefer.SPEED, floor=90).order == ("int8", "fp32")


def test_slo_comes_before_the_preference() -> None:
    """60 ms: only int8 keeps it, whatever is preferred."""
    for prefer in Prefer:
        assert plan(*RESNET, prefer=prefer, slo_ms=60.0).order == ("int8", "fp32")


def test_variant_order_stays_while_a_run_time_is_unknown() -> None:
    """An import is still running."""
    new = FakeCandidate("fp32", 100.0, None, 131, loss=0.0)
    assert plan(new, RESNET[1]).order == ("fp32", "int8")


@pytest.mark.parametrize(("p50_ms", "first"), [(53.0, "fp32"), (52.0, "int8")])
def test_variant_faster_only_within_the_noise_does_not_come_first(p50_ms: float, first: str) -> None:
    """9 and 10 % faster than 58 ms: what is no gain is worth no loss."""
    int8 = FakeCandidate("int8", 99.97, 64.0, 40, p50_ms=p50_ms, loss=0.04)
    assert plan(RESNET[0], int8).order[0] == first


def test_selection_reason_has_the_figures() -> None:
    assert plan(*RESNET).reason == (
        "int8 takes 25 ms, fp32 58; it loses at most 0.04 points at 95 %. 2 of 2 have an accuracy of at least 0"
    )
    assert plan(*SHUFFLENET).reason == (
        "fp32 has the highest accuracy, and no other is faster at a loss of at most 0.5 points at 95 %. 2 of 2 have an "
        "accuracy of at least 0"
    )
    assert plan(*RESNET, prefer=Prefer.ACCURACY).reason == "2 of 2 have an accuracy of at least 0"


def test_selection_reason_names_agreement_where_no_labels_measured_it() -> None:
    problem = SelectionInput(SHUFFLENET, prefer=Prefer.BALANCED, meaning="agreement with fp32")
    reason = ByProfile().order(problem).reason
    assert reason.startswith("fp32 has the highest agreement with fp32, and no other is faster")
    assert "accura" not in reason


def test_variant_that_may_lose_something_is_never_level_with_one_that_loses_nothing() -> None:
    """129 requests on which both answered the same: the original is the more accurate one all the same."""
    original = FakeCandidate("fp32", 100.0, 64.0, 131, p50_ms=25.0, loss=0.0)
    promoted = FakeCandidate("int8", 100.0, 60.0, 40, p50_ms=25.0, loss=0.13)
    for prefer in Prefer:
        assert plan(original, promoted, prefer=prefer).order == ("fp32", "int8")
    assert "fp32 has the highest accuracy" in plan(original, promoted).reason
