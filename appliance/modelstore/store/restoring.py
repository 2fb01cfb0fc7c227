"""The restore of a running box: a backup is checked whole beside what serves, and waits for the next start.

The admin keys of the box stay, so that whoever asked for the restore can open what comes of it.
"""

import asyncio
import contextlib
import datetime
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from appliance.domain.backups import RestoreRecord, RestoreState
from appliance.domain.errors import ApplianceError, BoxNotEmpty, InUse
from appliance.log import get as get_log
from appliance.modelstore.store import pending_restore
from appliance.modelstore.store.backup import PRIVATE, Backup, Told, extract, whole_percents
from appliance.modelstore.store.disk import failed_disk_is_typed, remove, sync_file
from appliance.modelstore.store.migrations import migrate
from appliance.modelstore.store.state_folder import DATABASE

log = get_log("restore")


class _Stopped(Exception):
    """The box stops, or nobody wants the restore any more."""


class Restoring:
    """At most one restore, from its check to the next start. Event-loop thread only; the work is done in a thread."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        facts = pending_restore.ready(state_dir)
        self._now = RestoreRecord(RestoreState.NONE) if facts is None else _ready(facts)
        self._task: asyncio.Task[None] | None = None
        self._is_unwanted = False

    @property
    def now(self) -> RestoreRecord:
        """How far it is."""
        return self._now

    async def require_empty(self) -> None:
        """Raises: BoxNotEmpty."""
        there = await asyncio.to_thread(pending_restore.what_is_there, self._state_dir / DATABASE)
        if any(there.values()):
            raise BoxNotEmpty(
                models=there["models"],
                applications=there["applications"],
                tenants=there["tenants"],
                keys=there["keys"],
            )

    async def begin(self, source: Path, done: Callable[[], Awaitable[None]]) -> RestoreRecord:
        """Begin to check a backup; one that waited is forgotten. `done` is awaited when the file is needed no more.

        Raises: BoxNotEmpty; InUse while another is checked.
        """
        await self.require_empty()
        if self._task is not None and not self._task.done():
            raise InUse(name="restore")
        self._is_unwanted = False
        self._now = RestoreRecord(RestoreState.CHECKING)
        self._task = asyncio.create_task(self._check(source, done), name="restore")
        return self._now

    async def withdraw(self) -> None:
        """Forget it, whatever its state."""
        while self._task is not None and not self._task.done():
            await self.stop()
        self._task = asyncio.create_task(self._discard(), name="withdraw restore")  # until it has ended none begins
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """End a check; what was checked whole stays."""
        self._is_unwanted = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _discard(self) -> None:
        await asyncio.to_thread(pending_restore.discard, self._state_dir)
        self._now = RestoreRecord(RestoreState.NONE)

    async def _check(self, source: Path, done: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        tell = whole_percents(lambda percent: loop.call_soon_threadsafe(self._tell, percent))

        def told(done_bytes: int, all_bytes: int) -> None:
            if self._is_unwanted:
                raise _Stopped
            tell(done_bytes, all_bytes)

        try:
            facts = await asyncio.to_thread(_stage, source, self._state_dir, told)
        except Exception as error:
            reason = str(error) if isinstance(error, ApplianceError) else repr(error)
            found = RestoreRecord(RestoreState.FAILED, error=reason)
            log.warning("a restore failed", reason=reason)
        else:
            found = _ready(facts)
            log.info("a restore waits for the next start", **facts)
        with contextlib.suppress(ApplianceError, OSError):
            await done()
        self._now = found

    def _tell(self, percent: float) -> None:
        if self._now.state is RestoreState.CHECKING:
            self._now = RestoreRecord(RestoreState.CHECKING, percent)


def _stage(source: Path, state_dir: Path, told: Told) -> dict[str, Any]:
    """Check a backup and lay its parts ready. Raises: BadArchive, StorageFull; then nothing is left of it."""
    try:
        with failed_disk_is_typed():
            parts = pending_restore.parts_of(state_dir)
            backup = extract(source, parts, told)
            for name in PRIVATE:  # the box has its own
                remove(parts / name)
            _bring_up(parts / DATABASE, state_dir / DATABASE)
            facts = _facts(backup)
            pending_restore.mark_ready(state_dir, facts)
            return facts
    except BaseException:
        pending_restore.discard(state_dir)
        raise


def _bring_up(database: Path, own: Path) -> None:
    """Make it one of this version, with the admin keys of this box, in one synced file."""
    migrate(database)
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS own", (str(own),))
        columns = ", ".join(row[1] for row in connection.execute("PRAGMA own.table_info(access_key)"))
        admins = f"SELECT {columns} FROM own.access_key WHERE role = 'admin'"
        connection.execute(f"INSERT OR IGNORE INTO main.access_key ({columns}) {admins}")
        connection.execute("DETACH own")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
    sync_file(database)


def _facts(backup: Backup) -> dict[str, Any]:
    return {"created_at": backup.created_at.isoformat(), "models": backup.models, "tenants": backup.tenants}


def _ready(facts: dict[str, Any]) -> RestoreRecord:
    at = datetime.datetime.fromisoformat(facts["created_at"])
    return RestoreRecord(RestoreState.READY, 100.0, at, facts["models"], facts["tenants"])
