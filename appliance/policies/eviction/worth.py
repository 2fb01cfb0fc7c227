"""What a variant in memory is worth: expected requests a second × accuracy × weight. Our own policy's view of windows, rates and forecasts.

An application's intensity is what is expected of it now: inside its window one request over the window's length, plus what comes unforeseen. A forecast is
trusted as far as Δ is small against the mean time between requests: with Δ of that length or more every request is unforeseen.
"""

from math import exp

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Option, ResidencyProblem

_NS = 1e-9
_SHORTEST_S = 1e-3
_LEAST_RPS = 1e-4
"""Nobody is impossible: ties between applications of which nothing is known are settled by accuracy, size and load time."""


COLD_POINTS = 40.0
"""How many points of accuracy on one request outweigh that it starts cold."""


def unforeseen_rps(problem: ResidencyProblem, application: ApplicationState) -> float:
    """Requests a second outside windows, times the weight."""
    delta_s = max(problem.delta_ns * _NS, _SHORTEST_S)
    rate = application.rate_rps
    found = application.unexpected_probability / delta_s if rate is None else rate * min(1.0, delta_s * rate)
    return (found + _LEAST_RPS) * application.weight


def intensity_rps(problem: ResidencyProblem, application: ApplicationState) -> float:
    """Expected requests a second now and soon, times the weight: the predicted one spread over the time until its window closes, and the unforeseen."""
    found = unforeseen_rps(problem, application)
    predicted_ns = application.next_request_ns
    if predicted_ns is None or predicted_ns + problem.delta_ns < problem.now_ns:
        return found
    theta_ns = ladder.best(application).load_ns
    opens_ns = predicted_ns - problem.delta_ns - theta_ns
    span_s = (2 * problem.delta_ns + theta_ns + max(0, opens_ns - problem.now_ns)) * _NS
    trust = 1.0
    if opens_ns > problem.now_ns and application.rate_rps is not None:
        trust -= min(1.0, problem.delta_ns * _NS * application.rate_rps)
    return found + trust * application.weight / max(span_s, _SHORTEST_S)


def horizon_s(problem: ResidencyProblem) -> float:
    """About how long a decision stands: a window, or H where that is longer."""
    return max(2 * problem.delta_ns, problem.history_window_ns) * _NS + _SHORTEST_S


def away_s(problem: ResidencyProblem, application: ApplicationState) -> float:
    """How long a minimalist goes without what it gives: until its next window opens, else for the horizon."""
    horizon = horizon_s(problem)
    if application.next_request_ns is None:
        return 10 * horizon
    return max(horizon, (application.next_request_ns - problem.delta_ns - problem.now_ns) * _NS)


def gain(
    problem: ResidencyProblem, application: ApplicationState, intensity: float, before: Option | None, after: Option
) -> float:
    """Accuracy × requests gained over the horizon by `after` in place of `before`: the predicted request counts once at most."""
    better = after.accuracy - (0.0 if before is None else before.accuracy)
    horizon = horizon_s(problem)
    unforeseen = unforeseen_rps(problem, application)
    foreseen = min(1.0, (intensity - unforeseen) * horizon / max(application.weight, 1e-9))
    if foreseen > 0 and application.next_request_ns is not None:
        ready_ns = application.next_request_ns - problem.now_ns - after.load_ns
        foreseen *= 1.0 - _earlier(ready_ns, max(problem.delta_ns, 1))
    return better * (foreseen * application.weight + unforeseen * max(0.0, horizon - after.load_ns * _NS))


def swap_cost(problem: ResidencyProblem, application: ApplicationState, after: Option) -> float:
    """What it costs that nothing answers while `after` loads: the requests of that time, each as bad as `COLD_POINTS` of accuracy."""
    meanwhile = unforeseen_rps(problem, application) * after.load_ns * _NS
    predicted_ns = application.next_request_ns
    if predicted_ns is not None:
        ahead_ns, delta_ns = predicted_ns - problem.now_ns, max(problem.delta_ns, 1)
        foreseen = _earlier(ahead_ns - after.load_ns, delta_ns) - _earlier(ahead_ns, delta_ns)
        meanwhile += foreseen * application.weight
    return meanwhile * COLD_POINTS


def _earlier(ns: int, delta_ns: int) -> float:
    """Chance that a request comes more than `ns` before its predicted time, residuals being Laplace's with mean size Δ."""
    return 0.5 * exp(-ns / delta_ns) if ns >= 0 else 1.0 - 0.5 * exp(ns / delta_ns)
