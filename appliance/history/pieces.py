"""How samples lie in the file, and points read from it: rows of minutes with all series, pieces of an hour for each
series, stretches of five minutes of a day with mean, least and most.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.history.packing import Samples, unpacked, unpacked_rows
from appliance.history.series import MEASURES, UP, split_name
from appliance.history.thinning import Points, points_of, thinned, zero_where

STEP_S = 10
COARSE_S = 300
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
ROW = MINUTE_S // STEP_S
PIECE = HOUR_S // STEP_S
"""Samples of a series in the row of a minute, in the piece of an hour."""
_COARSE_PIECE = DAY_S // COARSE_S

Slots = Mapping[int, Mapping[str, float]]
"""Beginning of ten seconds, since 1970 → the samples of each series, by name."""


def merged_rows(body: bytes, ids: NDArray[np.uint32], rows: Samples) -> tuple[NDArray[np.uint32], Samples]:
    """The row of a minute: what is new over what is known."""
    try:
        known, before = unpacked_rows(body)
    except ValueError:
        return ids, rows
    merged = dict(zip(known.tolist(), before, strict=True))
    for id, row in zip(ids.tolist(), rows, strict=True):
        merged[id] = np.where(np.isnan(row), merged[id], row) if id in merged else row
    order = sorted(merged)
    return np.array(order, np.uint32), np.stack([merged[id] for id in order])


def read_stretches(database: sqlite3.Connection, start: int, id: int) -> Points | None:
    """Those of a series' day; None: there are none, or they cannot be read."""
    row = database.execute("SELECT body FROM coarse WHERE start = ? AND series = ?", (start, id)).fetchone()
    if row is None:
        return None
    try:
        return Points(*unpacked(row[0], 3 * _COARSE_PIECE).reshape(3, -1))
    except ValueError:
        return None


def read_points(
    database: sqlite3.Connection | None,
    ids: Mapping[str, int],
    names: Collection[str],
    start: int,
    end: int,
    *,
    is_fine: bool,
    more: Slots,
) -> dict[str, Points]:
    """Points from `start` to before `end`, whole steps of ten seconds, or of five minutes. `ids` holds that of UP;
    `more`: samples that were not written yet; `database` None: there is no file.
    """
    if is_fine:
        samples = read_fine(database, ids, start, end, more)
        found = {name: points_of(samples[name]) for name in names}
    else:
        found = _coarse(database, ids, names, start, end, more)
    if UP in found:
        found[UP] = Points(*(np.nan_to_num(one) for one in found[UP]))
    return found


def read_fine(
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
            put(id, at, unpacked(body, PIECE))
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
    return {name: zero_where(own, up) if is_rate(name) else own for name, own in by_name.items()}


def stretches(name: str, samples: Samples) -> Points:
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
        for name, samples in read_fine(database, ids, first, end, more).items():
            put(name, first, stretches(name, samples))
    up = ~np.isnan(found[UP].mean)
    return {
        name: Points(*(zero_where(one, up) for one in found[name])) if is_rate(name) else found[name] for name in names
    }


def _rows(database: sqlite3.Connection | None, query: str, parameters: Sequence[object] = ()) -> Iterable[Any]:
    """None where there is no file."""
    return () if database is None else database.execute(query, parameters)


def is_rate(name: str) -> bool:
    measure = MEASURES.get(split_name(name)[0])
    return measure is not None and measure.is_rate
