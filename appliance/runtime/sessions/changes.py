"""How long a pool keeps its variants before it takes others that are as accurate: twice as long each time. Where it
has to change, it does not come back at once to one that it has left.

What runs of a variant take is known while it runs, of others what the import measured: on a box that is slower than at
the import the variant in use always looks slower than one that is not.
"""

from collections.abc import Iterable, Set

from appliance.clock import NS_PER_S

REST_NS, REST_NS_MAX = 10 * NS_PER_S, 300 * NS_PER_S
LEFT_NS = 30 * NS_PER_S
"""So long a variant that was left is not planned with, while the one in its place is there."""
STEADY_NS = 300 * NS_PER_S
"""A pool that has not changed for so long after its rest begins with the shortest rest again."""


class Changes:
    """Of one pool. All instants are the caller's."""

    def __init__(self) -> None:
        self._rest_ns = self._again_ns = 0
        self._left_ns: dict[str, int] = {}
        """Until when variants that were left are not planned with, by name."""

    def are_allowed(self, now_ns: int) -> bool:
        """Whether devices may be told variants that are as accurate as those that they have."""
        return now_ns >= self._again_ns

    def left(self, now_ns: int) -> Set[str]:
        """Variants, by name, that devices were told others for a moment ago."""
        return {name for name, until_ns in self._left_ns.items() if now_ns < until_ns}

    def changed(self, left: Iterable[str], now_ns: int) -> None:
        """They were told such variants; nobody has the ones `left` any more."""
        self._left_ns = {name: until_ns for name, until_ns in self._left_ns.items() if now_ns < until_ns}
        self._left_ns |= dict.fromkeys(left, now_ns + LEFT_NS)
        is_steady = now_ns - self._again_ns >= STEADY_NS
        self._rest_ns = REST_NS if is_steady else min(REST_NS_MAX, max(REST_NS, 2 * self._rest_ns))
        self._again_ns = now_ns + self._rest_ns
