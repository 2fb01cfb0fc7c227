"""When the disk will be full, as far as its last two weeks tell."""

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path

from appliance.modelstore.store.json_file import JsonFile

Sample = tuple[float, int]
"""Seconds since 1970, and bytes that were free then."""
KEPT = datetime.timedelta(days=14)
SPAN_MIN = datetime.timedelta(days=1)
"""A shorter history says nothing."""
DAYS_MAX = 365.0
"""What is further away is no news."""
_DAY_S = 86_400.0


class DiskUse:
    """Samples of the free bytes of the state folder's disk, kept over restarts."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._file = JsonFile(state_dir / "disk_use.json")
        self._samples: list[Sample] = _samples(self._file.load().get("free"))

    def note(self, now: datetime.datetime) -> None:
        """Take a sample; blocks."""
        at_s, oldest_s = now.timestamp(), (now - KEPT).timestamp()
        kept = [one for one in self._samples if oldest_s <= one[0] < at_s]  # the clock may have been set back
        self._samples = [*kept, (at_s, shutil.disk_usage(self._state_dir).free)]
        self._file.save({"free": self._samples})

    def days_left(self) -> float | None:
        """Until nothing is free; None: not in a year, or nobody can say yet."""
        return days_left(self._samples)


def days_left(samples: Sequence[Sample]) -> float | None:
    """By the straight line that fits the samples best, from the latest one."""
    if not samples or samples[-1][0] - samples[0][0] < SPAN_MIN.total_seconds():
        return None
    mean_at = sum(at for at, _ in samples) / len(samples)
    mean_free = sum(free for _, free in samples) / len(samples)
    spread = sum((at - mean_at) ** 2 for at, _ in samples)
    slope = sum((at - mean_at) * (free - mean_free) for at, free in samples) / spread
    if slope >= 0:
        return None
    days = samples[-1][1] / -slope / _DAY_S
    return days if days <= DAYS_MAX else None


def _samples(document: object) -> list[Sample]:
    rows = document if isinstance(document, list) else []
    try:
        return [(float(at), int(free)) for at, free in rows]
    except (TypeError, ValueError):
        return []
