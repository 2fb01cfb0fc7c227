"""Tallies: whole numbers that are added up, and never rounded, thinned or averaged.

They count ends of promises and the use of tenants by minute, half hour and day of UTC. So a share over a month is the
share of all requests of the month, across restarts.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple, Protocol

from appliance.domain.spans import Span
from appliance.history.pieces import DAY_S, MINUTE_S, STEP_S
from appliance.runtime.engine.portions import Portions

Tally = dict[str, Sequence[int]]
"""Name → counts, for example `requests:harbour/door` → kept, late, refused and failed."""
UP = "up"
"""Tally of the samples that were taken, which are the times at which the box ran."""
TABLE = """
CREATE TABLE IF NOT EXISTS tally (
    width INTEGER, start INTEGER, body BLOB NOT NULL, PRIMARY KEY (width, start)
);
"""
_BEGAN = 0
"""Width of the row that holds the beginning of all tallies."""


class Cells(NamedTuple):
    """Equal stretches of time; the last one is under way."""

    width_s: int
    number: int


CELLS = {Span.HOUR: Cells(MINUTE_S, 60), Span.DAY: Cells(1800, 48), Span.MONTH: Cells(DAY_S, 30)}


class Use(StrEnum):
    """Counts of a tenant."""

    ASKED = "asked"
    """Requests of the tenant, with all outcomes."""
    RAN = "ran"
    """Nanoseconds that requests and frames of the tenant took of processors."""
    HELD = "held"
    """Bytes of the tenant's models in memory, added up over samples."""


class PromiseKind(StrEnum):
    """Kinds of promises."""

    REQUESTS = "requests"
    """Requests of an application, which are promised to be answered within its SLO."""
    WINDOWS = "windows"
    """Windows of sessions at an application, in each of which the promise was kept or not."""
    PIPELINE_WINDOWS = "pipeline-windows"
    """Windows of sessions at a pipeline."""
    FRAMES = "frames"
    """Frames of a pipeline, which are promised to be answered within its SLO, with all items."""


class Counter(Protocol):
    """An object that counts from its construction on."""

    @property
    def totals(self) -> Sequence[int]:
        """Return the counts so far; none of them falls."""
        ...


Counters = Callable[[], Iterable[tuple[str, Counter]]]
"""Returns all counters of one kind, each with the name of its tally."""


class Differences:
    """Differences of counters between two looks. The last counts of a counter that is gone are included."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, Counter, Sequence[int]]] = {}
        """`id()` of a counter → its tally, the counter (kept so that no other gets the id), and its last totals."""

    def look(self, counters: Iterable[tuple[str, Counter]]) -> Tally:
        """Return the counts since the last look, by tally."""
        before, self._seen = self._seen, {}
        found: Tally = {}
        for name, counter in counters:
            self._seen[id(counter)] = name, counter, tuple(counter.totals)
        for id_, (name, counter, last) in {**before, **self._seen}.items():
            now = last if id_ in self._seen else counter.totals
            known = before[id_][2] if id_ in before else ()
            new = [a - b for a, b in zip_longest(now, known, fillvalue=0)]
            if any(new):
                add(found, {name: new})
        return found


@dataclass(frozen=True, slots=True)
class Sums:
    """Tallies of a span, cell by cell, oldest first."""

    start: int
    """Beginning of the first cell, in seconds since 1970."""
    width_s: int
    cells: Sequence[Tally]
    began: int | None
    """Beginning of all tallies; None: there are none."""
    now: int
    """Beginning of the ten seconds under way."""

    def of(self, name: str, length: int) -> list[list[int]]:
        """Return the counts of a tally, cell by cell; zeros where there are none."""
        return [list(cell.get(name) or [0] * length) for cell in self.cells]

    def down_s(self) -> list[int | None]:
        """Return the seconds of each cell in which the box did not run; None where this is not known."""
        found: list[int | None] = []
        for place, cell in enumerate(self.cells):
            start = self.start + place * self.width_s
            since, until = max(start, self.began or 0), min(start + self.width_s, self.now)
            if self.began is None or since >= start + self.width_s:
                found.append(None)
            else:
                found.append(max(0, until - since - STEP_S * sum(cell.get(UP, ()))))
        return found


def tally_name(kind: Use | PromiseKind, subject: str) -> str:
    """Return the name of a tally of a tenant, an application or a pipeline."""
    return f"{kind.value}:{subject}"


def tenant_of_tally(name: str) -> str:
    """Return the tenant of a tally; empty for the box."""
    return name.partition(":")[2].partition("/")[0]


def add(into: Tally, more: Mapping[str, Sequence[int]]) -> None:
    """Add counts to a tally."""
    for name, counts in more.items():
        known = into.get(name)
        into[name] = counts if known is None else [a + b for a, b in zip_longest(known, counts, fillvalue=0)]


def _add_bounded(into: Tally, more: Mapping[str, Sequence[int]], names_max: int) -> None:
    """Add counts to a tally that has at most `names_max` names. Tenants share the room for new names."""
    room = Portions(names_max)
    for name in into:
        room.add(tenant_of_tally(name))
    add(into, {name: counts for name, counts in more.items() if name in into or room.take(tenant_of_tally(name))})


def write_tallies(database: sqlite3.Connection, slots: Mapping[int, Tally], names_max: int) -> None:
    """Add tallies of ten seconds to those of each width."""
    query = "INSERT INTO tally SELECT ?1, ?2, '' WHERE NOT EXISTS (SELECT 1 FROM tally WHERE width = ?1)"
    database.execute(query, (_BEGAN, min(slots)))
    for width_s, _ in CELLS.values():
        changed: dict[int, Tally] = {}
        for slot, tally in slots.items():
            add(changed.setdefault(slot - slot % width_s, {}), tally)
        for start, tally in changed.items():
            row = database.execute("SELECT body FROM tally WHERE width = ? AND start = ?", (width_s, start)).fetchone()
            known = {} if row is None else _unpacked(row[0])
            _add_bounded(known, tally, names_max)
            database.execute("REPLACE INTO tally VALUES (?, ?, ?)", (width_s, start, _packed(known)))


def read_tallies(
    database: sqlite3.Connection | None, span: Span, more: Mapping[int, Tally], wanted: Callable[[str], bool], now: int
) -> Sums:
    """Return the tallies of a span that ends now, of names that are `wanted`. `more`: tallies of ten seconds that were
    not written yet; `database` None: there is no file.
    """
    width_s, number = CELLS[span]
    first = now - now % width_s - (number - 1) * width_s
    cells: list[Tally] = [{} for _ in range(number)]
    began = [slot for slot in more if slot <= now]

    def put(start: int, tally: Tally) -> None:
        place = (start - first) // width_s
        if 0 <= place < number:
            add(cells[place], {name: counts for name, counts in tally.items() if name == UP or wanted(name)})

    if database is not None:
        query = "SELECT start FROM tally WHERE width = ? AND start <= ?"
        began += [start for (start,) in database.execute(query, (_BEGAN, now))]
        query = "SELECT start, body FROM tally WHERE width = ? AND start >= ? ORDER BY start"
        for start, body in database.execute(query, (width_s, first)):
            put(start, _unpacked(body))
            began += [start] if not began else []  # tallies began by a clock that was ahead
    for slot, tally in more.items():
        put(slot, tally)
    return Sums(first, width_s, cells, min(began, default=None), now - now % STEP_S)


def drop_old_tallies(database: sqlite3.Connection, now_s: float, days: int) -> None:
    """Drop the cells that no span reaches any more; `days` daily cells are kept."""
    for width_s, number in CELLS.values():
        most = days if width_s == DAY_S else number + 1
        far = "SELECT start FROM tally WHERE width = ?1 ORDER BY abs(start - ?2) LIMIT -1 OFFSET ?3"
        query = f"DELETE FROM tally WHERE width = ?1 AND start IN ({far})"
        database.execute(query, (width_s, int(now_s), most))


def drop_tallies_of(database: sqlite3.Connection, tenant: str) -> None:
    """Remove the counts of a tenant from all cells."""
    for width_s, start, body in database.execute("SELECT width, start, body FROM tally WHERE body <> ''").fetchall():
        known = _unpacked(body)
        kept = {name: counts for name, counts in known.items() if tenant_of_tally(name) != tenant}
        if len(kept) < len(known):
            query = "UPDATE tally SET body = ? WHERE width = ? AND start = ?"
            database.execute(query, (_packed(kept), width_s, start))


def tenants_of_tallies(database: sqlite3.Connection) -> Collection[str]:
    """Return the tenants that have tallies."""
    query = "SELECT body FROM tally WHERE body <> ''"
    names = {name for (body,) in database.execute(query) for name in _unpacked(body)}
    return {tenant_of_tally(name) for name in names} - {""}


def _packed(tally: Mapping[str, Sequence[int]]) -> bytes:
    return zlib.compress(json.dumps(tally, separators=(",", ":")).encode(), 1)


def _unpacked(body: bytes) -> Tally:
    """Return the tally of a row; empty where the row cannot be read."""
    with suppress(ValueError, zlib.error):
        tally: Tally = json.loads(zlib.decompress(body))
        return tally
    return {}
