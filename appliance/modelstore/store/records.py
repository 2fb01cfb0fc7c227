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
from appliance.domain.errors import QuotaExceeded
from appliance.domain.jobs import JobRecord
from appliance.domain.notifications.receivers import Receiver
from appliance.domain.pipeline import Pipeline
from appliance.modelstore.store.audit_entry import current_entry
from appliance.modelstore.store.audit_rows import add_rows
from appliance.modelstore.store.database import Database

T = TypeVar("T")
ChangeValue = Tenant | Model | Application | Pipeline | KeyRecord | JobRecord | Receiver | None
PAGE = 100
ALL_TENANTS = 10
"""What one tenant may have so many of, all together may have ten times as many of."""


def require_place(
    tenant: str, quota: str, most: int, of_tenant: int, of_all: int, retry_after_s: float | None = None
) -> None:
    """Whether a tenant may have one more row of which there are so many, its own and of all tenants.

    Raises: QuotaExceeded.
    """
    for limit, used, is_of_all in ((most, of_tenant, False), (ALL_TENANTS * most, of_all, True)):
        if used >= limit:
            raise QuotaExceeded(
                tenant=tenant, quota=quota, limit=limit, used=used, of_all=is_of_all, retry_after_s=retry_after_s
            )


@dataclass(frozen=True, slots=True)
class Change:
    """Something was committed. `value` is the new state, None when it is gone."""

    kind: str
    """tenant, key, receiver, model, application, pipeline or job."""
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

    def __init__(self, database: Database, clock: Clock, feed: ChangeFeed, audit_rows_max: int = 10_000) -> None:
        """`audit_rows_max` as in `Audit`, for entries that are written with what they tell of."""
        self._audit_rows_max = audit_rows_max
        self.database = database
        self.clock = clock
        self._feed = feed

    async def read(self, work: Callable[[Session], T]) -> T:
        """What `work` reads, as of one instant."""
        return await self.database.read(work)

    async def write(self, work: Callable[[Session], tuple[T, Changes]], *, frees: bool = False) -> T:
        """Commit `work` and announce what it changed, also when the caller is cancelled meanwhile. What `frees` also
        goes through on a full disk. What changes something for a request takes the request's entry in the audit along.
        """
        entry = current_entry()
        record = None if entry is None else entry.begin()
        written: list[int] = []

        def with_entry(session: Session) -> tuple[T, Changes]:
            value, changes = work(session)
            if record is not None and changes:
                written[:] = add_rows(session, [record], self._audit_rows_max)
            return value, changes

        def ended(future: "asyncio.Future[tuple[T, Changes]]") -> None:
            is_committed = not future.cancelled() and future.exception() is None
            if entry is not None and record is not None:
                entry.end(written[0] if is_committed and written else None)

        future = self.database.submit_write(with_entry, frees=frees)
        future.add_done_callback(ended)
        future.add_done_callback(self._announce)
        value, _changes = await asyncio.shield(future)
        return value

    def _announce(self, future: "asyncio.Future[tuple[T, Changes]]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._feed.announce(future.result()[1])
