"""How fast a link is over time: read from a file, or drawn with the statistics of measured ones."""

import csv
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

from appliance.clock import NS_PER_S
from appliance.lab.problems.base import Malformed

MBPS = 1e6
STEPS_MAX = 1_000_000


@dataclass(frozen=True)
class Trace:
    """A rate that holds from each time until the next; after the last one it begins again.

    `begins_ns`: ascending, the first one 0; `rates_bps`: bits a second, 0 where nothing goes through, but not always;
    `period_ns`: of all of it.
    """

    begins_ns: tuple[int, ...]
    rates_bps: tuple[float, ...]
    period_ns: int
    _bits: tuple[float, ...] = field(init=False, repr=False)
    """What goes through from the start until each step ends."""

    def __post_init__(self) -> None:
        ends = (*self.begins_ns[1:], self.period_ns)
        each = (
            rate * (end - begin) / NS_PER_S
            for rate, begin, end in zip(self.rates_bps, self.begins_ns, ends, strict=True)
        )
        object.__setattr__(self, "_bits", tuple(accumulate(each)))

    @property
    def mean_bps(self) -> float:
        """Over a whole period."""
        return self._bits[-1] * NS_PER_S / self.period_ns

    def rate_bps(self, at_ns: int) -> float:
        """The rate that holds then."""
        return self.rates_bps[bisect_right(self.begins_ns, at_ns % self.period_ns) - 1]

    def through_ns(self, begin_ns: int, bits: float) -> int:
        """When so many bits are through that begin then."""
        periods, bits = divmod(bits + self._before(begin_ns % self.period_ns), self._bits[-1])
        step = min(bisect_right(self._bits, bits), len(self._bits) - 1)
        while not self.rates_bps[step]:  # by rounding only: nothing ends where nothing goes through
            step -= 1
        left = bits - (self._bits[step - 1] if step else 0.0)
        inside_ns = self.begins_ns[step] + math.ceil(left / self.rates_bps[step] * NS_PER_S)
        at_ns = begin_ns // self.period_ns * self.period_ns + int(periods) * self.period_ns + inside_ns
        return max(begin_ns, at_ns)

    def _before(self, at_ns: int) -> float:
        """Bits that have gone through before that time of a period."""
        step = bisect_right(self.begins_ns, at_ns) - 1
        begun = self._bits[step - 1] if step else 0.0
        return begun + self.rates_bps[step] * (at_ns - self.begins_ns[step]) / NS_PER_S

    def times(self, factor: float) -> "Trace":
        """The same, so many times as fast."""
        return Trace(self.begins_ns, tuple(rate * factor for rate in self.rates_bps), self.period_ns)

    def since(self, start_ns: int) -> "Trace":
        """The same, begun in the middle, as devices do that come at different times."""
        start_ns %= self.period_ns
        turned = [((begin - start_ns) % self.period_ns, rate) for begin, rate in self._steps()]
        if turned[0][0] and all(begin for begin, _ in turned):
            turned.append((0, self.rate_bps(start_ns)))
        turned.sort()
        return Trace(tuple(begin for begin, _ in turned), tuple(rate for _, rate in turned), self.period_ns)

    def _steps(self) -> Sequence[tuple[int, float]]:
        return list(zip(self.begins_ns, self.rates_bps, strict=True))


def steady(mbps: float) -> Trace:
    """Always as fast."""
    return Trace((0,), (mbps * MBPS,), NS_PER_S)


def read_trace(path: Path, key: str = "csv") -> Trace:
    """A file with the columns `time_s,uplink_mbps`; the last row holds as long as the one before it.

    Raises: Malformed, naming the row.
    """
    rows: list[tuple[float, float]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if not {"time_s", "uplink_mbps"} <= set(table.fieldnames or ()):
                raise Malformed(key, f"{path.name} needs the columns time_s and uplink_mbps")
            for row in table:
                rows.append(
                    (_number(row["time_s"], key, table.line_num), _number(row["uplink_mbps"], key, table.line_num))
                )
                if len(rows) > STEPS_MAX:
                    raise Malformed(key, f"{path.name} has more than {STEPS_MAX} rows")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Malformed(key, f"{path.name} cannot be read: {reason}") from None
    return of_rows(rows, key)


def of_rows(rows: Sequence[tuple[float, float]], key: str = "trace") -> Trace:
    """From seconds and Mbit/s, in the order of time. Raises: Malformed."""
    if not rows:
        raise Malformed(key, "has no rows")
    times = [round((at_s - rows[0][0]) * NS_PER_S) for at_s, _ in rows]
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise Malformed(key, "must be in the order of time")
    if not any(mbps for _, mbps in rows):
        raise Malformed(key, "lets nothing through at any time")
    last_ns = times[-1] - times[-2] if len(times) > 1 else NS_PER_S
    return Trace(tuple(times), tuple(mbps * MBPS for _, mbps in rows), times[-1] + last_ns)


def _number(text: str | None, key: str, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e8:
        raise Malformed(f"{key}, line {line}", f"{(text or '')[:40]!r} is no number from 0 on")
    return value


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of a measured link, Mbit/s, a value a second; `correlation`: of a value with the next one."""

    mean: float
    sd: float
    least: float
    most: float
    correlation: float


MEASURED: Mapping[str, Statistics] = {
    # The traces that Jellyfish was evaluated on (RTSS 2022, §VI-A): uplinks.
    "lte": Statistics(15.20, 5.28, 2.86, 26.33, 0.67),
    "wifi": Statistics(51.87, 16.82, 12.9, 90.8, 0.74),
    # The networks of ARISE (§6.1); the paper gives no correlation.
    "5g": Statistics(152, 6, 128, 176, 0.0),
    "lte-fast": Statistics(44, 8, 12, 76, 0.0),
}
_STAIRS_MBPS, _STAIR_S = (20.0, 15.0, 10.0, 7.5, 10.0, 15.0, 20.0), 20
"""Jellyfish's synthetic trace."""


def drawn(like: str, seed: int, duration_s: int = 200) -> Trace:
    """One with the statistics of `MEASURED[like]`: each value takes after the one before it (AR(1), clipped)."""
    found, random = MEASURED[like], Random(f"{seed}/trace/{like}")
    own = math.sqrt(1 - found.correlation**2) * found.sd
    value, rows = random.gauss(found.mean, found.sd), []
    for second in range(duration_s):
        rows.append((float(second), min(max(value, found.least), found.most)))
        value = found.mean + found.correlation * (value - found.mean) + random.gauss(0, own)
    return of_rows(rows)


def stairs() -> Trace:
    """Down and up again in steps of 20 s (Jellyfish §VI-B)."""
    return of_rows([(float(_STAIR_S * at), mbps) for at, mbps in enumerate(_STAIRS_MBPS)])
