"""How long a session rests that was removed, before it is tried again: one that was removed soon after it had been
served waits twice as long each time. A box that is slower than its estimates while it is full, and as quick as they say
while it is not, would else remove the same devices and let them in again by turns (AR-16).
"""

from appliance.clock import NS_PER_S

STEADY_NS = 30 * NS_PER_S
"""Who was served for so long is tried again at once."""
REST_NS, REST_NS_MAX = NS_PER_S, 60 * NS_PER_S
VAIN_NS_MAX = 8 * NS_PER_S
"""Trying in vain makes no rest longer than that."""


class Patience:
    """Of one session. All instants are the caller's."""

    def __init__(self) -> None:
        self._served_ns = self._rest_ns = 0
        self.again_ns = 0
        """Before that it is not tried."""

    def served(self, now_ns: int) -> None:
        """It is let in."""
        self._served_ns = now_ns

    def removed(self, now_ns: int) -> None:
        """It has to go."""
        is_steady = now_ns - self._served_ns >= STEADY_NS
        self._rest_ns = 0 if is_steady else min(REST_NS_MAX, max(REST_NS, 2 * self._rest_ns))
        self.again_ns = now_ns + self._rest_ns

    def tried_in_vain(self, now_ns: int) -> None:
        """Nothing that it does would help: it rests twice as long each time."""
        self._rest_ns = max(self._rest_ns, min(VAIN_NS_MAX, max(REST_NS, 2 * self._rest_ns)))
        self.again_ns = now_ns + self._rest_ns

    def asks_anew(self) -> None:
        """It may be tried at once."""
        self.again_ns = 0
