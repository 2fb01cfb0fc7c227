"""Backups that lie on the box: made beside serving, one at a time, and the nightly ones removed by age.

The folder is the truth: a backup is there when its file is, under a name that says when it was begun. What is being
made has a name that begins with a dot, which the next start sweeps.
"""

import asyncio
import datetime
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from appliance.clock import Clock
from appliance.domain.backups import BackupRecord, BackupState
from appliance.domain.errors import ApplianceError, IllegalState, InUse, UnknownBackup
from appliance.log import get as get_log
from appliance.modelstore.store.backup import back_up, whole_percents
from appliance.modelstore.store.disk import failed_disk_is_typed, remove, require_free
from appliance.modelstore.store.sqlite_errors import sqlite_errors_are_typed
from appliance.modelstore.store.state_folder import DATABASE, RESERVE_BYTES

NAME = re.compile(r"(nightly|manual)-(\d{8}T\d{6}Z)\.tar")
_PART = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]{{32}}\.part")
"""As `back_up` names what it is at; the folder may be the operator's, with others' files in it."""
_AT = "%Y%m%dT%H%M%SZ"
_LEFT_FREE = 0.05
"""Share of the disk that a backup leaves free: below it the box asks for room itself."""
log = get_log("backups")


class _Stopped(Exception):
    """The box stops while a backup is made."""


class Backups:
    """Event-loop thread only; the work is done in a thread."""

    def __init__(self, state_dir: Path, folder: Path, clock: Clock, kept: int) -> None:
        """`kept` nightly ones stay."""
        self._state_dir = state_dir
        self._folder = folder
        self._clock = clock
        self._kept = kept
        self._latest: BackupRecord | None = None
        """The one that is being made, or that failed."""
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def begin(self, *, is_nightly: bool = False) -> BackupRecord:
        """Begin with one. Raises: InUse while another is made; StorageFull where there is no room for all of it."""
        self._require_idle()
        await asyncio.to_thread(self._require_room)
        self._require_idle()
        now = self._clock.wall_now().replace(microsecond=0)
        while self._path(name := f"{'nightly' if is_nightly else 'manual'}-{now:{_AT}}.tar").exists():
            now += datetime.timedelta(seconds=1)
        self._latest = BackupRecord(name, is_nightly, now, BackupState.MAKING, 0, 0.0)
        self._task = asyncio.create_task(self._make(self._latest), name="backup")
        return self._latest

    def _require_idle(self) -> None:
        """Raises: InUse."""
        if self._task is not None and not self._task.done():
            raise InUse(name="backup" if self._latest is None else self._latest.name)

    async def nightly(self) -> None:
        """Make one and wait for it; then the oldest nightly ones beyond `kept` go, never this one. Those that were made
        while the clock was ahead count as the oldest. Raises: as `begin`; what made it fail.
        """
        made = await self.begin(is_nightly=True)
        assert self._task is not None
        task = self._task
        await asyncio.shield(task)
        task.result()
        others = [
            one
            for one in await self.all()
            if one.is_nightly and one.state is BackupState.READY and one.name != made.name
        ]
        others.sort(key=lambda one: one.created_at > made.created_at)
        for old in others[max(0, self._kept - 1) :]:
            await self.delete(old.name)

    async def all(self) -> list[BackupRecord]:
        """All of them, the newest first."""
        found = await asyncio.to_thread(self._found)
        if self._latest is not None:  # one that is being made is not ready before all is done with its file
            found = [*(one for one in found if one.name != self._latest.name), self._latest]
        return sorted(found, key=lambda one: (one.created_at, one.name), reverse=True)

    async def path(self, name: str) -> Path:
        """The file of one that is ready. Raises: UnknownBackup; IllegalState while it is made."""
        if self._latest is not None and name == self._latest.name and self._latest.state is BackupState.MAKING:
            raise IllegalState(name=name, state="being made")
        if not NAME.fullmatch(name) or not await asyncio.to_thread(self._path(name).is_file):
            raise UnknownBackup(name=name)
        return self._path(name)

    async def delete(self, name: str) -> None:
        """Raises: as `path`."""
        if self._latest is not None and name == self._latest.name and self._latest.state is BackupState.FAILED:
            self._latest = None
            return
        with failed_disk_is_typed():
            await asyncio.to_thread((await self.path(name)).unlink, missing_ok=True)

    async def stop(self) -> None:
        """End one that is being made; nothing of it stays."""
        self._is_stopping = True
        if self._task is not None:
            with suppress(Exception):  # told in its record
                await self._task

    async def sweep(self) -> None:
        """Remove what a crash left of one that was being made; at start."""
        # Listed before anything else may begin, and removed in a thread: it may be much.
        entries = list(self._folder.iterdir()) if self._folder.is_dir() else []
        left = [entry for entry in entries if _PART.fullmatch(entry.name)]
        for entry in left:
            await asyncio.to_thread(remove, entry)

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _found(self) -> list[BackupRecord]:
        if not self._folder.is_dir():
            return []
        made: list[BackupRecord] = []
        for entry in self._folder.iterdir():
            match = NAME.fullmatch(entry.name)
            with suppress(FileNotFoundError, ValueError):  # deleted meanwhile; a name that is no time
                if match is not None and entry.is_file():
                    at = datetime.datetime.strptime(match[2], _AT).replace(tzinfo=datetime.UTC)
                    size = entry.stat().st_size
                    made.append(BackupRecord(entry.name, match[1] == "nightly", at, BackupState.READY, size, 100.0))
        return made

    async def _make(self, record: BackupRecord) -> None:
        loop = asyncio.get_running_loop()
        tell = whole_percents(lambda percent: loop.call_soon_threadsafe(self._tell, record, percent))

        def told(done_bytes: int, all_bytes: int) -> None:
            if self._is_stopping:
                raise _Stopped
            tell(done_bytes, all_bytes)

        try:
            await asyncio.to_thread(self._write, record, told)
        except Exception as error:
            reason = str(error) if isinstance(error, ApplianceError) else repr(error)
            self._latest = _failed(record, "the box was stopped" if isinstance(error, _Stopped) else reason)
            log.warning("a backup failed", name=record.name, reason=reason)
            if record.is_nightly:
                raise  # the chore's to tell
        else:
            self._latest = None
            log.info("backup made", name=record.name)

    def _require_room(self) -> None:
        """In a thread. Raises: StorageFull, StorageFailed."""
        with failed_disk_is_typed():
            self._folder.mkdir(exist_ok=True, mode=0o700)
            left = int(_LEFT_FREE * shutil.disk_usage(self._folder).total)
            require_free(self._folder, self._size_bytes(), max(RESERVE_BYTES, left))

    def _write(self, record: BackupRecord, told: Callable[[int, int], None]) -> None:
        """In a thread."""
        with failed_disk_is_typed():
            back_up(self._state_dir, self._path(record.name), record.created_at, with_secrets=False, told=told)

    def _size_bytes(self) -> int:
        """What a backup will take, about."""
        database = self._state_dir / DATABASE
        with sqlite_errors_are_typed(), closing(sqlite3.connect(database)) as connection:
            [contents] = connection.execute("SELECT coalesce(sum(size_bytes), 0) FROM blob").fetchone()
        return int(contents) + 2 * database.stat().st_size

    def _tell(self, record: BackupRecord, percent: float) -> None:
        if self._latest is not None and self._latest.name == record.name:
            self._latest = BackupRecord(
                record.name, record.is_nightly, record.created_at, BackupState.MAKING, 0, percent
            )


def _failed(record: BackupRecord, error: str) -> BackupRecord:
    return BackupRecord(record.name, record.is_nightly, record.created_at, BackupState.FAILED, 0, 0.0, error)
