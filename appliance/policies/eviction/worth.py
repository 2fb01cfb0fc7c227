"""What a variant in memory is worth: expected requests a second × accuracy × weight. Our own policy's view of windows, rates and forecasts.

An application's intensity is what is expected of it now: one request over the time until it is overdue, plus what comes unforeseen. A forecast is
trusted as far as predictions are little off (`doubt_ns`) against the mean time between requests: with as much or more every request is unforeseen.
"""

from math import exp

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Option, ResidencyProblem

_NS = 1e-9
_SHORTEST_S = 1e-3
_LEAST_RPS = 1e-4
"""Nobody is impossible: ties between applications of which nothing is known are settled by accuracy, size and load time."""

_FAR = 20.0
"""In units of H, or of how far off predictions are: what is further away is not expected at all."""
COLD_POINTS = 40.0
"""How many points of accuracy on one request outweigh that it starts cold."""


def unforeseen_rps(problem: ResidencyProblem, application: ApplicationState) -> float:
    """Requests a second outside windows, times the weight."""
    delta_s = max(problem.doubt_ns * _NS, _SHORTEST_S)
    rate = application.rate_rps
    found = application.unexpected_probability / delta_s if rate is None else rate * min(1.0, delta_s * rate)
    return (found + _LEAST_RPS) * application.weight


def intensity_rps(problem: ResidencyProblem, application: ApplicationState) -> float:
    """Expected requests a second now and soon, times the weight: the predicted one spread over the time in which it may come, and the unforeseen."""
    found = unforeseen_rps(problem, application)
    predicted_ns = application.next_request_ns
    if predicted_ns is None:
        return found
    theta_ns = ladder.best(application).load_ns
    opens_ns = predicted_ns - problem.doubt_ns - theta_ns
    span_s = (2 * problem.doubt_ns + theta_ns + max(0, opens_ns - problem.now_ns)) * _NS
    trust = 1.0
    if application.rate_rps is not None:
        trust -= min(1.0, problem.doubt_ns * _NS * application.rate_rps)
    return found + trust * application.weight / max(span_s, _SHORTEST_S)


def urgency(problem: ResidencyProblem, application: ApplicationState) -> float:
    """What it costs to be without its floor now: how near its next request is, times the weight and the load that the request would wait for.

    Of two requests that are due, the one that was due first is the more likely to come first, overdue ones before all: so the chance falls by 1/e with
    every H that the predicted time lies ahead, and grows likewise while it passes. Without a forecast: the rate it had lately.
    """
    history_s = max(problem.history_window_ns * _NS, _SHORTEST_S)
    if application.next_request_ns is None:
        near = (application.rate_rps or _LEAST_RPS) * history_s * exp(-_FAR)
    else:
        ahead = (application.next_request_ns - problem.now_ns) * _NS / history_s
        near = exp(-max(-_FAR, min(_FAR, ahead)))
    return near * (application.weight + _LEAST_RPS)


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
        foreseen *= 1.0 - _meanwhile(problem, application.next_request_ns, after.load_ns)
    return better * (foreseen * application.weight + unforeseen * max(0.0, horizon - after.load_ns * _NS))


def swap_cost(problem: ResidencyProblem, application: ApplicationState, after: Option) -> float:
    """What it costs that nothing answers while `after` loads: the requests of that time, each as bad as `COLD_POINTS` of accuracy."""
    return COLD_POINTS * requests_while(problem, application, after, unforeseen_rps(problem, application))


def requests_while(problem: ResidencyProblem, application: ApplicationState, after: Option, unforeseen: float) -> float:
    """Expected requests, times the weight, while `after` loads, `unforeseen` of them a second."""
    # It waits for others' loads and unloads: on the box and in the lab they take their turns.
    load_ns = after.load_ns + after.load_ns // 2
    return unforeseen * load_ns * _NS + foreseen_within(problem, application, load_ns)


def foreseen_within(problem: ResidencyProblem, application: ApplicationState, ns: int) -> float:
    """Chance, times the weight, that the predicted request comes before `ns` are over."""
    if application.next_request_ns is None:
        return 0.0
    return _meanwhile(problem, application.next_request_ns, ns) * application.weight


def _meanwhile(problem: ResidencyProblem, predicted_ns: int, load_ns: int) -> float:
    """Chance that the predicted request, which has not come yet, comes before `load_ns` are over; residuals being Laplace's with mean size Δ."""
    late_ns, delta_ns = problem.now_ns - predicted_ns, problem.doubt_ns
    if late_ns + load_ns < -_FAR * delta_ns:
        return 0.0
    if late_ns >= 0:
        return 1.0 - exp(-load_ns / delta_ns)
    return 1.0 - _stays_away(late_ns + load_ns, delta_ns) / _stays_away(late_ns, delta_ns)


def _stays_away(late_ns: int, delta_ns: int) -> float:
    """Chance that a request is more than `late_ns` late."""
    return 0.5 * exp(-late_ns / delta_ns) if late_ns >= 0 else 1.0 - 0.5 * exp(late_ns / delta_ns)
