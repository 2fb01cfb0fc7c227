"""The file of the history: SQLite, written once a minute, with nothing in it that is needed to serve.

Samples of one minute are a row, with all series. When an hour is over its rows become one piece for each series; when a
day is over, so do stretches of five minutes of it, with mean, least and most (`folding`). So writing costs a page a
minute, and a series of a day is read from a few dozen rows (`pieces`).
"""

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from appliance.domain.spans import Span
from appliance.history.folding import drop_old, fold_day, fold_hour, unused
from appliance.history.packing import Samples, packed_rows, unpacked_rows
from appliance.history.pieces import DAY_S, HOUR_S, MINUTE_S, ROW, STEP_S, Slots, merged_rows, read_points
from appliance.history.series import UP, is_of_tenant, tenant_of
from appliance.history.tallies import (
    TABLE,
    Sums,
    Tally,
    drop_old_tallies,
    drop_tallies_of,
    read_tallies,
    tenants_of_tallies,
    write_tallies,
)
from appliance.history.thinning import Points
from appliance.history.transaction import transaction
from appliance.runtime.engine.portions import Portions

_VERSION = 1
_PAGE_BYTES = 16_384
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES = """
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE minute (start INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE fine (start INTEGER, series INTEGER, body BLOB NOT NULL, PRIMARY KEY (start, series)) WITHOUT ROWID;
CREATE TABLE coarse (start INTEGER, series INTEGER, body BLOB NOT NULL, PRIMARY KEY (start, series)) WITHOUT ROWID;
CREATE TABLE open_day (start INTEGER PRIMARY KEY);
CREATE TABLE stay (
    id INTEGER PRIMARY KEY, since REAL NOT NULL, until REAL, build TEXT NOT NULL, variant TEXT NOT NULL,
    applications TEXT NOT NULL, state TEXT NOT NULL, bytes INTEGER NOT NULL, came_by TEXT NOT NULL,
    came INTEGER, left_by TEXT NOT NULL, went INTEGER
);
CREATE TABLE reason (decision INTEGER PRIMARY KEY, text TEXT NOT NULL, tenants TEXT NOT NULL);
CREATE TABLE window (id INTEGER PRIMARY KEY, application TEXT NOT NULL, since REAL NOT NULL, until REAL NOT NULL);
"""


class StayRow(NamedTuple):
    """A row of `stay`; `applications` are joined by blanks, times are seconds since 1970."""

    id: int
    since: float
    until: float | None
    build: str
    variant: str
    applications: str
    state: str
    bytes: int
    came_by: str
    came: int | None
    left_by: str
    went: int | None


class ReasonRow(NamedTuple):
    """Why a decision was made; `tenants`: those that the words name, joined by blanks."""

    decision: int
    text: str
    tenants: str


class WindowRow(NamedTuple):
    """A window around predicted requests that has closed."""

    application: str
    since: float
    until: float


class Damaged(Exception):
    """The file is no database, or not whole."""


@contextmanager
def _damage_is_told() -> Iterator[None]:
    """Raises: Damaged. Errors of the disk stay what they are: they pass."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in _DAMAGED:
            raise Damaged(str(error)) from error
        raise


class HistoryFile:
    """Blocking; any thread. One writes at a time, readers do not wait for it."""

    def __init__(self, path: Path, *, days: int, series_max: int) -> None:
        """Opens or makes it. Raises: Damaged; sqlite3.Error, OSError where the disk is full or cannot be written."""
        self._path = path
        self._days = days
        self._series_max = series_max
        self._lock = threading.Lock()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
        try:
            with _damage_is_told():
                self._begin()
                query = "SELECT name, id FROM series"
                self._ids: Mapping[str, int] = dict(self._database.execute(query).fetchall())
        except BaseException:
            self._database.close()
            raise
        self.skipped = 0
        """Series that were not kept, because there are too many; as of the last minute."""

    def close(self) -> None:
        with self._lock:
            self._database.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(
        self,
        slots: Slots,
        stays: Iterable[StayRow] = (),
        reasons: Iterable[ReasonRow] = (),
        windows: Iterable[WindowRow] = (),
        tallies: Mapping[int, Tally] | None = None,
    ) -> None:
        """Samples of whole minutes, what became of memory, and tallies; one transaction. Written again, samples and
        stays are replaced, and tallies are added.
        """
        with self._lock, _damage_is_told():
            series = dict(self._ids)
            with transaction(self._database) as database:
                minutes: dict[int, dict[int, Mapping[str, float]]] = {}
                for slot, values in slots.items():
                    minutes.setdefault(slot - slot % MINUTE_S, {})[slot] = values
                self.skipped = 0
                for start, own in minutes.items():
                    ids, rows = self._minute(start, own, series)
                    known = database.execute("SELECT body FROM minute WHERE start = ?", (start,)).fetchone()
                    if known is not None:  # the clock was set back, or the box began anew within the minute
                        ids, rows = merged_rows(known[0], ids, rows)
                    database.execute("REPLACE INTO minute VALUES (?, ?)", (start, packed_rows(ids, rows)))
                database.executemany(f"REPLACE INTO stay VALUES ({_marks(StayRow)})", stays)
                database.executemany(f"REPLACE INTO reason VALUES ({_marks(ReasonRow)})", reasons)
                database.executemany(
                    f"INSERT INTO window (application, since, until) VALUES ({_marks(WindowRow)})", windows
                )
                if tallies:
                    write_tallies(database, tallies, self._series_max)
            self._ids = series

    def fold(self, now_s: float) -> None:
        """Make pieces of the hours and days other than the present ones, and drop what is too much."""
        hour, day = int(now_s) // HOUR_S * HOUR_S, int(now_s) // DAY_S * DAY_S
        with self._lock, _damage_is_told():
            query = "SELECT DISTINCT start - start % ?1 FROM minute WHERE start - start % ?1 <> ?2 ORDER BY 1"
            over = [start for (start,) in self._database.execute(query, (HOUR_S, hour))]
            for start in over:
                fold_hour(self._database, self._ids.values(), start)
            query = "SELECT start FROM open_day WHERE start <> ? ORDER BY 1"
            for (start,) in self._database.execute(query, (day,)).fetchall():
                fold_day(self._database, self._ids, start)
            if over:
                drop_old(self._database, now_s, self._days)
                drop_old_tallies(self._database, now_s, self._days)
                if len(self._ids) > self._series_max // 2:
                    self._drop_unused()

    def drop_tenant(self, tenant: str) -> None:
        """Forget what was a tenant's, who is gone: another one may come to bear its name."""
        with self._lock, _damage_is_told():
            ids = [id for name, id in self._ids.items() if is_of_tenant(name, tenant)]
            with transaction(self._database) as database:
                for table in ("fine", "coarse"):
                    database.executemany(f"DELETE FROM {table} WHERE series = ?", ((id,) for id in ids))
                for start, body in database.execute("SELECT start, body FROM minute").fetchall():
                    with suppress(ValueError):
                        known, rows = unpacked_rows(body)
                        kept = ~np.isin(known, ids)
                        row = (packed_rows(known[kept], rows[kept]), start)
                        database.execute("UPDATE minute SET body = ? WHERE start = ?", row)
                database.executemany("DELETE FROM series WHERE id = ?", ((id,) for id in ids))
                for id, applications in database.execute("SELECT id, applications FROM stay").fetchall():
                    left = [one for one in applications.split() if not one.startswith(f"{tenant}/")]
                    if not left:
                        database.execute("DELETE FROM stay WHERE id = ?", (id,))
                    elif len(left) < len(applications.split()):
                        database.execute("UPDATE stay SET applications = ? WHERE id = ?", (" ".join(left), id))
                database.execute("DELETE FROM window WHERE application GLOB ?", (f"{tenant}/*",))
                drop_tallies_of(database, tenant)
            self._ids = {name: id for name, id in self._ids.items() if not is_of_tenant(name, tenant)}

    # -- reading -------------------------------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """Series that there are."""
        return set(self._ids)

    def read(
        self, names: Collection[str], start: int, end: int, *, is_fine: bool, more: Slots | None = None
    ) -> dict[str, Points]:
        """Points from `start` to before `end`, whole steps of ten seconds, or of five minutes.

        `more`: samples that were not written yet. What there is no sample of is not a number.
        """
        ids = {name: self._ids.get(name, -1) for name in {*names, UP}}
        with _damage_is_told(), closing(self._reader()) as database:
            return read_points(database, ids, names, start, end, is_fine=is_fine, more=more or {})

    def sums(self, span: Span, more: Mapping[int, Tally], wanted: Callable[[str], bool], now: int) -> Sums:
        """Return the tallies of a span that ends now. `more`: tallies of ten seconds that are not in the file yet."""
        with _damage_is_told(), closing(self._reader()) as database:
            return read_tallies(database, span, more, wanted, now)

    def stays(self, start: float, end: float, most: int) -> list[StayRow]:
        """The newest of those that were there between two times, oldest first."""
        query = "SELECT * FROM stay WHERE since < ? AND coalesce(until, 9e99) >= ? ORDER BY id DESC LIMIT ?"
        with _damage_is_told(), closing(self._reader()) as database:
            return list(map(StayRow._make, database.execute(query, (end, start, most))))[::-1]

    def reasons(self, first: int, last: int) -> dict[int, ReasonRow]:
        """Of decisions in a range of numbers."""
        query = "SELECT * FROM reason WHERE decision BETWEEN ? AND ?"
        with _damage_is_told(), closing(self._reader()) as database:
            return {row[0]: ReasonRow._make(row) for row in database.execute(query, (first, last))}

    def windows(self, start: float, end: float, most: int) -> list[WindowRow]:
        """The newest of those that were open between two times, oldest first."""
        query = "SELECT application, since, until FROM window WHERE since < ? AND until >= ? ORDER BY id DESC LIMIT ?"
        with _damage_is_told(), closing(self._reader()) as database:
            return list(map(WindowRow._make, database.execute(query, (end, start, most))))[::-1]

    def tenants(self) -> set[str]:
        """Of whom there are series, stays or windows."""
        found = {tenant for tenant in map(tenant_of, self._ids) if tenant is not None}
        query = "SELECT DISTINCT applications FROM stay UNION SELECT DISTINCT application FROM window"
        with _damage_is_told(), closing(self._reader()) as database:
            for (applications,) in database.execute(query):
                found |= {one.partition("/")[0] for one in applications.split()}
            found.update(tenants_of_tallies(database))
        return found

    def last_stay(self) -> int:
        """The highest id of a stay."""
        with self._lock, _damage_is_told():
            return int(self._database.execute("SELECT max(id) FROM stay").fetchone()[0] or 0)

    def end_open_stays(self) -> None:
        """Stays that were open when the box ended without a word ended with its last minute."""
        with self._lock, _damage_is_told(), transaction(self._database) as database:
            last = database.execute("SELECT max(start) FROM minute").fetchone()[0]
            until = "since" if last is None else f"max(since, {int(last) + MINUTE_S})"
            database.execute(f"UPDATE stay SET until = {until}, left_by = 'box ended' WHERE until IS NULL")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Pragmas, and the tables of this version."""
        for pragma in (f"page_size={_PAGE_BYTES}", "journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"):
            self._database.execute(f"PRAGMA {pragma}")
        for pragma in ("journal_size_limit=4194304", "wal_autocheckpoint=100"):
            self._database.execute(f"PRAGMA {pragma}")
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise Damaged("it is another database")
        if version == 0:
            self._database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise Damaged(f"version {version} is not known")
        self._database.execute(TABLE)
        if self._database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise Damaged("its check fails")

    def _reader(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5)

    def _minute(
        self, start: int, slots: Mapping[int, Mapping[str, float]], series: dict[str, int]
    ) -> tuple[NDArray[np.uint32], Samples]:
        """Ids and samples of one minute; names that are new are added to `series`."""
        names = sorted({name for values in slots.values() for name in values})
        self._number(names, series)
        kept = [(series[name], name) for name in names if name in series]
        self.skipped = max(self.skipped, len(names) - len(kept))
        rows = np.full((len(kept), ROW), np.nan, np.float32)
        for place, (_, name) in enumerate(kept):
            for slot, values in slots.items():
                if name in values:
                    rows[place, (slot - start) // STEP_S] = values[name]
        return np.array([id for id, _ in kept], np.uint32), rows

    def _number(self, names: Iterable[str], series: dict[str, int]) -> None:
        """Add those that are new, as far as there is room, of which no tenant has all."""
        new = [name for name in names if name not in series]
        if not new:
            return
        room = Portions(self._series_max)
        for owner, count in Counter(map(_owner, series)).items():
            room.add(owner, count)
        for name in new:
            if room.take(_owner(name)):
                id = self._database.execute("INSERT INTO series (name) VALUES (?)", (name,)).lastrowid
                assert id is not None
                series[name] = id

    def _drop_unused(self) -> None:
        gone = unused(self._database, self._ids)
        with transaction(self._database) as database:
            database.executemany("DELETE FROM series WHERE id = ?", ((self._ids[name],) for name in gone))
        self._ids = {name: id for name, id in self._ids.items() if name not in gone}


def unwritten_points(names: Collection[str], start: int, end: int, *, is_fine: bool, more: Slots) -> dict[str, Points]:
    """What `read` answers where there is no file."""
    return read_points(None, dict.fromkeys({*names, UP}, -1), names, start, end, is_fine=is_fine, more=more)


def set_aside(path: Path) -> Path:
    """Move a damaged file away, in the place of one of before; what it is called now. Raises: OSError."""
    aside = path.with_suffix(".damaged")
    path.replace(aside)
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    return aside


def _owner(name: str) -> str:
    """Of whose portion a series is; empty: the box's."""
    return tenant_of(name) or ""


def _marks(row: type[NamedTuple]) -> str:
    return ", ".join("?" * len(row._fields))
