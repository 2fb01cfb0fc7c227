"""Which forecaster an application gets: the one that would have erred least over the latest third of its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.kinds import Kind

ARRIVALS_MIN = 12
"""With fewer, the first candidate is taken unmeasured."""
HELD_OUT_MAX = 256
"""Predictions scored, the latest ones, so that a choice costs about 10 ms beside the training."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`forecaster` is fitted on the whole history; `errors_ns` are mean absolute errors of what the first two thirds
    taught, on the last.
    """

    forecaster: Forecaster
    errors_ns: Mapping[str, float]
    held_out: int


def choose(arrivals_ns: Sequence[int], seed: int, candidates: Mapping[str, Kind[Fit, Forecaster]]) -> Choice:
    """Ties go to the earlier candidate; the first one must fit any history.

    The silent answer None counts as wrong by the whole gap.
    """
    default, *_ = candidates.values()
    if len(arrivals_ns) < ARRIVALS_MIN:
        return Choice(_fitted(default.fit, arrivals_ns, seed), MappingProxyType({}), 0)
    split = max(len(arrivals_ns) * 2 // 3, len(arrivals_ns) - HELD_OUT_MAX)
    errors: dict[str, float] = {}
    for name, kind in candidates.items():
        forecaster = kind.fit(arrivals_ns[:split], seed)
        if forecaster is not None:
            errors[name] = mean_error_ns(forecaster, arrivals_ns, split)
    best = min(errors, key=errors.__getitem__)
    return Choice(_fitted(candidates[best].fit, arrivals_ns, seed), MappingProxyType(errors), len(arrivals_ns) - split)


def mean_error_ns(forecaster: Forecaster, arrivals_ns: Sequence[int], start: int) -> float:
    """Mean of |predicted - actual| over the arrivals from index `start` (≥ 1) on, each predicted at the moment of
    the one before.
    """
    total = 0
    for index in range(start, len(arrivals_ns)):
        last_ns = arrivals_ns[index - 1]
        prediction = forecaster.predict(arrivals_ns[max(0, index - 64) : index], last_ns)
        total += abs((last_ns if prediction is None else prediction.next_ns) - arrivals_ns[index])
    return total / (len(arrivals_ns) - start)


def _fitted(fit: Fit, arrivals_ns: Sequence[int], seed: int) -> Forecaster:
    forecaster = fit(arrivals_ns, seed)
    assert forecaster is not None, "a candidate that fitted two thirds of a history fits the whole; the first fits any"
    return forecaster
