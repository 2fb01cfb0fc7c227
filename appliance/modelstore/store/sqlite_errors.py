"""SQLite's ways to say that the disk is full, the file busy or broken, as the box's errors."""

import contextlib
import sqlite3
from collections.abc import Iterator

from appliance.domain.errors import StorageBusy, StorageFailed, StorageFull
from appliance.log import get as get_log
from appliance.modelstore.store.disk import FULL_CODES

log = get_log("database")
PRIMARY = 0xFF
"""The part of an error code of SQLite that all codes of one kind share."""
BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
FAILED_CODES = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
    }
)


@contextlib.contextmanager
def sqlite_errors_are_typed() -> Iterator[None]:
    """Raises: StorageFull, StorageBusy, StorageFailed in place of `sqlite3.Error`."""
    try:
        yield
    except sqlite3.Error as error:
        raise_typed(error, error)
        raise


def raise_typed(cause: BaseException | None, error: Exception) -> None:
    """Raise what `cause`, SQLite's own error, means, from `error`; return where that has no type of its own.

    Raises: StorageFull, StorageBusy, StorageFailed.
    """
    code = getattr(cause, "sqlite_errorcode", 0)
    if code in FULL_CODES:
        raise StorageFull() from error
    if code & PRIMARY in BUSY_CODES:
        raise StorageBusy() from error
    if code & PRIMARY in FAILED_CODES:
        log.error("database cannot be used", reason=str(cause))
        raise StorageFailed(reason=f"database: {cause}") from error
