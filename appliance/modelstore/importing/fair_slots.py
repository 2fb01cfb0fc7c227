"""Slots for the work of imports: jobs that begin go before jobs that continue, and tenants that begin alternate.

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
class Slot:
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
    """Set when the job may work; None: the job does not wait."""

    async def give_way(self) -> None:
        """Let all jobs work that wait for a slot, after the first part or a later one; return when this job has a slot
        again.
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
        self._working: list[Slot] = []
        self._waiting: list[Slot] = []
        """In the order in which they came to wait."""
        self._served_at: dict[str, int] = {}
        self._served = 0

    def slot_of(self, tenant: str, *, is_small: bool = False) -> Slot:
        """Return the slot of a job that begins; the job neither holds it nor waits for it yet."""
        return Slot(self, tenant, is_small)

    @asynccontextmanager
    async def held(self, slot: Slot) -> AsyncIterator[None]:
        """Hold a slot within this context. The tenant that was served longest ago is next, each tenant in order."""
        await self.take(slot)
        try:
            yield
        finally:
            self.leave(slot)

    async def take(self, slot: Slot) -> None:
        """Stand in line until the job may work."""
        slot.granted = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        self._grant()
        try:
            await slot.granted
        except asyncio.CancelledError:
            self.leave(slot)  # it may have been granted at this very moment
            raise
        finally:
            slot.granted = None

    def leave(self, slot: Slot) -> None:
        """The job neither works nor waits."""
        for line in (self._working, self._waiting):
            if slot in line:
                line.remove(slot)
        self._grant()

    @property
    def must_yield(self) -> bool:
        """Whether a job that continues makes room: another one waits, or more work than there are slots."""
        return bool(self._waiting) or len(self._working) > self._count

    def before(self, slot: Slot) -> list[Slot] | None:
        """Return the jobs that a job waits for: jobs that hold its slot, and jobs that get a slot before it. None: the
        job does not wait.
        """
        line = list(self._line())
        if slot not in line:
            return None
        goes_beside = slot.is_beginning and slot.is_small
        in_its_place = [one for one in self._in_the_way_of(slot) if one.is_beginning or not goes_beside]
        return [*in_its_place, *line[: line.index(slot)]]

    def _grant(self) -> None:
        while (slot := next((one for one in self._line() if self._may_work(one)), None)) is not None:
            self._waiting.remove(slot)
            self._working.append(slot)
            if slot.is_beginning:
                self._served += 1
                self._served_at[slot.tenant] = self._served
                asyncio.get_running_loop().call_later(self._long_after_s, self._note_long, slot)
            assert slot.granted is not None, "it waits"
            slot.granted.set_result(None)

    def _note_long(self, slot: Slot) -> None:
        """Let small jobs work beside a job that still works on its first part."""
        if slot in self._working and slot.is_beginning:
            slot.is_long = True
            self._grant()

    def _may_work(self, slot: Slot) -> bool:
        """Return whether there is a slot for a job. Jobs that begin go before jobs that continue."""
        in_its_way = self._in_the_way_of(slot)
        if len(in_its_way) < self._count:
            return True
        beginning = sum(one.is_beginning for one in in_its_way)
        return slot.is_beginning and slot.is_small and beginning < self._count

    def _in_the_way_of(self, slot: Slot) -> list[Slot]:
        """Return the working jobs that take a slot from a job. A small job may work beside `LONG_MAX` long jobs of
        other tenants; a large job may work beside as many small jobs as there are long ones.
        """
        long = [one for one in self._working if one.is_long]
        if slot.is_small:
            beside = [one for one in long if one.tenant != slot.tenant][:LONG_MAX]
        else:
            beside = [one for one in self._working if one.is_small and not one.is_long][: min(len(long), LONG_MAX)]
        return [one for one in self._working if one not in beside]

    def _line(self) -> Iterator[Slot]:
        """Yield the slots of the waiting jobs in the order in which they will be granted."""
        served_at, served = dict(self._served_at), self._served
        waiting = [one for one in self._waiting if one.granted is not None and not one.granted.done()]
        beginning = [one for one in waiting if one.is_beginning]
        while beginning:
            slot = min(beginning, key=lambda one: (served_at.get(one.tenant, 0), one.tenant))
            beginning.remove(slot)
            served += 1
            served_at[slot.tenant] = served
            yield slot
        yield from [one for one in waiting if not one.is_beginning]
