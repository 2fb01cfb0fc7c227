"""A forecast given from outside, in place of one that the box makes itself."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from appliance.clock import NS_PER_S
from appliance.policies.forecast.base import Prediction

_NEVER_NS = 10**6 * NS_PER_S
"""Ahead of now: after the last time nothing is expected, which is more than that nothing is known."""
_LATER = 3
"""Times after the next one that are told, too: with more of them nothing gets better, and every decision looks at
all.
"""
_REACH_GAPS = 5
"""A request and a time that are further apart than this many mean gaps between the times have nothing to do with one
another.
"""


@dataclass(frozen=True)
class Given:
    """Implements `Forecaster`: requests answer `times_ns` (ascending, on the clock's scale) one by one, in their order,
    as they would those of a
    forecaster that says after each request when the next one comes.

    The first time without an answer is expected even when it has passed: as long again from now as it is late, at most
    one mean gap, until it lapses out of reach. A request before the reach of the next time answers none. `asked_ns`,
    ascending, are the times of the requests: only those up to the last arrival are looked at, to know how many have
    come. Nothing is known of how far off times are.
    """

    times_ns: tuple[int, ...]
    asked_ns: tuple[int, ...]
    name: str = "given"

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        came = bisect_right(self.asked_ns, arrivals_ns[-1]) if arrivals_ns else 0
        place = self._unlapsed(self._places[came], now_ns)
        if place == len(self.times_ns):
            return Prediction(now_ns + _NEVER_NS, 0)
        due_ns, later_ns = self.times_ns[place], self.times_ns[place + 1 : place + 1 + _LATER]
        if due_ns <= now_ns:
            due_ns = now_ns + max(1, min(now_ns - due_ns, self._gap_ns))
        return Prediction(due_ns, 0, later_ns)

    @cached_property
    def _gap_ns(self) -> int:
        """The mean between two times."""
        return max(1, (self.times_ns[-1] - self.times_ns[0]) // max(1, len(self.times_ns) - 1))

    @cached_property
    def _places(self) -> list[int]:
        """For each number of requests that came: the first time that none of them has answered."""
        places = [0]
        for at_ns in self.asked_ns:
            place = self._unlapsed(places[-1], at_ns)
            is_near = place < len(self.times_ns) and self.times_ns[place] <= at_ns + _REACH_GAPS * self._gap_ns
            places.append(place + is_near)
        return places

    def _unlapsed(self, place: int, now_ns: int) -> int:
        """The first time at or after `place` that is still in reach."""
        return max(place, bisect_left(self.times_ns, now_ns - _REACH_GAPS * self._gap_ns))
