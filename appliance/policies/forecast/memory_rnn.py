"""The paper's memory predictor: a recurrent network over the latest changes of available memory (Edge-MultiAI §III-A), and its comparison with the trend."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from appliance.policies.forecast.memory import (
    MemoryFit,
    MemoryForecaster,
    MemoryPrediction,
    MemorySample,
    Trend,
    lows,
    steps_of,
)
from appliance.policies.forecast.training import ROWS_MAX, STEPS, train, windows
from appliance.policies.forecast.vanilla import Vanilla

SAMPLES_MIN = 64


@dataclass(frozen=True)
class MemoryRnn:
    """From the last changes, scaled as in training, the fall until the horizon it was trained for; about 40 µs a prediction.

    Another horizon scales the fall by the square root of the ratio, as a random walk falls.
    """

    net: Vanilla
    scale_bytes: float
    error_bytes: float
    """Root mean square error in training."""
    steps: int
    """Samples to the horizon in training."""
    name: str = "rnn"

    def predict(self, samples: Sequence[MemorySample], horizon_ns: int) -> MemoryPrediction | None:
        if len(samples) <= self.net.steps:
            return None
        recent = samples[-self.net.steps - 1 :]
        values = [sample.available_bytes for sample in recent]
        scale = 1.0 / self.scale_bytes
        fall = self.net.answer([(b - a) * scale for a, b in pairwise(values)]) * self.scale_bytes
        stretch = sqrt(steps_of(recent, horizon_ns) / self.steps)
        low = max(0, min(values[-1], round(values[-1] + fall * stretch)))
        return MemoryPrediction(low, round(self.error_bytes * stretch))

    def to_json(self) -> str:
        facts = {name: getattr(self, name) for name in ("scale_bytes", "error_bytes", "steps")}
        return json.dumps({**facts, "net": json.loads(self.net.to_json())})

    @classmethod
    def from_json(cls, text: str) -> "MemoryRnn":
        """Raises: ValueError when it is no forecaster of ours."""
        document: Any = json.loads(text)
        try:
            net = Vanilla.from_json(json.dumps(document["net"]))
            scale, error, steps = float(document["scale_bytes"]), float(document["error_bytes"]), int(document["steps"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"not a forecaster: {fault!r}") from fault
        if not np.isfinite([scale, error]).all() or scale <= 0 or steps < 1:
            raise ValueError("not a forecaster: its scale or horizon is not positive")
        return cls(net, scale, error, steps)


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
    return MemoryRnn(net, scale, error, steps)


MEMORY_FORECASTERS: Mapping[str, MemoryFit] = {"trend": lambda samples, horizon_ns, seed: Trend(), "rnn": trained}


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """As `choice.Choice`, for memory."""

    forecaster: MemoryForecaster
    errors_bytes: Mapping[str, float]


def choose_memory(samples: Sequence[MemorySample], horizon_ns: int, seed: int) -> MemoryChoice:
    """By mean absolute error over the latest third of the samples; the trend where they are too few to train on two thirds of them."""
    split = len(samples) * 2 // 3
    errors: dict[str, float] = {}
    for name, fit in MEMORY_FORECASTERS.items():
        forecaster = fit(samples[:split], horizon_ns, seed)
        error = None if forecaster is None else mean_error_bytes(forecaster, samples, split, horizon_ns)
        if error is not None:
            errors[name] = error
    best = min(errors, key=errors.__getitem__, default="trend")
    chosen = MEMORY_FORECASTERS[best](samples, horizon_ns, seed)
    assert chosen is not None, "what two thirds could be trained on, the whole can"
    return MemoryChoice(chosen, MappingProxyType(errors))


def mean_error_bytes(
    forecaster: MemoryForecaster, samples: Sequence[MemorySample], start: int, horizon_ns: int
) -> float | None:
    """Mean of |predicted - actual| low from sample `start` on; None when none of them has a whole horizon behind it. No prediction counts as the memory now."""
    if len(samples) < 2:
        return None
    available = [sample.available_bytes for sample in samples]
    actual = lows(available, steps_of(samples, horizon_ns))
    found = []
    for index in range(max(start, 1), len(actual)):
        prediction = forecaster.predict(samples[max(0, index - 63) : index + 1], horizon_ns)
        found.append(abs((available[index] if prediction is None else prediction.low_bytes) - actual[index]))
    return sum(found) / len(found) if found else None
