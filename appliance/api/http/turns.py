"""Parts of a turn of the event loop that owners may take. An owner is a tenant, or all strangers of one address.

In a turn the event loop reads what has come, does the work that follows, and looks for new connections. Then the next
turn begins. An owner that sends much at once would make a turn long, and all other owners would wait. Work beyond an
owner's part of a turn is therefore left for the next turn, tenants' work before strangers'. For an owner that is alone
nothing is slower, because the next turn begins at once. A long answer is made in steps, each of which is such work.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar
from weakref import WeakValueDictionary

from appliance.clock import NS_PER_MS, Clock

PART_NS = 2 * NS_PER_MS
"""Nanoseconds of an owner, in one turn."""
TURN_NS = 8 * NS_PER_MS
"""Nanoseconds of all owners together in one turn, for work that earlier turns left over."""
STEP_NS = NS_PER_MS
"""Nanoseconds of a step of a long answer."""
STRANGER = "stranger "
"""Prefix of the name of an owner that has shown no key; no tenant's name begins so."""

Item = TypeVar("Item")


class Turns:
    """Count of what owners take of a turn, and the calls that wait for a later turn. Event-loop thread only."""

    def __init__(self, clock: Clock) -> None:
        self.now_ns = clock.now_ns
        self._taken_ns: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        """Calls that wait, by owner; the owner whose turn is next stands first."""
        self._is_ending = False
        self._long: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Owner → the lock of its long answers. Made side by side, each would hold the items that it has so far."""
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Owner → the lock of what is read for its long answers."""

    def is_over(self, owner: str) -> bool:
        """Return whether the owner has had its part of this turn, or has calls that wait."""
        return self._taken_ns.get(owner, 0) >= PART_NS or owner in self._waiting

    def took(self, owner: str, took_ns: int) -> None:
        """Count the nanoseconds that were spent on the owner in this turn."""
        self._taken_ns[owner] = self._taken_ns.get(owner, 0) + took_ns
        self._end_soon()

    def next(self, owner: str, call: Callable[[], None]) -> None:
        """Have `call` called in a turn in which there is time for the owner, the next turn at the earliest.

        The owner's calls that already wait are called before it.
        """
        self._waiting.setdefault(owner, deque()).append(call)
        self._end_soon()

    async def collect(self, owner: str, items: Iterable[Item]) -> list[Item]:
        """Return the items of an iterable, which make a long answer for an owner.

        They are taken from it in steps, each in a turn in which there is time for the owner. The first step waits for
        no other answer, so that short ones are made soon; further steps wait until the owner's other long answers are
        made. Raises: what the iterable raises.
        """
        found: list[Item] = []
        left = iter(items)
        if not await self._step(owner, left, found):
            async with self._long.setdefault(owner, asyncio.Lock()):
                while not await self._step(owner, left, found):
                    pass
        return found

    async def json_list(self, owner: str, rows: Iterable[bytes]) -> bytes:
        """Return a JSON list of rows that are JSON already, which make a long answer for an owner.

        Empty rows are left out. Raises: what the iterable raises.
        """
        return b"[%b]" % b",".join(filter(None, await self.collect(owner, rows)))

    async def alone(self, owner: str, read: Callable[[], Awaitable[Item]]) -> Item:
        """Return what `read` returns, for a long answer of an owner; one such read of the owner at a time.

        Threads that read hold up the event loop, and the reads of other owners.
        """
        async with self._reading.setdefault(owner, asyncio.Lock()):
            return await read()

    async def _step(self, owner: str, left: Iterator[Item], found: list[Item]) -> bool:
        """Append items to those found for a step's time; return whether there are no more."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def step() -> None:
            if done.done():  # the caller was cancelled
                return
            end_ns = self.now_ns() + STEP_NS
            try:
                for item in left:
                    found.append(item)
                    if self.now_ns() >= end_ns:
                        done.set_result(False)
                        return
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(True)

        self.next(owner, step)
        return await done

    def _end_soon(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """End a turn, and go on with the calls that wait: owner by owner, tenants before strangers.

        At least one stranger gets time in any case.
        """
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
        """Make an owner's calls until its part is over; return the nanoseconds that they took.

        Calls that are left wait behind other owners' calls.
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
