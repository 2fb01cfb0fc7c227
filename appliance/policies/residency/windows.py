"""The windows of Edge-MultiAI §III-B1: [t - Δ - θ, t + Δ] around a predicted request at t, θ = load time of the
application's most accurate variant.

An application inside its window is a maximalist, any other a minimalist. Both ends belong to the window.
"""

from appliance.policies.residency.base import ApplicationState, ResidencyProblem

Window = tuple[int, int]
"""First and last nanosecond."""


def window(application: ApplicationState, delta_ns: int) -> Window | None:
    """The window of its next predicted request; None where none is expected."""
    predicted_ns = application.next_request_ns
    if predicted_ns is None:
        return None
    return predicted_ns - delta_ns - application.best.load_ns, predicted_ns + delta_ns


def is_maximalist(application: ApplicationState, problem: ResidencyProblem) -> bool:
    """Now is inside its window."""
    predicted_ns = application.next_request_ns
    if predicted_ns is None or predicted_ns + problem.delta_ns < problem.now_ns:
        return False
    start_ns = predicted_ns - problem.delta_ns
    return start_ns <= problem.now_ns or start_ns - application.best.load_ns <= problem.now_ns


def requested_window(asker: ApplicationState, problem: ResidencyProblem) -> Window:
    """The window that others are held against: the requester's own, or [now, now + Δ] where no request of it was
    predicted.
    """
    own = window(asker, problem.delta_ns)
    return (problem.now_ns, problem.now_ns + problem.delta_ns) if own is None else own


def overlap(one: Window | None, other: Window | None) -> bool:
    """Both windows share an instant."""
    return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]
