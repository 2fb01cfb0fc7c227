"""Whether somebody asks alone: over one connection, and no other has asked of late. Pure.

The event loop is busy while it computes, and does not see who comes meanwhile: two who ask in turns would each find
nobody else there, and share one processor. So after a request of another connection nobody counts as alone for a while.
"""

from appliance.clock import NS_PER_MS

QUIET_NS = 50 * NS_PER_MS
"""Ten times the longest run that is meant for the event loop: whoever asks in turns comes again within that."""
_NEVER = -(1 << 62)


class SoleCaller:
    """Who asked last, and when somebody else did."""

    __slots__ = ("_at_ns", "_other_ns", "_source")

    def __init__(self) -> None:
        self._source = 0
        self._at_ns = self._other_ns = _NEVER

    def saw(self, source: int, now_ns: int) -> None:
        """A request came over a connection; 0: nobody knows over which one."""
        if source != self._source:
            self._source, self._other_ns = source, self._at_ns
        self._at_ns = now_ns

    def is_alone(self, source: int, now_ns: int) -> bool:
        """Whether only requests of this connection have come of late."""
        return source == self._source != 0 and now_ns - self._other_ns >= QUIET_NS
