"""How a variant earns the right to answer: it is compared with the original on real requests. Pure.

The test is Wald's sequential probability ratio test (1945) between two mean agreements, `poor` and `good`. It adds up
Σ x·ln(good/poor) + (1-x)·ln((1-good)/(1-poor)) over agreements x in 0..1. It holds for every such x, not only for 0
and 1: of bounded x the exponential of the statistic is a test supermartingale (Waudby-Smith and Ramdas, "Estimating
means of bounded random variables by betting", 2023), so that it may be looked at after every request. A promoted
variant is watched on: the same steps the other way, cut off at 0 (Page's CUSUM, 1954), bring it back to trial.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import log, sqrt

from appliance.domain.accuracy import Z


class Verdict(StrEnum):
    """What a trial has shown."""

    RUNNING = "running"
    """Nothing yet."""
    PROMOTED = "promoted"
    """The variant agrees with the original: it is verified, and watched."""
    DISMISSED = "dismissed"
    """The variant does not agree with the original. It answers requests that name it."""


@dataclass(frozen=True, slots=True)
class TrialRules:
    """Between which agreements a trial decides, and how sure it has to be. Shares, 0 to 1."""

    poor: float = 0.95
    """A variant that agrees no more than this is promoted with a probability of at most 1 - `confidence`."""
    good: float = 0.99
    """A variant that agrees at least this much is dismissed with a probability of at most 1 - `confidence`."""
    confidence: float = 0.995
    drift_confidence: float = 0.9999
    """A watched variant that agrees at least `good` comes back to trial no more often than once in
    1 / (1 - `drift_confidence`) comparisons."""

    def step(self, agreement: float) -> float:
        """What one comparison adds to the statistic: above 0 it speaks for the variant."""
        return agreement * log(self.good / self.poor) + (1.0 - agreement) * log((1.0 - self.good) / (1.0 - self.poor))


@dataclass(frozen=True, slots=True)
class Trial:
    """Where the trial of a variant stands."""

    samples: int = 0
    """Requests on which the variant was compared with the original."""
    total: float = 0.0
    """Σ of their agreements, each 0 to 1."""
    squares: float = 0.0
    """Σ of the squares of their agreements."""
    statistic: float = 0.0
    """Of the test: above `log(1 / (1 - confidence))` the variant is promoted, below the negative it is dismissed."""
    verdict: Verdict = Verdict.RUNNING
    watched: int = 0
    """Comparisons since the verdict."""
    drift: float = 0.0
    """Of the watch: at `log(1 / (1 - drift_confidence))` the trial begins anew."""

    @property
    def agreement(self) -> float:
        """Mean agreement with the original, 0 to 1; 1 before the first sample."""
        return self.total / self.samples if self.samples else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean agreement, at 95 %: by the spread of the samples, with half a sample more of each end, without
        which a few that agree would show too much (after Agresti and Coull, 1998)."""
        count = self.samples
        if count < 2:
            return 0.0, 1.0
        mean = self.agreement
        spread = max(0.0, self.squares / count - mean * mean)
        half = Z * sqrt((spread + 1.0 / (count + 2) ** 2) / (count - 1))
        return max(0.0, mean - half), min(1.0, mean + half)

    def after(self, agreement: float, rules: TrialRules) -> "Trial":
        """Return the standing after one more comparison, whose agreement is 0 to 1.

        A promoted variant that has drifted away is on trial again, from nothing; of a dismissed one nothing changes.
        """
        if self.verdict is Verdict.DISMISSED:
            return self
        step = rules.step(agreement)
        if self.verdict is Verdict.PROMOTED:
            drift = max(0.0, self.drift - step)
            is_over = drift >= -log(1.0 - rules.drift_confidence)
            return Trial() if is_over else replace(self, watched=self.watched + 1, drift=drift)
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
