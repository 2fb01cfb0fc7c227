"""What a model's list of variants says to a person."""

import pytest

from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Evidence,
    Precision,
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
def test_a_trial_says_on_how_many_requests_it_stands(trial: Trial, words: str) -> None:
    """Fewer than two show nothing about the mean."""
    assert shown_by(trial) == words


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
    assert found.is_verified == (evidence not in (Evidence.NOISE, Evidence.DISAGREED)) == (not found.doubt)
    assert Application("t/a", "t", "a", "t/m").may_choose(found) == found.is_verified


@pytest.mark.parametrize(
    ("trial", "points"), [(None, 20.0), (Trial(), 20.0), (Trial(4, 4.0, 4.0), 20.0), (Trial(4, 0.4, 0.16), 10.0)]
)
def test_unverified_variant_counts_no_more_than_its_trial_shows(trial: Trial | None, points: float) -> None:
    """The figure of the noise, 20 points, proves nothing."""
    assert variant(Evidence.NOISE, trial).accuracy_points == points
