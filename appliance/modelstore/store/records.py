"""Reads and writes of the database, and telling the rest of the box what was committed.

The nouns of the store are made of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlmodel import Session

from appliance.clock import Clock
from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import Application, Model, Tenant
from appliance.domain.jobs import JobRecord
from appliance.modelstore.store.database import Database

T = TypeVar("T")
ChangeValue = Tenant | Model | Application | KeyRecord | JobRecord | None
PAGE = 100
ALL_TENANTS = 10
"""What one tenant may have so many of, all together may have ten times as many of."""
RETRY_S = 60.0
"""Until when a bound on rows may have room again: somebody has to delete something."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something was committed. `value` is the new state, None when it is gone."""

    kind: str
    """tenant, key, model, application or job."""
    id: str
    value: ChangeValue


Changes = Sequence[Change]


class ChangeFeed:
    """Tells every subscriber of every committed change, on the event loop and in commit order."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Change], None]] = []

    def subscribe(self, take: Callable[[Change], None]) -> None:
        """From now on; what was committed before is in `Store.snapshot`."""
        self._subscribers.append(take)

    def announce(self, changes: Changes) -> None:
        """Tell all of them, one change after another."""
        for change in changes:
            for take in self._subscribers:
                take(change)


class Records:
    """The database with its clock and its feed. Work runs on a reader thread or on the writer thread."""

    def __init__(self, database: Database, clock: Clock, feed: ChangeFeed) -> None:
        self.database = database
        self.clock = clock
        self._feed = feed

    async def read(self, work: Callable[[Session], T]) -> T:
        """What `work` reads, as of one instant."""
        return await self.database.read(work)

    async def write(self, work: Callable[[Session], tuple[T, Changes]], *, frees: bool = False) -> T:
        """Commit `work` and announce what it changed, also when the caller is cancelled meanwhile. What `frees` also
        goes through on a full disk.
        """
        future = self.database.submit_write(work, frees=frees)
        future.add_done_callback(self._announce)
        value, _changes = await asyncio.shield(future)
        return value

    def _announce(self, future: "asyncio.Future[tuple[T, Changes]]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._feed.announce(future.result()[1])
