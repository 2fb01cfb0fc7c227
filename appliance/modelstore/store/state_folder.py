"""The state folder on disk: locked by one process, its database migrated, its content addressed by digest."""

import fcntl
import os
from pathlib import Path

from appliance.domain.errors import InUse
from appliance.modelstore.store.blobs import Blobs
from appliance.modelstore.store.database import Database
from appliance.modelstore.store.migrations import migrate

DATABASE = "appliance.db"
FOLDERS = ("blobs", "uploads", "prepared", "scratch", "quarantine")
RESERVE_BYTES = 64 * 2**20


class StateFolder:
    """Made by `open`, ended by `close`."""

    def __init__(self, path: Path, lock: int, database: Database, blobs: Blobs) -> None:
        self.path = path
        self.database = database
        self.blobs = blobs
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, reserve_bytes: int = RESERVE_BYTES) -> "StateFolder":
        """Open or make the folder; blocks. `reserve_bytes` of the disk are left free by blobs and uploads.

        Raises: InUse when another process has it open, StorageFull.
        """
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _locked(path)
        for name in FOLDERS:
            (path / name).mkdir(exist_ok=True, mode=0o700)
        migrate(path / DATABASE)
        blobs = Blobs(path / "blobs", path / "quarantine", reserve_bytes)
        return cls(path, lock, Database(path / DATABASE), blobs)

    def close(self) -> None:
        """Wait for writes under way, then let go of the folder."""
        self.database.close()
        os.close(self._lock)


def _locked(path: Path) -> int:
    """Raises: InUse."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InUse(name=str(path)) from None
    return lock
