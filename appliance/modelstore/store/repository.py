"""What the nouns of the store share: the database, the clock, and telling the rest of the box about committed changes."""

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


@dataclass(frozen=True, slots=True)
class Change:
    """Something was committed. `value` is the new state, None when it is gone."""

    kind: str
    """tenant, key, model, application or job."""
    id: str
    value: ChangeValue


Changes = Sequence[Change]


class Repository:
    """Base of the nouns. `on_change` is called on the event loop, once for every committed change, in commit order."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.on_change: Callable[[Change], None] | None = None

    async def _read(self, work: Callable[[Session], T]) -> T:
        return await self.database.read(work)

    async def _write(self, work: Callable[[Session], tuple[T, Changes]]) -> T:
        """Commit `work` and announce what it changed, also when the caller is cancelled meanwhile."""
        future = self.database.submit_write(work)
        future.add_done_callback(self._announce)
        value, _changes = await asyncio.shield(future)
        return value

    def _announce(self, future: "asyncio.Future[tuple[T, Changes]]") -> None:
        if future.cancelled() or future.exception() is not None or self.on_change is None:
            return
        for change in future.result()[1]:
            self.on_change(change)
