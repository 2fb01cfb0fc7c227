"""Who waits while a worker idles is looked at again when a run under way should have ended: one that goes on for longer
than was expected tells nobody, and it may be the only thing that would have.
"""

import asyncio
from collections.abc import Callable, Iterable

from appliance.clock import NS_PER_MS, NS_PER_S

_LEAST_NS = NS_PER_MS
_MOST_NS = NS_PER_S
"""What keeps somebody waiting may be over before a long run is."""


class LookingAgain:
    """One look at a time. Event-loop thread only."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def after(self, ends_ns: Iterable[int]) -> None:
        """Look when the first of some runs is expected to end, in so many nanoseconds from now (`Job.frees_in_ns`: of
        a late one ever later); not at all where there is none. In place of what was asked for before.
        """
        self.not_now()
        first_ns = min(ends_ns, default=None)
        if first_ns is not None:
            delay_ns = min(max(_LEAST_NS, first_ns), _MOST_NS)
            self._timer = asyncio.get_running_loop().call_later(delay_ns / NS_PER_S, self._over)

    def not_now(self) -> None:
        """Something else has come first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._look()
