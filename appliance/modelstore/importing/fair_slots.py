"""Whose turn it is among imports: those that begin go before those that continue, and tenants that begin alternate.

A model is servable after the first part of its import. So a job that has come so far gives way to jobs that have not:
ten models uploaded at once all serve soon, then all are measured, and their other variants follow, part by part in
rounds. A part that continues may take minutes: a small model begins beside it. A first part may take minutes too, for
example that of a hostile file: small models of other tenants then begin and continue beside it. Event-loop thread only.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

SMALL_BYTES = 128 * 2**20
"""An upload up to this takes a gigabyte or so until its model serves."""
LONG_AFTER_S = 3.0
"""Seconds after which a first part is long."""
LONG_MAX = 2
"""Long first parts that take no slot from small imports of other tenants. Each may hold all the memory of a child."""


@dataclass(slots=True, eq=False)
class Turn:
    """A job's right to work, which it may hand on for a while."""

    slots: "FairSlots"
    tenant: str
    is_small: bool
    """Whether its first part takes little memory, so that it may be done beside parts that continue."""
    is_beginning: bool = True
    """Whether its first part is not done yet."""
    is_long: bool = False
    """Whether the import works on its first part, and that part is long."""
    granted: asyncio.Future[None] | None = None
    """What it waits for; None: for nothing."""

    async def give_way(self) -> None:
        """Its first part is done, or a later one: let all others have their turn who wait for one; returns when it is
        this job's again.
        """
        self.is_beginning = self.is_long = False
        if self.slots.must_yield:
            self.slots.leave(self)
            await self.slots.take(self)


class FairSlots:
    """At most `count` jobs work at once. Beside those that continue, as many small ones begin. Beside up to `LONG_MAX`
    long ones, as many small ones of other tenants work.
    """

    def __init__(self, count: int, long_after_s: float = LONG_AFTER_S) -> None:
        """`long_after_s`: the seconds after which a first part is long."""
        self._count = count
        self._long_after_s = long_after_s
        self._working: list[Turn] = []
        self._waiting: list[Turn] = []
        """In the order in which they came to wait."""
        self._served_at: dict[str, int] = {}
        self._served = 0

    def turn_of(self, tenant: str, *, is_small: bool = False) -> Turn:
        """The turn of a job that begins; it is neither held nor waited for yet."""
        return Turn(self, tenant, is_small)

    @asynccontextmanager
    async def held(self, turn: Turn) -> AsyncIterator[None]:
        """Wait for a turn behind the tenant's other beginners; whoever was served longest ago is next among tenants."""
        await self.take(turn)
        try:
            yield
        finally:
            self.leave(turn)

    async def take(self, turn: Turn) -> None:
        """Stand in line until the job may work."""
        turn.granted = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._grant()
        try:
            await turn.granted
        except asyncio.CancelledError:
            self.leave(turn)  # it may have been granted at this very moment
            raise
        finally:
            turn.granted = None

    def leave(self, turn: Turn) -> None:
        """The job neither works nor waits."""
        for line in (self._working, self._waiting):
            if turn in line:
                line.remove(turn)
        self._grant()

    @property
    def must_yield(self) -> bool:
        """Whether a job that continues makes room: another one waits, or more work than there are slots."""
        return bool(self._waiting) or len(self._working) > self._count

    def before(self, turn: Turn) -> list[Turn] | None:
        """Return what a job waits for: those that work in its place, and those that get a turn before it. None: it does
        not wait.
        """
        line = list(self._line())
        if turn not in line:
            return None
        goes_beside = turn.is_beginning and turn.is_small
        in_its_place = [one for one in self._in_the_way_of(turn) if one.is_beginning or not goes_beside]
        return [*in_its_place, *line[: line.index(turn)]]

    def _grant(self) -> None:
        while (turn := next((one for one in self._line() if self._may_work(one)), None)) is not None:
            self._waiting.remove(turn)
            self._working.append(turn)
            if turn.is_beginning:
                self._served += 1
                self._served_at[turn.tenant] = self._served
                asyncio.get_running_loop().call_later(self._long_after_s, self._note_long, turn)
            assert turn.granted is not None, "it waits"
            turn.granted.set_result(None)

    def _note_long(self, turn: Turn) -> None:
        """Let small jobs work beside a job that still works on its first part."""
        if turn in self._working and turn.is_beginning:
            turn.is_long = True
            self._grant()

    def _may_work(self, turn: Turn) -> bool:
        """Whether there is a slot for a job; none that continues takes one before one that begins and waits for it."""
        in_its_way = self._in_the_way_of(turn)
        if len(in_its_way) < self._count:
            return True
        beginning = sum(one.is_beginning for one in in_its_way)
        return turn.is_beginning and turn.is_small and beginning < self._count

    def _in_the_way_of(self, turn: Turn) -> list[Turn]:
        """Return the working jobs that take a slot from a job: for a small one all but the first long ones of other
        tenants, for a large one all but as many small ones as there are long ones, which may have begun beside those.
        """
        long = [one for one in self._working if one.is_long]
        if turn.is_small:
            beside = [one for one in long if one.tenant != turn.tenant][:LONG_MAX]
        else:
            beside = [one for one in self._working if one.is_small and not one.is_long][: min(len(long), LONG_MAX)]
        return [one for one in self._working if one not in beside]

    def _line(self) -> Iterator[Turn]:
        """Yield the waiting jobs' turns in the order in which they will be granted."""
        served_at, served = dict(self._served_at), self._served
        waiting = [one for one in self._waiting if one.granted is not None and not one.granted.done()]
        beginning = [one for one in waiting if one.is_beginning]
        while beginning:
            turn = min(beginning, key=lambda one: (served_at.get(one.tenant, 0), one.tenant))
            beginning.remove(turn)
            served += 1
            served_at[turn.tenant] = served
            yield turn
        yield from [one for one in waiting if not one.is_beginning]
