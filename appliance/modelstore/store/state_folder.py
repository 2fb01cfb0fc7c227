"""The state folder on disk: locked by one process, its database migrated, its content addressed by digest."""

import fcntl
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.domain.errors import InUse, StorageFull
from appliance.modelstore.store import pending_restore, reserve
from appliance.modelstore.store.blobs import Blobs
from appliance.modelstore.store.disk import failed_disk_is_typed, make_private, restrict
from appliance.modelstore.store.migrations import migrate
from appliance.modelstore.store.sqlite_errors import sqlite_errors_are_typed

if TYPE_CHECKING:
    from appliance.modelstore.store.database import Database

DATABASE = "appliance.db"
FOLDERS = ("blobs", "uploads", "prepared", "scratch", "quarantine")
RESERVE_BYTES = 64 * 2**20


class StateFolder:
    """Made by `open`, ended by `close`."""

    def __init__(self, path: Path, lock: int, held: reserve.Reserve, blobs: Blobs) -> None:
        self.path = path
        self.blobs = blobs
        self._lock = lock
        self._held = held

    @cached_property
    def database(self) -> "Database":
        """Made when it is first needed: what it is made of takes longer to import than a start may."""
        from appliance.modelstore.store.database import Database

        return Database(self.path / DATABASE, self._held)

    @classmethod
    def open(
        cls, path: Path, *, reserve_bytes: int = RESERVE_BYTES, held_bytes: int = reserve.RESERVE_BYTES
    ) -> "StateFolder":
        """Open or make the folder, for its owner alone; blocks. `reserve_bytes` of the disk are left free by blobs and
        uploads, `held_bytes` are for deletions on a full disk.

        Raises: InUse when another process has it open, StorageFull, StorageFailed.
        """
        with failed_disk_is_typed():
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            restrict(path, 0o700)
            lock = _locked(path)
        try:
            held = reserve.Reserve(path, held_bytes)
            _prepare(path, held)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, lock, held, Blobs(path / "blobs", path / "quarantine", reserve_bytes))

    def close(self) -> None:
        """Wait for writes under way, then let go of the folder."""
        if "database" in self.__dict__:
            self.database.close()
        os.close(self._lock)


def _prepare(path: Path, held: reserve.Reserve) -> None:
    """What a restore has laid ready, the folders, private, and the database, migrated; on a full disk in the room that
    is held for that.
    """
    try:
        _make(path, held)
    except StorageFull:
        if not held.release():
            raise
        _make(path, held)


def _make(path: Path, held: reserve.Reserve) -> None:
    with sqlite_errors_are_typed(), failed_disk_is_typed():
        pending_restore.apply(path, DATABASE)
    with failed_disk_is_typed():
        for name in FOLDERS:
            (path / name).mkdir(exist_ok=True, mode=0o700)
    migrate(path / DATABASE)
    make_private(path)
    held.fill()


def _locked(path: Path) -> int:
    """Raises: InUse."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InUse(name=str(path)) from None
    return lock
