"""What is folded in the file when an hour or a day is over, and what leaves it when there is too much. Each step may be
done twice: pieces are merged, and rows go last.

Retention goes by how many hours and days there are, and those farthest from now go first: a clock may be wrong. A box
that believes for an hour that it is 1970, or 2040, loses an hour, not all.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import numpy as np

from appliance.clock import pause_s
from appliance.history.packing import Samples, packed, unpacked, unpacked_rows
from appliance.history.pieces import DAY_S, HOUR_S, PIECE, ROW, STEP_S, read_fine, read_stretches, stretches
from appliance.history.series import UP
from appliance.history.thinning import Points
from appliance.history.transaction import transaction

HOURS_KEPT = 26
"""24, the one under way, and one that is over and not a piece yet."""
STAYS_MAX = 20_000
WINDOWS_MAX = 20_000
_BATCH = 32
"""Series that are folded in one transaction: some ten milliseconds of a thread."""
_PAUSE_S = 0.05
"""Between two of them, so that requests find an interpreter that is not taken."""


def fold_hour(database: sqlite3.Connection, ids: Collection[int], start: int) -> None:
    """Rows of an hour become a piece for each series."""
    query = "SELECT start, body FROM minute WHERE start >= ? AND start < ?"
    pieces: dict[int, Samples] = {}
    for at, body in database.execute(query, (start, start + HOUR_S)):
        with suppress(ValueError):
            known, rows = unpacked_rows(body)
            place = (at - start) // STEP_S
            for id, row in zip(known.tolist(), rows, strict=True):
                if id not in pieces:
                    pieces[id] = np.full(PIECE, np.nan, np.float32)
                pieces[id][place : place + ROW] = row
    kept = sorted(set(pieces) & set(ids))
    for first in range(0, len(kept), _BATCH):
        if first:
            pause_s(_PAUSE_S)
        with transaction(database):
            for id in kept[first : first + _BATCH]:
                _put_fine(database, start, id, pieces[id])
    with transaction(database):
        database.execute("INSERT OR IGNORE INTO open_day VALUES (?)", (start - start % DAY_S,))
        database.execute("DELETE FROM minute WHERE start >= ? AND start < ?", (start, start + HOUR_S))


def fold_day(database: sqlite3.Connection, ids: Mapping[str, int], start: int) -> None:
    """Pieces of a day become five-minute stretches of each series, merged with those that there are."""
    query = "SELECT DISTINCT series FROM fine WHERE start >= ? AND start < ?"
    there = {id for (id,) in database.execute(query, (start, start + DAY_S))}
    names = sorted(name for name, id in ids.items() if id in there)
    for first in range(0, len(names), _BATCH):
        if first:
            pause_s(_PAUSE_S)
        own = {name: ids[name] for name in (UP, *names[first : first + _BATCH]) if name in ids}
        own.setdefault(UP, -1)
        samples = read_fine(database, own, start, start + DAY_S, {})
        with transaction(database):
            for name in names[first : first + _BATCH]:
                points = stretches(name, samples[name])
                known = read_stretches(database, start, ids[name])
                row = packed(np.stack(points if known is None else _over(known, points)))
                database.execute("REPLACE INTO coarse VALUES (?, ?, ?)", (start, ids[name], row))
    database.execute("DELETE FROM open_day WHERE start = ?", (start,))


def drop_old(database: sqlite3.Connection, now_s: float, days: int) -> None:
    """What is beyond the hours and days that are kept, and the oldest stays and windows of too many."""
    with transaction(database):
        for table, most in (("fine", HOURS_KEPT), ("coarse", days)):
            there = f"SELECT start FROM (SELECT DISTINCT start FROM {table})"
            far = f"{there} ORDER BY abs(start - ?) LIMIT -1 OFFSET {most}"
            database.execute(f"DELETE FROM {table} WHERE start IN ({far})", (int(now_s),))
        for table, most in (("stay", STAYS_MAX), ("window", WINDOWS_MAX)):
            newest = f"SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET {most}"
            database.execute(f"DELETE FROM {table} WHERE id <= ({newest})")
        asked = "SELECT came FROM stay WHERE came IS NOT NULL UNION SELECT went FROM stay WHERE went IS NOT NULL"
        database.execute(f"DELETE FROM reason WHERE decision NOT IN ({asked})")


def unused(database: sqlite3.Connection, ids: Mapping[str, int]) -> set[str]:
    """Names of which there is no sample any more."""
    query = "SELECT series FROM fine UNION SELECT series FROM coarse"
    used = {id for (id,) in database.execute(query)}
    for (body,) in database.execute("SELECT body FROM minute"):
        with suppress(ValueError):
            used |= set(unpacked_rows(body)[0].tolist())
    return {name for name, id in ids.items() if id not in used}


def _put_fine(database: sqlite3.Connection, start: int, id: int, piece: Samples) -> None:
    query = "SELECT body FROM fine WHERE start = ? AND series = ?"
    known = database.execute(query, (start, id)).fetchone()
    if known is not None:
        with suppress(ValueError):
            piece = np.where(np.isnan(piece), unpacked(known[0], PIECE), piece)
    if not np.isnan(piece).all():
        database.execute("REPLACE INTO fine VALUES (?, ?, ?)", (start, id, packed(piece)))


def _over(known: Points, points: Points) -> Sequence[Samples]:
    """What is new over what is known."""
    there = ~np.isnan(points.mean)
    return [np.where(there, new, old) for new, old in zip(points, known, strict=True)]
