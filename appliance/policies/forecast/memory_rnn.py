"""The paper's memory predictor: a recurrent network over the latest changes of available memory (Edge-MultiAI
§III-A).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from appliance.policies.forecast.memory import MemoryPrediction, MemorySample, Trend, lows, steps_of
from appliance.policies.forecast.training import ROWS_MAX, STEPS, train, windows
from appliance.policies.forecast.vanilla import Vanilla

SAMPLES_MIN = 64
BEYOND_MAX = 2.0
"""A network says nothing of changes that are so many times as large as the largest one that it has learnt from."""

FACTS = ("scale_bytes", "error_bytes", "largest_bytes", "steps")


@dataclass(frozen=True)
class MemoryRnn:
    """From the last changes, scaled as in training, the fall until the horizon it was trained for; about 40 µs a
    prediction.

    Another horizon scales the fall by the square root of the ratio, as a random walk falls. Where memory moves far more
    than it did in training, the answer is that of the trend.
    """

    net: Vanilla
    scale_bytes: float
    error_bytes: float
    """Root mean square error in training."""
    largest_bytes: float
    """The largest change in training, up or down."""
    steps: int
    """Samples to the horizon in training."""
    name: str = "rnn"

    def predict(self, samples: Sequence[MemorySample], horizon_ns: int) -> MemoryPrediction | None:
        if len(samples) <= self.net.steps:
            return None
        recent = samples[-self.net.steps - 1 :]
        values = [sample.available_bytes for sample in recent]
        changes = [after - before for before, after in pairwise(values)]
        if max(map(abs, changes)) > BEYOND_MAX * self.largest_bytes:
            return Trend().predict(samples, horizon_ns)
        scale = 1.0 / self.scale_bytes
        fall = self.net.answer([change * scale for change in changes]) * self.scale_bytes
        stretch = sqrt(steps_of(recent, horizon_ns) / self.steps)
        low = max(0, min(values[-1], round(values[-1] + fall * stretch)))
        return MemoryPrediction(low, round(self.error_bytes * stretch))

    def to_json(self) -> str:
        facts = {name: getattr(self, name) for name in FACTS}
        return json.dumps({**facts, "net": json.loads(self.net.to_json())})

    @classmethod
    def from_json(cls, text: str) -> "MemoryRnn":
        """Raises: ValueError when it is no forecaster of ours."""
        document: Any = json.loads(text)
        try:
            net = Vanilla.from_json(json.dumps(document["net"]))
            scale, error, largest = (float(document[name]) for name in FACTS[:3])
            steps = int(document["steps"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"not a forecaster: {fault!r}") from fault
        if not np.isfinite([scale, error, largest]).all() or scale <= 0 or steps < 1:
            raise ValueError("not a forecaster: its scale or horizon is not positive")
        return cls(net, scale, error, largest, steps)


def trained(samples: Sequence[MemorySample], horizon_ns: int, seed: int) -> MemoryRnn | None:
    """None with fewer than `SAMPLES_MIN` samples, or when the horizon is longer than a quarter of them."""
    recent = samples[-(ROWS_MAX + STEPS + 1) :]
    if len(recent) < SAMPLES_MIN or 4 * steps_of(recent, horizon_ns) > len(recent):
        return None
    steps = steps_of(recent, horizon_ns)
    available = [sample.available_bytes for sample in recent]
    changes = np.diff(np.array(available, dtype=np.float64))
    scale = max(float(changes.std()), 1.0)
    falls = np.array(lows(available, steps), dtype=np.float64) - available[: len(available) - steps]
    targets = falls[STEPS:] / scale
    inputs = windows(changes)[: len(targets)] / scale
    net = train(inputs, targets, seed)
    error = float(np.sqrt(np.mean((net.answers(inputs) - targets) ** 2))) * scale
    return MemoryRnn(net, scale, error, max(float(np.abs(changes).max()), scale), steps)
