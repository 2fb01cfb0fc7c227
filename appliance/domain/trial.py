"""Trials, by which a variant earns the right to answer: comparisons with the original on real requests. Pure.

The test is Wald's sequential probability ratio test (1945) between two mean agreements, `poor` and `good`. Its
statistic is Σ x·ln(good/poor) + (1-x)·ln((1-good)/(1-poor)) over agreements x in 0..1. The test holds for every such x,
not only for 0 and 1. The reason is that for bounded x the exponential of the statistic is a test supermartingale
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023). The statistic may therefore
be looked at after every request.

Comparisons count as evidence only where they are independent. Equal requests therefore vote once. An agreement on which
any broken network might agree has no vote: the original's answer is the same throughout, or the same as to the input
before.

A promoted variant stays under watch. Its watch adds up the same steps with the opposite sign, cut off at 0 (Page's
CUSUM, 1954). A sum that grows too large brings the variant back to trial. Just after the promotion less does: as long
as the variant was not watched on as many requests as a promotion takes, one answer that is as far off as a poor
variant's takes the promotion back.

A variant that samples have verified is watched in the same way from its first request on. Where the samples promise
less than `good`, the rules ask for no more than the samples promise, and one answer alone takes nothing back.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, log, sqrt

from appliance.domain.accuracy import Z

SEEN_MAX = 1024
"""Inputs that a trial knows again, the latest ones."""


class Verdict(StrEnum):
    """Result of a trial so far."""

    RUNNING = "running"
    """No result yet."""
    PROMOTED = "promoted"
    """The variant agrees with the original: it is verified, and watched."""
    DISMISSED = "dismissed"
    """The variant does not agree with the original. It still answers requests that name it."""


@dataclass(frozen=True, slots=True)
class TrialRules:
    """Agreements between which a trial decides, and the confidence that it needs. Shares, 0 to 1."""

    poor: float = 0.95
    """Agreement up to which a variant is promoted with a probability of at most 1 - `confidence`."""
    good: float = 0.99
    """Agreement from which on a variant is dismissed with a probability of at most 1 - `confidence`."""
    confidence: float = 0.995
    is_strict: bool = True
    """Whether just after a promotion one answer that agrees less than `poor` takes it back."""
    drift_confidence: float = 0.9999
    """Confidence of the watch. A watched variant that agrees at least `good` comes back to trial no more often than
    once in 1 / (1 - `drift_confidence`) comparisons.
    """

    @property
    def bound(self) -> float:
        """Return the statistic from which on a variant is promoted; from the negative of it down it is dismissed."""
        return -log(1.0 - self.confidence)

    @property
    def samples_min(self) -> int:
        """Return how many comparisons promote a variant that always agrees; so many after it are watched closely."""
        return ceil(self.bound / self.step(1.0))

    def asking(self, promised: float | None) -> "TrialRules":
        """Return the rules for a variant that agrees so far only, as samples promise; None: nothing is promised."""
        if promised is None or promised >= self.good:
            return self
        return replace(self, good=promised, poor=promised - (self.good - self.poor), is_strict=False)

    def step(self, agreement: float) -> float:
        """Return what one comparison adds to the statistic; a step above 0 speaks for the variant."""
        return agreement * log(self.good / self.poor) + (1.0 - agreement) * log((1.0 - self.good) / (1.0 - self.poor))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Answers of a variant and of the original to one request."""

    agreement: float
    """0 to 1."""
    input: str
    """Digest of the decoded input; the same for equal requests."""
    answer: str
    """Digest of the original's answer; empty where the answer is the same throughout, such as zeros only."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Standing of the trial of a variant."""

    samples: int = 0
    """Distinct requests on which the variant was compared with the original."""
    total: float = 0.0
    """Sum of the agreements of these requests, each 0 to 1."""
    squares: float = 0.0
    """Sum of the squares of these agreements."""
    statistic: float = 0.0
    """Statistic of the test (`TrialRules.bound`)."""
    verdict: Verdict = Verdict.RUNNING
    watched: int = 0
    """Comparisons since the verdict."""
    drift: float = 0.0
    """Statistic of the watch: at `log(1 / (1 - drift_confidence))` the trial begins anew."""
    seen: tuple[str, ...] = ()
    """Digests of inputs that have had their vote, at most `SEEN_MAX`."""
    answer: str = ""
    """Digest of the original's answer to the input before."""
    promised: float | None = None
    """Agreement that samples promise, 0 to 1, of a variant that they had verified; None: they had not."""

    @property
    def agreement(self) -> float:
        """Return the mean agreement with the original, 0 to 1; 1 before the first sample."""
        return self.total / self.samples if self.samples else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """Return the confidence interval of the mean agreement, at 95 %; 0 to 1 with fewer than two samples.

        The spread of the samples gives its width, with half a sample more at each end. Without these half samples, a
        few samples that agree would show too much (after Agresti and Coull, 1998).
        """
        count = self.samples
        if count < 2:
            return 0.0, 1.0
        mean = self.agreement
        spread = max(0.0, self.squares / count - mean * mean)
        half = Z * sqrt((spread + 1.0 / (count + 2) ** 2) / (count - 1))
        return max(0.0, mean - half), min(1.0, mean + half)

    def is_watched_closely(self, rules: TrialRules) -> bool:
        """Whether a watched variant was not watched on enough requests yet, or has begun to drift."""
        return self.watched < rules.asking(self.promised).samples_min or self.drift > 0.0

    def counting(self, comparison: Comparison, rules: TrialRules) -> "Trial":
        """Return the standing after one more comparison, which has no vote where it is no further evidence.

        A disagreement has a vote also where the original's answer tells nothing.
        """
        if self.verdict is Verdict.DISMISSED or comparison.input in self.seen:
            return self
        rules = rules.asking(self.promised)
        tells = comparison.answer not in ("", self.answer)
        has_vote = tells or rules.step(comparison.agreement) < 0
        after = self.after(comparison.agreement, rules) if has_vote else self
        seen = (*after.seen, comparison.input)[-SEEN_MAX:]
        return replace(after, seen=seen, answer=comparison.answer)

    def after(self, agreement: float, rules: TrialRules) -> "Trial":
        """Return the standing after one more vote, whose agreement is 0 to 1.

        The trial of a promoted variant that has drifted away begins anew, with this vote. The trial of one that
        disagrees just after its promotion goes on. The trial of a dismissed variant stays as it is.
        """
        if self.verdict is Verdict.DISMISSED:
            return self
        rules = rules.asking(self.promised)
        if self.verdict is Verdict.PROMOTED:
            return self._watched(agreement, rules)
        counted, bound = self._counted(agreement, rules), rules.bound
        verdict = Verdict.PROMOTED if counted.statistic >= bound else Verdict.RUNNING
        return replace(counted, verdict=Verdict.DISMISSED if counted.statistic <= -bound else verdict)

    def _watched(self, agreement: float, rules: TrialRules) -> "Trial":
        drift = max(0.0, self.drift - rules.step(agreement))
        if drift >= -log(1.0 - rules.drift_confidence):
            return Trial(promised=self.promised).after(agreement, rules)
        if self.watched >= rules.samples_min:
            return replace(self, watched=self.watched + 1, drift=drift)
        counted = self._counted(agreement, rules)
        if rules.is_strict and agreement < rules.poor:
            return replace(counted, verdict=Verdict.RUNNING, watched=0, drift=0.0)
        return replace(counted, watched=self.watched + 1, drift=drift)

    def _counted(self, agreement: float, rules: TrialRules) -> "Trial":
        """Return the trial with one more sample. Beyond what promotes a variant, agreements earn it no credit."""
        return replace(
            self,
            samples=self.samples + 1,
            total=self.total + agreement,
            squares=self.squares + agreement * agreement,
            statistic=min(rules.bound, self.statistic) + rules.step(agreement),
        )
