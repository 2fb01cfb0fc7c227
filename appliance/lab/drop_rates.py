"""What a picture loses with each frame of age, over time: looked up in place of tracking (AR-25)."""

import csv
import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from appliance.clock import NS_PER_S
from appliance.lab.problems.base import Malformed


@dataclass(frozen=True)
class Rates:
    """Shares of 1 a frame, each from its time until the next; after the last one they begin again."""

    begins_ns: tuple[int, ...]
    rates: tuple[float, ...]
    period_ns: int

    def at(self, since_ns: int) -> float:
        """So long after the device's arrival."""
        if len(self.rates) == 1:
            return self.rates[0]
        return self.rates[bisect_right(self.begins_ns, since_ns % self.period_ns) - 1]


def read_rates(path: Path, key: str) -> Rates:
    """A file with the columns `time_s,drop_rate`; the last row holds as long as the one before it.

    Raises: Malformed, naming the row.
    """
    rows: list[tuple[int, float]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if not {"time_s", "drop_rate"} <= set(table.fieldnames or ()):
                raise Malformed(key, f"{path.name} needs the columns time_s and drop_rate")
            for row in table:
                at = f"{key}, line {table.line_num}"
                rows.append((round(_number(row["time_s"], at, 1e8) * NS_PER_S), _number(row["drop_rate"], at, 1.0)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Malformed(key, f"{path.name} cannot be read: {reason}") from None
    if not rows:
        raise Malformed(key, f"{path.name} has no rows")
    times = [at_ns - rows[0][0] for at_ns, _ in rows]
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise Malformed(key, f"{path.name} must be in the order of time")
    last_ns = times[-1] - times[-2] if len(times) > 1 else NS_PER_S
    return Rates(tuple(times), tuple(rate for _, rate in rows), times[-1] + last_ns)


def _number(text: str | None, key: str, most: float) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise Malformed(key, f"{(text or '')[:40]!r} is no number from 0 to {most:g}")
    return value
