"""What a variant in memory is worth: expected requests a second × accuracy × weight. Our own policy's view of windows, rates and forecasts.

An application's intensity is what is expected of it now: inside its window one request over the window's length, plus what comes unforeseen. A forecast is
trusted as far as Δ is small against the mean time between requests: with Δ of that length or more every request is unforeseen.
"""

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Option, ResidencyProblem
from appliance.policies.eviction.windows import is_maximalist

_NS = 1e-9
_SHORTEST_S = 1e-3
_LEAST_RPS = 1e-4
"""Nobody is impossible: ties between applications of which nothing is known are settled by accuracy, size and load time."""


def intensity_rps(problem: ResidencyProblem, application: ApplicationState) -> float:
    """Expected requests a second now and soon, times the weight."""
    delta_s = max(problem.delta_ns * _NS, _SHORTEST_S)
    rate = application.rate_rps
    unforeseen = application.unexpected_probability / delta_s if rate is None else rate * min(1.0, delta_s * rate)
    found = unforeseen + _LEAST_RPS
    if is_maximalist(application, problem):
        found += 1.0 / (2 * delta_s + ladder.best(application).load_ns * _NS)
    return found * application.weight


def horizon_s(problem: ResidencyProblem) -> float:
    """About how long a decision stands: a window, or H where that is longer."""
    return max(2 * problem.delta_ns, problem.history_window_ns) * _NS + _SHORTEST_S


def away_s(problem: ResidencyProblem, application: ApplicationState) -> float:
    """How long a minimalist goes without what it gives: until its next window opens, else for the horizon."""
    horizon = horizon_s(problem)
    if application.next_request_ns is None:
        return 10 * horizon
    return max(horizon, (application.next_request_ns - problem.delta_ns - problem.now_ns) * _NS)


def gain(problem: ResidencyProblem, intensity: float, before: Option | None, after: Option) -> float:
    """Accuracy × requests gained over the horizon by loading `after`, in whose load time nothing is gained."""
    horizon = horizon_s(problem)
    better = after.accuracy - (0.0 if before is None else before.accuracy)
    return intensity * better * max(0.0, horizon - after.load_ns * _NS)
