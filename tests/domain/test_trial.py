"""The sequential test by which a variant earns the right to answer: cases by hand, and how often it errs."""

import random
from collections.abc import Callable
from dataclasses import replace
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.trial import SEEN_MAX, Comparison, Trial, TrialRules, Verdict

RULES = TrialRules()


def ended(agreement: Callable[[], float], samples_max: int = 20_000) -> Trial:
    """A trial on samples until it has a verdict."""
    trial = Trial()
    while trial.verdict is Verdict.RUNNING and trial.samples < samples_max:
        trial = trial.after(agreement(), RULES)
    return trial


def watched(requests: int) -> Trial:
    """A trial that has promoted a variant, which has agreed on so many requests since."""
    trial = ended(lambda: 1.0)
    for _ in range(requests):
        trial = trial.after(1.0, RULES)
    return trial


def verdicts(share: float) -> list[Verdict]:
    """Of 400 trials of a variant that agrees on this share of the requests."""

    def verdict(rng: random.Random) -> Verdict:
        return ended(lambda: float(rng.random() < share)).verdict

    return [verdict(random.Random(seed)) for seed in range(400)]


def test_trial_step_is_log_likelihood_ratio_of_good_against_poor() -> None:
    assert RULES.step(1.0) == pytest.approx(log(0.99 / 0.95))
    assert RULES.step(0.0) == pytest.approx(log(0.01 / 0.05))
    assert RULES.step(0.5) == pytest.approx((RULES.step(1.0) + RULES.step(0.0)) / 2)


def test_variant_that_always_agrees_is_promoted_after_129_requests() -> None:
    """log(1 / 0.005) / log(0.99 / 0.95) = 128.5."""
    trial = ended(lambda: 1.0)
    assert (trial.verdict, trial.samples, trial.agreement) == (Verdict.PROMOTED, 129, 1.0)


def test_variant_off_by_five_percent_is_dismissed_after_129_requests() -> None:
    """5.298 / (0.95 log(0.95/0.99) + 0.05 log(0.05/0.01)) = 5.298 / 0.0413 = 128.4."""
    trial = ended(lambda: 0.95)
    assert (trial.verdict, trial.samples) == (Verdict.DISMISSED, 129)


def test_variant_that_never_agrees_is_dismissed_after_four_requests() -> None:
    """5.298 / log(5) = 3.3."""
    assert ended(lambda: 0.0).samples == 4


def test_trial_dismisses_poor_and_promotes_good_variants_99_in_100_times() -> None:
    assert verdicts(0.95).count(Verdict.DISMISSED) >= 396
    assert verdicts(0.99).count(Verdict.PROMOTED) >= 396


def test_dismissed_variant_stays_dismissed() -> None:
    trial = ended(lambda: 0.0)
    assert trial.after(1.0, RULES) is trial


def test_promoted_variant_that_drifts_is_on_trial_again() -> None:
    """9.21 / log(5) = 5.7 disagreements in a row; agreements before them give no credit. The last one counts anew."""
    trial = watched(500)
    assert (trial.verdict, trial.watched, trial.drift) == (Verdict.PROMOTED, 500, 0.0)
    assert not trial.is_watched_closely(RULES)
    for _ in range(5):
        trial = trial.after(0.0, RULES)
        assert trial.is_watched_closely(RULES)
    assert trial.verdict is Verdict.PROMOTED
    assert trial.after(0.0, RULES) == Trial().after(0.0, RULES)


def test_promoted_variant_agreeing_on_99_percent_is_not_taken_for_drifted() -> None:
    rng, trial = random.Random(1), watched(RULES.samples_min)
    for _ in range(10_000):
        trial = trial.after(float(rng.random() < 0.99), RULES)
    assert (trial.verdict, trial.watched) == (Verdict.PROMOTED, RULES.samples_min + 10_000)


def test_first_disagreement_after_promotion_takes_variant_back_to_trial() -> None:
    """The trial goes on: -log(5) takes 40 agreements of log(0.99 / 0.95) to make good again."""
    assert RULES.samples_min == 129
    back = watched(128).after(0.94, RULES)
    assert (back.verdict, back.samples, back.watched) == (Verdict.RUNNING, 129 + 129, 0)
    back = watched(100).after(0.0, RULES)
    for _ in range(39):
        assert (back := back.after(1.0, RULES)).verdict is Verdict.RUNNING
    assert back.after(1.0, RULES).verdict is Verdict.PROMOTED
    assert watched(100).after(0.951, RULES).verdict is Verdict.PROMOTED


def test_variant_that_is_always_a_little_off_drifts_just_after_promotion() -> None:
    """No answer of it is as far off as a poor variant's: 9.21 / 0.033 = 279."""
    trial, count = watched(10), 0
    while trial.verdict is Verdict.PROMOTED:
        trial, count = trial.after(0.955, RULES), count + 1
    assert (trial.samples, count) == (1, 279)


def test_equal_requests_vote_once() -> None:
    """The 400 requests of a client that sends zeros while its sensor is not there."""
    trial = Trial()
    for _ in range(400):
        trial = trial.counting(Comparison(1.0, "zeros", "nought"), RULES)
    assert (trial.verdict, trial.samples) == (Verdict.RUNNING, 1)
    for number in range(128):
        trial = trial.counting(Comparison(1.0, f"input {number}", f"answer {number}"), RULES)
    assert (trial.verdict, trial.samples) == (Verdict.PROMOTED, 129)
    for number in range(128):
        trial = trial.counting(Comparison(0.0, f"input {number}", f"answer {number}"), RULES)
    assert (trial.verdict, trial.watched) == (Verdict.PROMOTED, 0), "they had their vote"


@pytest.mark.parametrize("answers", [[""] * 400, ["same"] * 400], ids=["zeros", "same"])
def test_agreement_has_no_vote_where_original_answer_tells_nothing(answers: list[str]) -> None:
    trial = Trial()
    for number, answer in enumerate(answers):
        trial = trial.counting(Comparison(1.0, f"input {number}", answer), RULES)
    assert (trial.verdict, trial.samples) == (Verdict.RUNNING, int(bool(answers[0])))


def test_disagreement_has_a_vote_where_original_answer_tells_nothing() -> None:
    trial = Trial()
    for number in range(4):
        trial = trial.counting(Comparison(0.0, f"input {number}", ""), RULES)
    assert trial.verdict is Verdict.DISMISSED
    assert trial.counting(Comparison(1.0, "another", "answer"), RULES) is trial


def test_trial_knows_a_bounded_number_of_inputs_again() -> None:
    trial = Trial()
    for number in range(SEEN_MAX + 10):
        trial = trial.counting(Comparison(0.975, f"input {number}", ""), RULES)
    assert len(trial.seen) == SEEN_MAX
    assert trial.seen[-1] == f"input {SEEN_MAX + 9}"


@given(st.lists(st.floats(0, 1), max_size=60))
def test_trial_interval_holds_the_mean_and_lies_in_0_to_1(agreements: list[float]) -> None:
    trial = Trial()
    for one in agreements:
        trial = trial.after(one, RULES)
    low, high = trial.interval
    assert 0.0 <= low <= trial.agreement + 1e-9
    assert trial.agreement - 1e-9 <= high <= 1.0


def test_trial_interval_covers_true_agreement_at_95_percent() -> None:
    """Of 400 runs of 200 samples each, spread between 0.9 and 1."""
    covered = 0
    for seed in range(400):
        rng, trial = random.Random(seed), Trial()
        for _ in range(200):
            trial = Trial(trial.samples + 1, trial.total + (one := rng.uniform(0.9, 1.0)), trial.squares + one * one)
        low, high = trial.interval
        covered += low <= 0.95 <= high
    assert covered >= 370


def test_variant_verified_by_samples_is_watched_by_what_they_promise() -> None:
    """Of 90 % it may miss every tenth answer; at 80 % it is on trial again, by the same measure.

    5.298 / log(0.9 / 0.86) = 116.5.
    """
    rng = random.Random(3)
    trial = Trial(verdict=Verdict.PROMOTED, promised=0.9)
    for number in range(2_000):
        trial = trial.counting(Comparison(float(rng.random() < 0.92), f"in {number}", f"out {number}"), RULES)
    assert (trial.verdict, trial.watched, trial.samples) == (Verdict.PROMOTED, 2_000, 117)
    while trial.verdict is Verdict.PROMOTED:
        trial = trial.after(float(rng.random() < 0.8), RULES)
    assert (trial.verdict, trial.promised) == (Verdict.RUNNING, 0.9)
    after = replace(trial)
    while after.verdict is Verdict.RUNNING:
        after = after.after(float(rng.random() < 0.94), RULES)
    assert after.verdict is Verdict.PROMOTED


def test_first_disagreement_of_variant_whose_samples_all_agreed_brings_it_to_trial() -> None:
    trial = Trial(verdict=Verdict.PROMOTED, promised=1.0).after(0.0, RULES)
    assert (trial.verdict, trial.samples) == (Verdict.RUNNING, 1)
