"""The SQLite file: one writer thread that begins IMMEDIATE, a few reader threads, and the pragmas that keep it whole.

Everything else in this package hands short functions `(Session) -> value` to `read` and `write`. Registry changes are
rare and precious, so every commit is synced to disk (WAL, synchronous FULL). Nothing on the inference path comes here.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool
from sqlmodel import Session

from appliance.domain.errors import StorageFull
from appliance.modelstore.store.reserve import Reserve
from appliance.modelstore.store.sqlite_errors import raise_typed

T = TypeVar("T")
BUSY_TIMEOUT_MS = 5000
READERS = 2


@contextlib.contextmanager
def database_errors_are_typed() -> Iterator[None]:
    """Raises: StorageFull, StorageBusy, StorageFailed in place of SQLite's ways to say so."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise_typed(error.orig if isinstance(error, DBAPIError) else error, error)
        raise


def make_engine(path: Path, *, begin: str, query_only: bool = False, pooled: bool = True) -> Engine:
    """An engine whose connections carry our pragmas and whose transactions start with the statement `begin`."""
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=QueuePool if pooled else NullPool)

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself; `on_begin` does
        for pragma in _pragmas(query_only):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _pragmas(query_only: bool) -> tuple[str, ...]:
    shared = (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
    return (*shared, "query_only=ON") if query_only else shared


class Database:
    """Runs functions over sessions in threads. `close` waits for what was handed in."""

    def __init__(self, path: Path, reserve: Reserve | None = None) -> None:
        """`reserve` is what writes that free space may use on a full disk; without it they fail like others."""
        self.path = path
        self._reserve = reserve
        self._writer = make_engine(path, begin="BEGIN IMMEDIATE")
        self._reader = make_engine(path, begin="BEGIN", query_only=True)
        self._writer_thread = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._reader_threads = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")

    async def read(self, work: Callable[[Session], T]) -> T:
        """Run `work` on a consistent snapshot, in a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self._reader_threads, self._run, self._reader, work)

    def submit_write(self, work: Callable[[Session], T], *, frees: bool = False) -> "asyncio.Future[T]":
        """Queue `work` for the writer thread. One that `frees` (takes back, deletes) also goes through on a full disk,
        in the room of the reserve; it may be run twice.

        A caller that waits should shield the future: the work is done either way.

        Errors of the future: what `work` raises (then nothing is written), StorageFull, StorageBusy, StorageFailed.
        """
        return asyncio.get_running_loop().run_in_executor(self._writer_thread, self._written, work, frees)

    async def write(self, work: Callable[[Session], T], *, frees: bool = False) -> T:
        """Run `work` in one transaction on the writer thread; commits when it returns, rolls back when it raises.

        A cancelled caller does not stop it.
        """
        return await asyncio.shield(self.submit_write(work, frees=frees))

    def write_blocking(self, work: Callable[[Session], T], *, frees: bool = False) -> T:
        """`write` for code that runs before the event loop does (start, restore, command lines)."""
        return self._writer_thread.submit(self._written, work, frees).result()

    def close(self) -> None:
        """Wait for queued work, then close the file."""
        self._writer_thread.shutdown()
        self._reader_threads.shutdown()
        self._reader.dispose()
        self._writer.dispose()

    def _written(self, work: Callable[[Session], T], frees: bool) -> T:
        """In the writer thread."""
        if self._reserve is None:
            return self._run(self._writer, work)
        self._reserve.fill()
        try:
            return self._run(self._writer, work)
        except StorageFull:
            if not frees or not self._reserve.release():
                raise
            return self._run(self._writer, work)

    @staticmethod
    def _run(engine: Engine, work: Callable[[Session], T]) -> T:
        with database_errors_are_typed(), Session(engine, expire_on_commit=False) as session:
            value = work(session)
            session.commit()
            return value
