"""The paper's request predictor: a many-to-one recurrent network over the last inter-arrival times of one
application (Edge-MultiAI §III-A).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Any

import numpy as np

from appliance.policies.forecast.base import Prediction
from appliance.policies.forecast.history import has_ended, latest_gaps, next_ns
from appliance.policies.forecast.training import ROWS_MAX, STEPS, train, windows
from appliance.policies.forecast.vanilla import Vanilla

GAP_MIN_NS = 1_000
"""Requests that come together count as this far apart: a gap needs a logarithm."""
ARRIVALS_MIN = 4 * STEPS
"""With fewer there is nothing to learn that a mean does not know."""
EXPONENT_MAX = 2.0
"""An answer is trusted up to this many standard deviations beyond the gaps seen in training."""

FACTS = ("mean", "deviation", "error", "low", "high")


@dataclass(frozen=True)
class Rnn:
    """Works on logarithms of gaps, shifted and scaled as in training, so that milliseconds and hours weigh alike.

    About 40 µs a prediction.
    """

    net: Vanilla
    mean: float
    """Of the logarithm of a gap in nanoseconds, as is `deviation`."""
    deviation: float
    error: float
    """Root mean square error in training, of the logarithm."""
    low: float
    high: float
    """Shortest and longest answer, scaled."""
    name: str = "rnn"

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        gaps = latest_gaps(arrivals_ns, self.net.steps)
        if len(gaps) < self.net.steps or has_ended(arrivals_ns, now_ns):
            return None
        mean, scale = self.mean, 1.0 / self.deviation
        scaled = self.net.answer([(log(gap if gap > GAP_MIN_NS else GAP_MIN_NS) - mean) * scale for gap in gaps])
        gap = exp(mean + self.deviation * min(max(scaled, self.low), self.high))
        return Prediction(next_ns(arrivals_ns, round(gap), now_ns), round(gap * self.error))

    def to_json(self) -> str:
        facts = {name: getattr(self, name) for name in FACTS}
        return json.dumps({**facts, "net": json.loads(self.net.to_json())})

    @classmethod
    def from_json(cls, text: str) -> "Rnn":
        """Raises: ValueError when it is no forecaster of ours."""
        document: Any = json.loads(text)
        try:
            facts = {name: float(document[name]) for name in FACTS}
            net = Vanilla.from_json(json.dumps(document["net"]))
        except (KeyError, TypeError) as fault:
            raise ValueError(f"not a forecaster: {fault!r}") from fault
        if not all(map(isfinite, facts.values())) or facts["deviation"] <= 0:
            raise ValueError("not a forecaster: its scale is not a positive number")
        mean, deviation, error, low, high = facts.values()
        return cls(net, mean, deviation, error, low, high)


def trained(arrivals_ns: Sequence[int], seed: int) -> Rnn | None:
    """What one application's history teaches; None with fewer than `ARRIVALS_MIN` arrivals."""
    if len(arrivals_ns) < ARRIVALS_MIN:
        return None
    gaps = np.array(latest_gaps(arrivals_ns, ROWS_MAX + STEPS), dtype=np.float64)
    logarithms = np.log(np.maximum(gaps, GAP_MIN_NS))
    mean, deviation = float(logarithms.mean()), max(float(logarithms.std()), 1e-3)
    scaled = (logarithms - mean) / deviation
    inputs, targets = windows(scaled[:-1]), scaled[STEPS:]
    net = train(inputs, targets, seed)
    error = float(np.sqrt(np.mean((net.answers(inputs) - targets) ** 2))) * deviation
    low, high = float(scaled.min()) - EXPONENT_MAX, float(scaled.max()) + EXPONENT_MAX
    return Rnn(net, mean, deviation, min(error, 1.0), low, high)
