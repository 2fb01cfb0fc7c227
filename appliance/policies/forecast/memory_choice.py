"""Which memory forecaster the box gets: the one that would have erred least over the latest third of the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from appliance.policies.forecast.kinds import Kind
from appliance.policies.forecast.memory import (
    SAMPLES_MAX,
    MemoryFit,
    MemoryForecaster,
    MemorySample,
    lows,
    steps_of,
)


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """`forecaster` is fitted on all samples; `errors_bytes` are mean absolute errors of what the first two thirds
    taught, on the last.
    """

    forecaster: MemoryForecaster
    errors_bytes: Mapping[str, float]


def choose_memory(
    samples: Sequence[MemorySample],
    horizon_ns: int,
    seed: int,
    candidates: Mapping[str, Kind[MemoryFit, MemoryForecaster]],
) -> MemoryChoice:
    """Ties go to the earlier candidate; the first one must fit any samples, and is taken where none could be scored."""
    split = len(samples) * 2 // 3
    errors: dict[str, float] = {}
    for name, kind in candidates.items():
        forecaster = kind.fit(samples[:split], horizon_ns, seed)
        error = None if forecaster is None else mean_error_bytes(forecaster, samples, split, horizon_ns)
        if error is not None:
            errors[name] = error
    best = min(errors, key=errors.__getitem__, default=next(iter(candidates)))
    chosen = candidates[best].fit(samples, horizon_ns, seed)
    assert chosen is not None, "what two thirds could be trained on, the whole can"
    return MemoryChoice(chosen, MappingProxyType(errors))


def mean_error_bytes(
    forecaster: MemoryForecaster, samples: Sequence[MemorySample], start: int, horizon_ns: int
) -> float | None:
    """Mean of |predicted - actual| low from sample `start` on; None when none of them has a whole horizon behind it.

    No prediction counts as the memory now.
    """
    if len(samples) < 2:
        return None
    available = [sample.available_bytes for sample in samples]
    actual = lows(available, steps_of(samples, horizon_ns))
    found = []
    for index in range(max(start, 1), len(actual)):
        prediction = forecaster.predict(samples[max(0, index + 1 - SAMPLES_MAX) : index + 1], horizon_ns)
        found.append(abs((available[index] if prediction is None else prediction.low_bytes) - actual[index]))
    return sum(found) / len(found) if found else None
