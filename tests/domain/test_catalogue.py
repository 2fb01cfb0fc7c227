"""What a model's list of variants says to a person."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Evidence,
    Model,
    Precision,
    TaskSpec,
    Unverified,
    Variant,
    shown_by,
)
from appliance.domain.trial import Trial, Verdict


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Trial(), "agrees with the original to 100 % on 0 requests (0 to 100 % at 95 %)"),
        (Trial(1, 0.5, 0.25), "agrees with the original to 50 % on 1 request (0 to 100 % at 95 %)"),
    ],
)
def test_trial_text_states_number_of_requests_and_interval(trial: Trial, words: str) -> None:
    """Fewer than two requests show nothing about the mean."""
    assert shown_by(trial) == words


UNVERIFIED = Evidence.NOISE, Evidence.CALIBRATION, Evidence.DISAGREED


def variant(evidence: Evidence, trial: Trial | None = None) -> Variant:
    accuracy = Accuracy(20.0, "1-error", "fp32", 4, evidence=evidence, trial=trial)
    return Variant("t/m:int8", "t/m", "int8", Precision.INT8, "a" * 64, 1, (), (), accuracy=accuracy)


@pytest.mark.parametrize(
    ("verdict", "standing"), [(Verdict.DISMISSED, "dismissed"), (Verdict.RUNNING, "on trial again")]
)
def test_variant_that_disagrees_is_never_chosen_and_says_what_is_known(verdict: Verdict, standing: str) -> None:
    off = variant(Evidence.DISAGREED, Trial(4, 0.8, 0.16, verdict=verdict))
    for unverified in Unverified:
        assert not Application("t/a", "t", "a", "t/m", unverified=unverified).may_choose(off)
    assert (
        off.doubt == f"int8 is {standing}: it agrees with the original to 20 % on 4 requests (1.14 to 38.86 % at 95 %)"
    )


@pytest.mark.parametrize("evidence", list(Evidence))
def test_evidence_of_real_inputs_verifies_variant(evidence: Evidence) -> None:
    found = variant(evidence)
    assert found.is_verified == (evidence not in UNVERIFIED) == (not found.doubt)
    assert Application("t/a", "t", "a", "t/m").may_choose(found) == found.is_verified


@pytest.mark.parametrize(
    ("trial", "points"), [(None, 20.0), (Trial(), 20.0), (Trial(4, 4.0, 4.0), 20.0), (Trial(4, 0.4, 0.16), 10.0)]
)
def test_unverified_variant_counts_no_more_than_its_trial_shows(trial: Trial | None, points: float) -> None:
    """The figure of the noise, 20 points, proves nothing."""
    assert variant(Evidence.NOISE, trial).accuracy_points == points


def test_variant_compared_on_its_calibration_samples_says_so() -> None:
    words = "int8 is unverified: its answers were compared on the samples that it was calibrated with only"
    assert variant(Evidence.CALIBRATION).doubt == words


@pytest.mark.parametrize(
    ("against", "original", "points", "promised", "is_watched"),
    [
        ("fp32", 100.0, 97.0, 0.97, True),
        ("labels", 95.0, 90.0, 0.85, True),
        ("labels", 60.0, 55.0, 0.15, False),
        ("labels", 40.0, 40.0, 0.0, False),
        ("labels", None, 90.0, 0.9, False),
        ("fp32", 100.0, 45.0, 0.45, False),
    ],
)
def test_samples_promise_how_far_a_variant_agrees(
    against: str, original: float | None, points: float, promised: float, is_watched: bool
) -> None:
    """On labels: where both are right they agree. Without an original nothing can be compared."""
    fp32 = Variant("t/m:fp32", "t/m", "fp32", Precision.FP32, "b" * 64, 1, (), (), is_original=True)
    whole = Accuracy(original or 0.0, "top-1", against, 64, evidence=Evidence.ORIGINAL)
    int8 = replace(variant(Evidence.SAMPLES), accuracy=Accuracy(points, "top-1", against, 64))
    others = () if original is None else (replace(fp32, accuracy=whole),)
    model = Model("t/m", "t", "m", TaskSpec(), (int8, *others))
    assert model.promised(int8) == pytest.approx(promised)
    assert bool(model.trials) == is_watched


def test_only_variants_that_samples_verify_are_promised_anything() -> None:
    unmeasured = replace(variant(Evidence.NOISE), accuracy=None)
    model = Model("t/m", "t", "m", TaskSpec(), (unmeasured,))
    assert model.promised(unmeasured) is model.promised(variant(Evidence.TRAFFIC)) is None


def test_variant_agreement_is_of_requests_before_samples_and_never_of_labels_or_noise() -> None:
    """The original agrees with itself. Fidelity on samples counts until requests show more."""
    fidelity = Accuracy(90.0, "f1@0.5", "fp32", 64)
    variant = Variant("t/m:int8", "t/m", "int8", Precision.INT8, "a" * 64, 1, (), (), accuracy=fidelity)
    assert variant.agreement == 0.9
    tried = replace(fidelity, trial=Trial(samples=4, total=3.0))
    assert replace(variant, accuracy=tried).agreement == 0.75
    assert replace(variant, accuracy=None).agreement is None
    assert replace(variant, accuracy=replace(fidelity, against="labels")).agreement is None
    assert replace(variant, accuracy=replace(fidelity, evidence=Evidence.NOISE)).agreement is None
    assert replace(variant, is_original=True).agreement == 1.0
