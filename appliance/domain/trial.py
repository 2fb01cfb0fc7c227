"""Trials, by which a variant earns the right to answer: comparisons with the original on real requests. Pure.

The test is Wald's sequential probability ratio test (1945) between two mean agreements, `poor` and `good`. Its
statistic is Σ x·ln(good/poor) + (1-x)·ln((1-good)/(1-poor)) over agreements x in 0..1. The test holds for every such x,
not only for 0 and 1. The reason is that for bounded x the exponential of the statistic is a test supermartingale
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023). The statistic may therefore
be looked at after every request.

A promoted variant stays under watch. Its watch adds up the same steps with the opposite sign, cut off at 0 (Page's
CUSUM, 1954). A sum that grows too large brings the variant back to trial.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import log, sqrt

from appliance.domain.accuracy import Z


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
    drift_confidence: float = 0.9999
    """Confidence of the watch. A watched variant that agrees at least `good` comes back to trial no more often than
    once in 1 / (1 - `drift_confidence`) comparisons.
    """

    def step(self, agreement: float) -> float:
        """Return what one comparison adds to the statistic; a step above 0 speaks for the variant."""
        return agreement * log(self.good / self.poor) + (1.0 - agreement) * log((1.0 - self.good) / (1.0 - self.poor))


@dataclass(frozen=True, slots=True)
class Trial:
    """Standing of the trial of a variant."""

    samples: int = 0
    """Requests on which the variant was compared with the original."""
    total: float = 0.0
    """Sum of the agreements of these requests, each 0 to 1."""
    squares: float = 0.0
    """Sum of the squares of these agreements."""
    statistic: float = 0.0
    """Statistic of the test. From `log(1 / (1 - confidence))` on the variant is promoted; from the negative of that
    down the variant is dismissed.
    """
    verdict: Verdict = Verdict.RUNNING
    watched: int = 0
    """Comparisons since the verdict."""
    drift: float = 0.0
    """Statistic of the watch: at `log(1 / (1 - drift_confidence))` the trial begins anew."""

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

    def after(self, agreement: float, rules: TrialRules) -> "Trial":
        """Return the standing after one more comparison, whose agreement is 0 to 1.

        The trial of a promoted variant that has drifted away begins anew, with this comparison. The trial of a
        dismissed variant stays as it is.
        """
        if self.verdict is Verdict.DISMISSED:
            return self
        step = rules.step(agreement)
        if self.verdict is Verdict.PROMOTED:
            drift = max(0.0, self.drift - step)
            is_over = drift >= -log(1.0 - rules.drift_confidence)
            if is_over:
                return Trial().after(agreement, rules)
            return replace(self, watched=self.watched + 1, drift=drift)
        statistic, bound = self.statistic + step, -log(1.0 - rules.confidence)
        verdict = Verdict.PROMOTED if statistic >= bound else Verdict.RUNNING
        return replace(
            self,
            samples=self.samples + 1,
            total=self.total + agreement,
            squares=self.squares + agreement * agreement,
            statistic=statistic,
            verdict=Verdict.DISMISSED if statistic <= -bound else verdict,
        )
