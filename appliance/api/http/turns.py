"""How much of one turn of the event loop an owner may take: a tenant, or all strangers of one address.

The event loop reads what has come, does what follows of it, and looks for new connections; then it begins anew. An
owner that sends much at once would make one of these turns long, and all others wait. So what goes beyond an owner's
part of a turn is left for the next one, tenants' before strangers'. Nothing is slower for an owner that is alone: the
next turn begins at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from appliance.clock import NS_PER_MS, Clock

PART_NS = 2 * NS_PER_MS
"""Of an owner, in one turn."""
TURN_NS = 8 * NS_PER_MS
"""Of all owners together, for what was left over."""
STRANGER = "stranger "
"""Begins the name of an owner that has shown no key; no tenant is called so."""


class Turns:
    """Counts what owners take of a turn, and keeps what has to wait for the next. Event-loop thread only."""

    def __init__(self, clock: Clock) -> None:
        self.now_ns = clock.now_ns
        self._taken_ns: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        """By owner, whose turn it is first."""
        self._is_ending = False

    def is_over(self, owner: str) -> bool:
        """Whether the owner has had its part of this turn."""
        return self._taken_ns.get(owner, 0) >= PART_NS or owner in self._waiting

    def took(self, owner: str, took_ns: int) -> None:
        """Count what was done for the owner in this turn."""
        self._taken_ns[owner] = self._taken_ns.get(owner, 0) + took_ns
        self._end_soon()

    def next(self, owner: str, call: Callable[[], None]) -> None:
        """Call `call` in a turn in which there is time for the owner, the next one at the earliest, after what already
        waits of that owner.
        """
        self._waiting.setdefault(owner, deque()).append(call)
        self._end_soon()

    def _end_soon(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """A turn is over: go on with what waits, an owner after the other; with one of the strangers in any case."""
        self._is_ending = False
        self._taken_ns.clear()
        left_ns = TURN_NS
        strangers = [owner for owner in self._waiting if owner.startswith(STRANGER)]
        for owner in [one for one in self._waiting if not one.startswith(STRANGER)]:
            if left_ns > 0:
                left_ns -= self._go_on(owner, min(PART_NS, left_ns))
        left_ns = max(left_ns, PART_NS // 2)
        for owner in strangers:
            if left_ns > 0:
                left_ns -= self._go_on(owner, min(PART_NS, left_ns))
        if self._waiting:
            self._end_soon()

    def _go_on(self, owner: str, part_ns: int) -> int:
        """Make calls of an owner until its part is over; what is left waits behind other owners'. Returns what that
        took.
        """
        calls = self._waiting.pop(owner)
        began_ns = self.now_ns()
        while calls and self.now_ns() - began_ns < part_ns:
            try:
                calls.popleft()()
            except Exception as error:  # as the loop does with a call of its own
                loop = asyncio.get_running_loop()
                loop.call_exception_handler({"message": "a call of a later turn failed", "exception": error})
        calls.extend(self._waiting.pop(owner, ()))
        if calls:
            self._waiting[owner] = calls
        took_ns = self.now_ns() - began_ns
        self.took(owner, took_ns)
        return took_ns
