"""Waiting for what a box does in the background."""

from collections.abc import Callable

from appliance.clock import NS_PER_S, SystemClock, pause_s

PATIENCE_S = 120


def until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Return as soon as it holds. Raises: AssertionError with `what` when it does not come."""
    clock = SystemClock()
    deadline_ns = clock.now_ns() + int(patience_s * NS_PER_S)
    while not holds():
        assert clock.now_ns() < deadline_ns, f"{what}: has not come"
        pause_s(0.1)
