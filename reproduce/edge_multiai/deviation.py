"""Pairs of an actual and a predicted trace that lie a stated Kullback-Leibler divergence apart (Edge-MultiAI §IV-A,
EM-26).

The paper says neither over which distributions it takes the divergence nor how it makes the traces. Here:

- *actual*: each application has `count` requests; the gaps between them are exponential.
- *predicted*: each actual time, moved by σ times a standard normal number; a time moved to before the start is mirrored
  at it. So there are as many predictions as requests, and σ = 0 is a perfect forecast.
- *deviation*: time is cut into bins of one mean gap; p and q are the shares of an application's actual and predicted
  requests in each bin, a tenth of a request added to every bin so that none is empty. The deviation is Σ p·ln(p/q) in
  nats, averaged over the applications: 0.3 is the paper's "30 %".
- σ is the same for all applications of a trace; it is searched by bisection, with the normal numbers held fixed, until
  the deviation is the asked one.

Two traces that have nothing to do with one another are about 1.1 apart, so 0.9 is a forecast that is nearly worthless.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

PSEUDO_COUNT = 0.1
_STEPS = 30
_SIGMA_MAX_GAPS = 16.0


@dataclass(frozen=True)
class Traces:
    """Application → ascending seconds after the start.

    `deviation` is what was reached, in nats; `sigma_s` what it took.
    """

    actual: Mapping[str, Sequence[float]]
    predicted: Mapping[str, Sequence[float]]
    deviation: float
    sigma_s: float


def draw_traces(applications: Sequence[str], count: int, gap_s: float, deviation: float, seed: int) -> Traces:
    """Traces of `count` requests per application, a mean of `gap_s` seconds apart.

    The same seed has the same requests at every deviation.
    """
    actual, noise = dict[str, list[float]](), dict[str, list[float]]()
    for name in applications:
        came, moves = Random(f"{seed}/actual/{name}"), Random(f"{seed}/noise/{name}")
        actual[name] = list(accumulate(came.expovariate(1 / gap_s) for _ in range(count)))
        noise[name] = [moves.gauss(0, 1) for _ in range(count)]

    def moved(sigma_s: float) -> dict[str, list[float]]:
        return {
            name: sorted(abs(at_s + sigma_s * z) for at_s, z in zip(times, noise[name], strict=True))
            for name, times in actual.items()
        }

    low_s, high_s = 0.0, _SIGMA_MAX_GAPS * gap_s
    for _ in range(_STEPS if deviation > 0 else 0):
        middle_s = (low_s + high_s) / 2
        if mean_divergence(actual, moved(middle_s), gap_s) < deviation:
            low_s = middle_s
        else:
            high_s = middle_s
    predicted = moved(low_s)
    return Traces(actual, predicted, mean_divergence(actual, predicted, gap_s), low_s)


def mean_divergence(
    actual: Mapping[str, Sequence[float]], predicted: Mapping[str, Sequence[float]], bin_s: float
) -> float:
    """The mean over applications of `divergence`."""
    return sum(divergence(times, predicted[name], bin_s) for name, times in actual.items()) / len(actual)


def divergence(actual: Sequence[float], predicted: Sequence[float], bin_s: float) -> float:
    """Kullback-Leibler divergence in nats of where in time two traces (seconds, not empty) have their requests."""
    ours, theirs = (Counter(int(at_s / bin_s) for at_s in times) for times in (actual, predicted))
    bins = max(*ours, *theirs) + 1
    total, total_theirs = len(actual) + bins * PSEUDO_COUNT, len(predicted) + bins * PSEUDO_COUNT
    found = 0.0
    for i in range(bins):
        p, q = (ours[i] + PSEUDO_COUNT) / total, (theirs[i] + PSEUDO_COUNT) / total_theirs
        found += p * math.log(p / q)
    return found
