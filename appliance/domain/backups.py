"""Backups that lie on the box, and the restore of one."""

import datetime
from dataclasses import dataclass
from enum import StrEnum


class BackupState(StrEnum):
    MAKING = "making"
    READY = "ready"
    FAILED = "failed"
    """There is no file of it; it is shown until the next one is made."""


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """A backup by name."""

    name: str
    is_nightly: bool
    created_at: datetime.datetime
    state: BackupState
    size_bytes: int
    """0 until it is ready."""
    percent: float
    error: str = ""


class RestoreState(StrEnum):
    NONE = "none"
    CHECKING = "checking"
    READY = "ready"
    """The next start of the box applies it, if the box is empty then."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """A restore on its way. `created_at`, `models` and `tenants` are the backup's, known once it was checked."""

    state: RestoreState
    percent: float = 0.0
    created_at: datetime.datetime | None = None
    models: int | None = None
    tenants: int | None = None
    error: str = ""
