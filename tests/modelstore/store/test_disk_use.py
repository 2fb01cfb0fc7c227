"""When the disk will be full."""

import datetime
import json
from pathlib import Path

import pytest

from appliance.modelstore.store.disk_use import DiskUse, Sample, days_left

HOUR_S = 3600.0


def falling(hours: int, free: float, per_day: float) -> list[Sample]:
    return [(at * HOUR_S, int(free - per_day * at / 24)) for at in range(hours)]


@pytest.mark.parametrize(
    ("samples", "days"),
    [
        ([], None),
        (falling(24, 1e9, 1e8), None),  # not a day yet
        (falling(49, 1e9, 1e8), 8.0),
        (falling(49, 1e9, 0.0), None),
        (falling(49, 1e9, -1e8), None),
        (falling(49, 1e12, 1e8), None),  # further than a year
    ],
)
def test_disk_days_left_follow_straight_line_from_latest_sample(samples: list[Sample], days: float | None) -> None:
    assert days_left(samples) == (None if days is None else pytest.approx(days, rel=1e-6))


def test_disk_days_left_are_not_shortened_by_single_upload() -> None:
    """A gigabyte that came at once in two weeks of nothing weighs as what it is."""
    samples = [(at * HOUR_S, 100_000_000_000 - (10**9 if at > 330 else 0)) for at in range(336)]
    left = days_left(samples)
    assert left is None or left > 300


def test_disk_use_samples_are_kept_over_restart(tmp_path: Path) -> None:
    """For two weeks; a clock that is set back removes the samples in its future; a damaged file is an empty one."""
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    use = DiskUse(tmp_path)
    for day in range(20):
        use.note(now + datetime.timedelta(days=day))
    again, file = DiskUse(tmp_path), tmp_path / "disk_use.json"
    assert len(json.loads(file.read_text())["free"]) == 15
    again.note(now + datetime.timedelta(days=10))
    assert len(json.loads(file.read_text())["free"]) == 6
    file.write_text("[broken")
    assert DiskUse(tmp_path).days_left() is None
