"""One writer that survives its callers, readers that cannot write, and a full disk with a name."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import Session

from appliance.domain.errors import StorageBusy, StorageFailed, StorageFull
from appliance.modelstore.store.database import Database

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def database(folder: Path) -> Iterator[Database]:
    made = Database(folder / "test.db")
    made.write_blocking(lambda session: session.execute(text("CREATE TABLE one (value TEXT)")))
    try:
        yield made
    finally:
        made.close()


def put(value: str, session: Session) -> None:
    session.execute(text("INSERT INTO one VALUES (:value)"), {"value": value})


def values(session: Session) -> list[str]:
    return list(session.execute(text("SELECT value FROM one")).scalars())


def pragma(name: str, session: Session) -> object:
    return session.execute(text(f"PRAGMA {name}")).scalar()


async def test_database_connections_have_required_pragmas(tmp_path: Path) -> None:
    """WAL, synced commits, foreign keys and a patience of seconds, for reading and for writing."""
    with database(tmp_path) as db:
        for run in (db.read, db.write):
            assert await run(lambda session: pragma("journal_mode", session)) == "wal"
            assert await run(lambda session: pragma("synchronous", session)) == 2
            assert await run(lambda session: pragma("foreign_keys", session)) == 1
            assert await run(lambda session: pragma("busy_timeout", session)) == 5000


async def test_database_in_folder_with_uri_characters_keeps_writes(tmp_path: Path) -> None:
    folder = tmp_path / "half %20 of?mode=memory#folder"
    folder.mkdir()
    with database(folder) as db:
        await db.write(lambda session: put("kept", session))
    again = Database(folder / "test.db")
    assert await again.read(values) == ["kept"]
    again.close()
    assert os.listdir(tmp_path) == [folder.name]


async def test_failed_database_write_is_rolled_back(tmp_path: Path) -> None:
    """What a function wrote before it raised is rolled back."""

    def work(session: Session) -> None:
        put("half", session)
        raise KeyError("mistake")

    with database(tmp_path) as db:
        with pytest.raises(KeyError):
            await db.write(work)
        assert await db.read(values) == []


async def test_database_reader_cannot_write(tmp_path: Path) -> None:
    """A write that strays into `read` is refused by SQLite itself."""
    with database(tmp_path) as db, pytest.raises(StorageFailed, match="readonly"):
        await db.read(lambda session: put("stray", session))


async def test_cancelled_caller_does_not_stop_database_write(tmp_path: Path) -> None:
    """A client that goes away after its change was handed in changes nothing."""
    with database(tmp_path) as db:
        task = asyncio.create_task(db.write(lambda session: put("kept", session)))
        await asyncio.sleep(0)  # noqa: TID251 - lets the task hand its work in
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await db.write(lambda session: None)
        assert await db.read(values) == ["kept"]


async def test_database_writers_that_read_first_never_conflict(tmp_path: Path) -> None:
    """Many counters that read and write at once all count: the transaction is exclusive from its start."""

    def count(session: Session) -> None:
        put(str(len(values(session))), session)

    with database(tmp_path) as db:
        await asyncio.gather(*(db.write(count) for _ in range(50)))
        assert sorted(map(int, await db.read(values))) == list(range(50))


async def test_database_write_waits_for_another_process(tmp_path: Path) -> None:
    """A backup tool or a person with a shell holds the file for a moment; the write waits instead of failing."""
    with database(tmp_path) as db, contextlib.closing(sqlite3.connect(db.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(db.write(lambda session: put("late", session)))
        await asyncio.wait([task], timeout=0.2)
        assert not task.done()
        other.execute("COMMIT")
        await task
        assert await db.read(values) == ["late"]


async def test_database_write_beside_endless_writer_fails_as_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that holds the file for longer than the box waits makes writes fail, and none of them is half done."""
    monkeypatch.setattr("appliance.modelstore.store.database.BUSY_TIMEOUT_MS", 50)
    with database(tmp_path) as db, contextlib.closing(sqlite3.connect(db.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusy):
            await db.write(lambda session: put("late", session))
        assert await db.read(values) == []
        other.execute("COMMIT")
        await db.write(lambda session: put("later", session))
        assert await db.read(values) == ["later"]


async def test_damaged_database_fails_with_advice_to_restore(tmp_path: Path) -> None:
    """Pages that are no database, below a box that runs: a typed error that says what to do, not a traceback."""
    with database(tmp_path) as db:
        for number in range(200):
            await db.write(lambda session, number=number: put(str(number) * 1000, session))  # type: ignore[misc]
        await db.write(lambda session: None)
        with contextlib.closing(sqlite3.connect(db.path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with db.path.open("r+b") as file:
            file.seek(100)
            file.write(b"\xff" * 400_000)
        with pytest.raises(StorageFailed, match="restore a backup"):
            await db.read(values)


async def test_database_write_on_full_disk_fails_as_storage_full(tmp_path: Path) -> None:
    """SQLite's own word for it becomes StorageFull, and reading goes on."""

    def limit(session: Session) -> None:
        session.execute(text("PRAGMA max_page_count=3"))

    with database(tmp_path) as db:
        await db.write(limit)
        with pytest.raises(StorageFull):
            await db.write(lambda session: put("x" * 100_000, session))
        assert await db.read(values) == []
