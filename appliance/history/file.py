"""The file of the history: SQLite, written once a minute, with nothing in it that is needed to serve.

Samples of one minute are a row, with all series. When an hour is over its rows become one piece for each series; when a
day is over, so do stretches of five minutes of it, with mean, least and most. So writing costs a page a minute, and a
series of a day is read from a few dozen rows. Each step may be done twice: pieces are merged, and rows go last.

Retention goes by how many hours and days there are, and those farthest from now go first: a clock may be wrong. A box
that believes for an hour that it is 1970, or 2040, loses an hour, not all.
"""

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from appliance.clock import pause_s
from appliance.history.packing import Samples, packed, packed_rows, unpacked, unpacked_rows
from appliance.history.series import MEASURES, UP, is_of_tenant, split_name, tenant_of
from appliance.history.thinning import Points, points_of, thinned, zero_where
from appliance.runtime.serving.portions import Portions

STEP_S = 10
COARSE_S = 300
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
_ROW = MINUTE_S // STEP_S
_PIECE = HOUR_S // STEP_S
_COARSE_PIECE = DAY_S // COARSE_S
HOURS_KEPT = 26
"""24, the one under way, and one that is over and not a piece yet."""
STAYS_MAX = 20_000
WINDOWS_MAX = 20_000
_VERSION = 1
_PAGE_BYTES = 16_384
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BATCH = 32
"""Series that are folded in one transaction: some ten milliseconds of a thread."""
_PAUSE_S = 0.05
"""Between two of them, so that requests find an interpreter that is not taken."""
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

Slots = Mapping[int, Mapping[str, float]]
"""Beginning of ten seconds, since 1970 → the samples of each series, by name."""


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
    ) -> None:
        """Samples of whole minutes, and what became of memory; one transaction. A stay of a known id is replaced."""
        with self._lock, _damage_is_told():
            series = dict(self._ids)
            with self._transaction() as database:
                minutes: dict[int, dict[int, Mapping[str, float]]] = {}
                for slot, values in slots.items():
                    minutes.setdefault(slot - slot % MINUTE_S, {})[slot] = values
                self.skipped = 0
                for start, own in minutes.items():
                    ids, rows = self._minute(start, own, series)
                    known = database.execute("SELECT body FROM minute WHERE start = ?", (start,)).fetchone()
                    if known is not None:  # the clock was set back, or the box began anew within the minute
                        ids, rows = _merged_rows(known[0], ids, rows)
                    database.execute("REPLACE INTO minute VALUES (?, ?)", (start, packed_rows(ids, rows)))
                database.executemany(f"REPLACE INTO stay VALUES ({_marks(StayRow)})", stays)
                database.executemany(f"REPLACE INTO reason VALUES ({_marks(ReasonRow)})", reasons)
                database.executemany(
                    f"INSERT INTO window (application, since, until) VALUES ({_marks(WindowRow)})", windows
                )
            self._ids = series

    def fold(self, now_s: float) -> None:
        """Make pieces of the hours and days other than the present ones, and drop what is too much."""
        hour, day = int(now_s) // HOUR_S * HOUR_S, int(now_s) // DAY_S * DAY_S
        with self._lock, _damage_is_told():
            query = "SELECT DISTINCT start - start % ?1 FROM minute WHERE start - start % ?1 <> ?2 ORDER BY 1"
            over = [start for (start,) in self._database.execute(query, (HOUR_S, hour))]
            for start in over:
                self._fold_hour(start)
            query = "SELECT start FROM open_day WHERE start <> ? ORDER BY 1"
            for (start,) in self._database.execute(query, (day,)).fetchall():
                self._fold_day(start)
            if over:
                self._drop_old(now_s)

    def drop_tenant(self, tenant: str) -> None:
        """Forget what was a tenant's, who is gone: another one may come to bear its name."""
        with self._lock, _damage_is_told():
            ids = [id for name, id in self._ids.items() if is_of_tenant(name, tenant)]
            with self._transaction() as database:
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
            return _points(database, ids, names, start, end, is_fine=is_fine, more=more or {})

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
        return found

    def last_stay(self) -> int:
        """The highest id of a stay."""
        with self._lock, _damage_is_told():
            return int(self._database.execute("SELECT max(id) FROM stay").fetchone()[0] or 0)

    def end_open_stays(self) -> None:
        """Stays that were open when the box ended without a word ended with its last minute."""
        with self._lock, _damage_is_told(), self._transaction() as database:
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
        if self._database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise Damaged("its check fails")

    def _reader(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, isolation_level=None, timeout=5)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # on a full disk SQLite has done so by itself
                self._database.execute("ROLLBACK")
            raise

    def _minute(
        self, start: int, slots: Mapping[int, Mapping[str, float]], series: dict[str, int]
    ) -> tuple[NDArray[np.uint32], Samples]:
        """Ids and samples of one minute; names that are new are added to `series`."""
        names = sorted({name for values in slots.values() for name in values})
        self._number(names, series)
        kept = [(series[name], name) for name in names if name in series]
        self.skipped = max(self.skipped, len(names) - len(kept))
        rows = np.full((len(kept), _ROW), np.nan, np.float32)
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

    def _fold_hour(self, start: int) -> None:
        """Rows of an hour become a piece for each series."""
        query = "SELECT start, body FROM minute WHERE start >= ? AND start < ?"
        pieces: dict[int, Samples] = {}
        for at, body in self._database.execute(query, (start, start + HOUR_S)):
            with suppress(ValueError):
                ids, rows = unpacked_rows(body)
                place = (at - start) // STEP_S
                for id, row in zip(ids.tolist(), rows, strict=True):
                    if id not in pieces:
                        pieces[id] = np.full(_PIECE, np.nan, np.float32)
                    pieces[id][place : place + _ROW] = row
        known = sorted(set(pieces) & set(self._ids.values()))
        for first in range(0, len(known), _BATCH):
            if first:
                pause_s(_PAUSE_S)
            with self._transaction() as database:
                for id in known[first : first + _BATCH]:
                    self._put_fine(database, start, id, pieces[id])
        with self._transaction() as database:
            database.execute("INSERT OR IGNORE INTO open_day VALUES (?)", (start - start % DAY_S,))
            database.execute("DELETE FROM minute WHERE start >= ? AND start < ?", (start, start + HOUR_S))

    @staticmethod
    def _put_fine(database: sqlite3.Connection, start: int, id: int, piece: Samples) -> None:
        query = "SELECT body FROM fine WHERE start = ? AND series = ?"
        known = database.execute(query, (start, id)).fetchone()
        if known is not None:
            with suppress(ValueError):
                piece = np.where(np.isnan(piece), unpacked(known[0], _PIECE), piece)
        if not np.isnan(piece).all():
            database.execute("REPLACE INTO fine VALUES (?, ?, ?)", (start, id, packed(piece)))

    def _fold_day(self, start: int) -> None:
        """Pieces of a day become five-minute stretches of each series, merged with those that there are."""
        query = "SELECT DISTINCT series FROM fine WHERE start >= ? AND start < ?"
        there = {id for (id,) in self._database.execute(query, (start, start + DAY_S))}
        names = sorted(name for name, id in self._ids.items() if id in there)
        for first in range(0, len(names), _BATCH):
            if first:
                pause_s(_PAUSE_S)
            ids = {name: self._ids[name] for name in (UP, *names[first : first + _BATCH]) if name in self._ids}
            ids.setdefault(UP, -1)
            fine = _fine(self._database, ids, start, start + DAY_S, {})
            with self._transaction() as database:
                for name in names[first : first + _BATCH]:
                    points = _stretches(name, fine[name])
                    known = _coarse_piece(database, start, ids[name])
                    row = packed(np.stack(points if known is None else _over(known, points)))
                    database.execute("REPLACE INTO coarse VALUES (?, ?, ?)", (start, ids[name], row))
        self._database.execute("DELETE FROM open_day WHERE start = ?", (start,))

    def _drop_old(self, now_s: float) -> None:
        with self._transaction() as database:
            for table, most in (("fine", HOURS_KEPT), ("coarse", self._days)):
                there = f"SELECT start FROM (SELECT DISTINCT start FROM {table})"
                far = f"{there} ORDER BY abs(start - ?) LIMIT -1 OFFSET {most}"
                database.execute(f"DELETE FROM {table} WHERE start IN ({far})", (int(now_s),))
            for table, most in (("stay", STAYS_MAX), ("window", WINDOWS_MAX)):
                newest = f"SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET {most}"
                database.execute(f"DELETE FROM {table} WHERE id <= ({newest})")
            asked = "SELECT came FROM stay WHERE came IS NOT NULL UNION SELECT went FROM stay WHERE went IS NOT NULL"
            database.execute(f"DELETE FROM reason WHERE decision NOT IN ({asked})")
        if len(self._ids) > self._series_max // 2:
            self._drop_unused()

    def _drop_unused(self) -> None:
        """Names of which there is no sample any more."""
        query = "SELECT series FROM fine UNION SELECT series FROM coarse"
        used = {id for (id,) in self._database.execute(query)}
        for (body,) in self._database.execute("SELECT body FROM minute"):
            with suppress(ValueError):
                used |= set(unpacked_rows(body)[0].tolist())
        unused = {name: id for name, id in self._ids.items() if id not in used}
        with self._transaction() as database:
            database.executemany("DELETE FROM series WHERE id = ?", ((id,) for id in unused.values()))
        self._ids = {name: id for name, id in self._ids.items() if name not in unused}


def unwritten_points(names: Collection[str], start: int, end: int, *, is_fine: bool, more: Slots) -> dict[str, Points]:
    """What `read` answers where there is no file."""
    return _points(None, dict.fromkeys({*names, UP}, -1), names, start, end, is_fine=is_fine, more=more)


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


def _is_rate(name: str) -> bool:
    measure = MEASURES.get(split_name(name)[0])
    return measure is not None and measure.is_rate


def _marks(row: type[NamedTuple]) -> str:
    return ", ".join("?" * len(row._fields))


def _merged_rows(body: bytes, ids: NDArray[np.uint32], rows: Samples) -> tuple[NDArray[np.uint32], Samples]:
    """What is new over what is known."""
    try:
        known, before = unpacked_rows(body)
    except ValueError:
        return ids, rows
    merged = dict(zip(known.tolist(), before, strict=True))
    for id, row in zip(ids.tolist(), rows, strict=True):
        merged[id] = np.where(np.isnan(row), merged[id], row) if id in merged else row
    order = sorted(merged)
    return np.array(order, np.uint32), np.stack([merged[id] for id in order])


def _coarse_piece(database: sqlite3.Connection, start: int, id: int) -> Points | None:
    row = database.execute("SELECT body FROM coarse WHERE start = ? AND series = ?", (start, id)).fetchone()
    if row is None:
        return None
    try:
        return Points(*unpacked(row[0], 3 * _COARSE_PIECE).reshape(3, -1))
    except ValueError:
        return None


def _over(known: Points, points: Points) -> Sequence[Samples]:
    """What is new over what is known."""
    there = ~np.isnan(points.mean)
    return [np.where(there, new, old) for new, old in zip(points, known, strict=True)]


def _points(
    database: sqlite3.Connection | None,
    ids: Mapping[str, int],
    names: Collection[str],
    start: int,
    end: int,
    *,
    is_fine: bool,
    more: Slots,
) -> dict[str, Points]:
    if is_fine:
        fine = _fine(database, ids, start, end, more)
        found = {name: points_of(fine[name]) for name in names}
    else:
        found = _coarse(database, ids, names, start, end, more)
    if UP in found:
        found[UP] = Points(*(np.nan_to_num(one) for one in found[UP]))
    return found


def _fine(
    database: sqlite3.Connection | None, ids: Mapping[str, int], start: int, end: int, more: Slots
) -> dict[str, Samples]:
    """Samples of ten seconds; of rates zero where the box was up. `ids` holds that of UP."""
    count = (end - start) // STEP_S
    found = {id: np.full(count, np.nan, np.float32) for id in ids.values()}

    def put(id: int, at: int, samples: Samples) -> None:
        first, last = (at - start) // STEP_S, (at - start) // STEP_S + len(samples)
        own = samples[max(0, -first) : len(samples) - max(0, last - count)]
        into = found[id][max(0, first) : max(0, min(count, last))]
        np.copyto(into, own[: len(into)], where=~np.isnan(own[: len(into)]))

    marks = ", ".join("?" * len(found))
    query = f"SELECT series, start, body FROM fine WHERE start > ? AND start < ? AND series IN ({marks})"
    for id, at, body in _rows(database, query, (start - HOUR_S, end, *found)):
        with suppress(ValueError):
            put(id, at, unpacked(body, _PIECE))
    query = "SELECT start, body FROM minute WHERE start > ? AND start < ?"
    wanted = np.array(sorted(id for id in found if id >= 0), np.uint32)
    for at, body in _rows(database, query, (start - MINUTE_S, end)):
        with suppress(ValueError):
            known, rows = unpacked_rows(body)
            for place in np.flatnonzero(np.isin(known, wanted)):
                put(int(known[place]), at, rows[place])
    by_name = {name: found[id] if id >= 0 else np.full(count, np.nan, np.float32) for name, id in ids.items()}
    for slot, values in more.items():
        if start <= slot < end:
            for name in ids.keys() & values.keys():
                by_name[name][(slot - start) // STEP_S] = values[name]
    up = ~np.isnan(by_name[UP])
    return {name: zero_where(own, up) if _is_rate(name) else own for name, own in by_name.items()}


def _stretches(name: str, samples: Samples) -> Points:
    """Five minutes each. Of UP the mean is the share of the samples that were taken."""
    points = thinned(points_of(samples), COARSE_S // STEP_S)
    if name != UP:
        return points
    taken = thinned(points_of(np.nan_to_num(samples)), COARSE_S // STEP_S)
    return Points(*(np.where(np.isnan(points.mean), np.float32(np.nan), one) for one in taken))


def _coarse(
    database: sqlite3.Connection | None,
    ids: Mapping[str, int],
    names: Collection[str],
    start: int,
    end: int,
    more: Slots,
) -> dict[str, Points]:
    """Stretches of five minutes; days that are not over come from the samples themselves."""
    count = (end - start) // COARSE_S
    found = {name: Points(*(np.full(count, np.nan, np.float32) for _ in range(3))) for name in ids}

    def put(name: str, at: int, points: Points) -> None:
        first, last = (at - start) // COARSE_S, (at - start) // COARSE_S + len(points.mean)
        for into, own in zip(found[name], points, strict=True):
            part = own[max(0, -first) : len(own) - max(0, last - count)]
            place = into[max(0, first) : max(0, min(count, last))]
            np.copyto(place, part[: len(place)], where=~np.isnan(part[: len(place)]))

    by_id = {id: name for name, id in ids.items() if id >= 0}
    query = (
        f"SELECT series, start, body FROM coarse WHERE start > ? AND start < ? "
        f"AND series IN ({', '.join('?' * len(by_id))})"
    )
    for id, at, body in _rows(database, query, (start - DAY_S, end, *by_id)):
        with suppress(ValueError):
            put(by_id[id], at, Points(*unpacked(body, 3 * _COARSE_PIECE).reshape(3, -1)))
    oldest = min(
        (
            start
            for (start,) in _rows(database, "SELECT start FROM open_day UNION SELECT min(start) FROM minute")
            if start is not None
        ),
        default=min(more, default=end),
    )
    first = max(start, oldest // COARSE_S * COARSE_S)
    if first < end:
        for name, samples in _fine(database, ids, first, end, more).items():
            put(name, first, _stretches(name, samples))
    up = ~np.isnan(found[UP].mean)
    return {
        name: Points(*(zero_where(one, up) for one in found[name])) if _is_rate(name) else found[name] for name in names
    }


def _rows(database: sqlite3.Connection | None, query: str, parameters: Sequence[object] = ()) -> Iterable[Any]:
    """None where there is no file."""
    return () if database is None else database.execute(query, parameters)
