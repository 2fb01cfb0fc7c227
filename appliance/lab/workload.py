"""Who asks when: arrivals from a rate, a list or a file, all drawn before the simulation starts, so that no policy can
change them.

Each entry of `[[arrivals]]` draws from a generator of its own, seeded by the scenario's seed and its place in the list:
adding an entry leaves the others as they were.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from appliance.clock import NS_PER_S
from appliance.lab.problems.base import Malformed, Name, Shape, known

REQUESTS_MAX = 10_000_000
"""Requests of one scenario; a billion would fill the memory before they are simulated."""
_SOURCES = ("poisson_rps", "times_s", "csv")

Time = Annotated[float, Field(ge=0, le=1e8)]


class Arrivals(Shape):
    """One entry of `[[arrivals]]`; exactly one source."""

    application: Name
    poisson_rps: Annotated[float, Field(ge=0, le=1e6)] | None = None
    times_s: list[Time] | None = None
    csv: Name | None = None
    predicted_s: list[Time] | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to come: nanoseconds after the start, and whose."""

    at_ns: int
    application: str


def check_arrivals(entries: Sequence[Arrivals], applications: Sequence[str], duration_s: float | None) -> None:
    """Raises: Malformed."""
    expected = 0.0
    for i, entry in enumerate(entries):
        key = f"arrivals[{i}]"
        known(entry.application, applications, f"{key}.application")
        given = [name for name in _SOURCES if getattr(entry, name) is not None]
        if len(given) != 1:
            raise Malformed(key, f"needs exactly one of {', '.join(_SOURCES)}")
        if entry.poisson_rps is not None:
            if duration_s is None:
                raise Malformed("duration_s", "is missing")
            expected += entry.poisson_rps * duration_s
    if expected > REQUESTS_MAX:
        raise Malformed("duration_s", f"about {expected:.0f} requests are more than {REQUESTS_MAX}")


def draw(entries: Sequence[Arrivals], seed: int, duration_s: float | None, base_dir: str) -> list[Arrival]:
    """Every arrival before `duration_s` in the order of time, ties in the order of the entries.

    Raises: Malformed (of a file).
    """
    limit_ns = None if duration_s is None else nanoseconds(duration_s)
    arrivals = [
        Arrival(at_ns, entry.application)
        for i, entry in enumerate(entries)
        for at_ns in map(nanoseconds, _times(i, entry, seed, duration_s, base_dir))
        if limit_ns is None or at_ns < limit_ns
    ]
    return sorted(arrivals, key=lambda arrival: arrival.at_ns)


def predictions(entries: Sequence[Arrivals]) -> dict[str, tuple[int, ...]]:
    """Application → given forecast, ascending nanoseconds after the start; only of those that have one."""
    given: dict[str, set[int]] = {}
    for entry in entries:
        if entry.predicted_s is not None:
            given.setdefault(entry.application, set()).update(map(nanoseconds, entry.predicted_s))
    return {name: tuple(sorted(times)) for name, times in given.items()}


def nanoseconds(seconds: float) -> int:
    """The nearest whole nanosecond."""
    return round(seconds * NS_PER_S)


def _times(index: int, entry: Arrivals, seed: int, duration_s: float | None, base_dir: str) -> Iterator[float]:
    if entry.poisson_rps is not None:
        assert duration_s is not None, "checked when it was read"
        return poisson_times(Random(f"{seed}/arrivals/{index}"), entry.poisson_rps, duration_s)
    if entry.times_s is not None:
        return iter(entry.times_s)
    assert entry.csv is not None, "checked when it was read"
    return iter(read_times(Path(base_dir) / entry.csv, f"arrivals[{index}].csv"))


def poisson_times(rng: Random, rate_rps: float, duration_s: float) -> Iterator[float]:
    """Seconds, ascending."""
    at_s = 0.0
    while rate_rps > 0 and (at_s := at_s + rng.expovariate(rate_rps)) < duration_s:
        yield at_s


def read_times(path: Path, key: str, column: str = "time_s") -> list[float]:
    """A column of a CSV file: seconds. Raises: Malformed."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if column not in (rows.fieldnames or ()):
                raise Malformed(key, f"{path.name} has no column {column}")
            return [_number(row[column], f"{key}, line {rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Malformed(key, f"{path.name} cannot be read: {reason}") from None


def _number(text: str | None, key: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e8:
        raise Malformed(key, f"{(text or '')[:40]!r} is no time in seconds")
    return value
