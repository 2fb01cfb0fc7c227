"""Who was in memory, as it is sent: a row for each stay, or columns, and of both what the caller may see."""

import datetime
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from appliance.api.auth.keyring import Principal
from appliance.history.file import ReasonRow, StayRow, WindowRow
from appliance.history.history import Residency


class Seen:
    """What a caller sees of stays; that of some kinds is worked out once, for ten thousand rows have few."""

    def __init__(self, principal: Principal, application: str | None, own_names: Mapping[tuple[str, str], str]) -> None:
        """`application`: only stays of its variants. `own_names`: what a variant is called in each application of the
        caller's tenant, (application, build) → name.
        """
        self._principal, self._application, self._own_names = principal, application, own_names
        self._names: dict[str, list[str]] = {}
        self._variants: dict[tuple[str, str, str], str] = {}

    @cached_property
    def is_all(self) -> bool:
        """Whether nothing is kept from the caller."""
        return self._principal.is_admin and self._application is None

    def names(self, applications: str) -> list[str]:
        """The caller's among those of a stay; none: it is not the caller's, or not of the application asked for."""
        found = self._names.get(applications)
        if found is None:
            own = "" if self._principal.is_admin else f"{self._principal.tenant}/"
            names = [one for one in applications.split() if one.startswith(own)]
            found = self._names[applications] = names if self._application in (None, *names) else []
        return found

    def variant(self, row: StayRow) -> str:
        """As stored, which is the first application's name for it, or, where that may be another tenant's, the own."""
        key = (row.variant, row.applications, row.build)
        found = self._variants.get(key)
        if found is None:
            names = self.names(row.applications)
            is_own = self._principal.is_admin or len(names) == len(row.applications.split())
            known = (self._own_names[one, row.build] for one in names if (one, row.build) in self._own_names)
            found = self._variants[key] = row.variant if is_own else next(known, "")
        return found

    def stays(self, found: Residency) -> Sequence[StayRow]:
        return found.stays if self.is_all else [row for row in found.stays if self.names(row.applications)]

    def windows(self, found: Residency) -> Sequence[WindowRow]:
        return found.windows if self.is_all else [one for one in found.windows if self.names(one.application)]

    def decisions(self, rows: Sequence[StayRow], found: Residency) -> list[dict[str, Any]]:
        """Those that rows name; without words that name other tenants."""
        numbers = {row.came for row in rows} | {row.went for row in rows}
        told = [one for number, one in found.reasons.items() if number in numbers]
        return [{"decision": one.decision, "reason": one.text if self._may_read(one) else ""} for one in told]

    def _may_read(self, reason: ReasonRow) -> bool:
        return self._principal.is_admin or all(one == self._principal.tenant for one in reason.tenants.split())


def as_rows(found: Residency, since: datetime.datetime, until: datetime.datetime, seen: Seen) -> bytes:
    """As `MemoryHistoryShape` has it; some microseconds a row."""
    rows, windows = seen.stays(found), seen.windows(found)
    begun, ended = _moments([row.since for row in rows]), _moments([row.until for row in rows])
    opened, closed = _moments([one.since for one in windows]), _moments([one.until for one in windows])
    document = {
        "start": since.isoformat(),
        "end": until.isoformat(),
        "stays": [
            {
                "applications": seen.names(row.applications),
                "variant": seen.variant(row),
                "build": row.build,
                "state": row.state,
                "bytes": row.bytes,
                "since": begun[place],
                "until": ended[place],
                "came_by": row.came_by,
                "came": row.came,
                "left_by": row.left_by,
                "left": row.went,
            }
            for place, row in enumerate(rows)
        ],
        "decisions": seen.decisions(rows, found),
        "windows": [
            {"application": one.application, "since": opened[place], "until": closed[place]}
            for place, one in enumerate(windows)
        ],
        "is_whole": found.is_whole,
    }
    return orjson.dumps(document)


def as_columns(found: Residency, since: datetime.datetime, until: datetime.datetime, seen: Seen) -> bytes:
    """As `MemoryColumnsShape` has it."""
    rows, windows = seen.stays(found), seen.windows(found)
    start_s = since.timestamp()
    builds, build_of = _numbered([(row.applications, row.variant, row.build, row.state) for row in rows])
    ways, way_of = _numbered([row.came_by for row in rows] + [row.left_by for row in rows])
    applications, application_of = _numbered([one.application for one in windows])
    first: dict[Hashable, StayRow] = {}
    for row in rows:
        first.setdefault((row.applications, row.variant, row.build, row.state), row)
    document = {
        "start": since.isoformat(),
        "end": until.isoformat(),
        "builds": [
            {
                "applications": seen.names(first[one].applications),
                "variant": seen.variant(first[one]),
                "build": first[one].build,
                "state": first[one].state,
            }
            for one in builds
        ],
        "ways": ways,
        "stays": {
            "build": build_of,
            "bytes": [row.bytes for row in rows],
            "since_ms": _milliseconds([row.since for row in rows], start_s),
            "until_ms": _milliseconds([row.until for row in rows], start_s),
            "came_by": way_of[: len(rows)],
            "came": [row.came for row in rows],
            "left_by": way_of[len(rows) :],
            "left": [row.went for row in rows],
        },
        "decisions": seen.decisions(rows, found),
        "applications": applications,
        "windows": {
            "application": application_of,
            "since_ms": _milliseconds([one.since for one in windows], start_s),
            "until_ms": _milliseconds([one.until for one in windows], start_s),
        },
        "is_whole": found.is_whole,
    }
    return orjson.dumps(document)


def _numbered(values: Sequence[Hashable]) -> tuple[list[Any], list[int]]:
    """Those that there are, and which of them each value is."""
    number = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return list(number), [number[value] for value in values]


def _milliseconds(times_s: Sequence[float | None], start_s: float) -> list[int | None]:
    """After `start_s`; seconds since 1970 in."""
    return [None if one is None else round(1000 * (one - start_s)) for one in times_s]


def _moments(times_s: Sequence[float | None]) -> list[str | None]:
    """Seconds since 1970 as they are shown, to the millisecond."""
    seconds = np.array([0.0 if one is None else one for one in times_s])
    milliseconds = np.rint(1000 * seconds).astype(np.int64).astype("M8[ms]")
    shown: list[str | None] = np.datetime_as_string(milliseconds, timezone="UTC").tolist()
    for place, one in enumerate(times_s):
        if one is None:
            shown[place] = None
    return shown
