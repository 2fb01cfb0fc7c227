"""The file: what was written is read, over folding, killing, damage and clocks that step."""

import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.history import folding
from appliance.history.file import Damaged, HistoryFile, ReasonRow, StayRow, WindowRow, set_aside
from appliance.history.pieces import DAY_S, HOUR_S, MINUTE_S, STEP_S
from appliance.history.thinning import thinned
from tests.history.samples import START, fill, sampled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In a folder whose name means something else in an address."""
    folder = tmp_path / "half %20 of?a#folder"
    folder.mkdir()
    return folder / "history.db"


@pytest.fixture
def made(path: Path) -> Iterator[HistoryFile]:
    file = HistoryFile(path, days=30, series_max=1000)
    yield file
    file.close()


def stay(id: int, since: float, until: float | None, **fields: Any) -> StayRow:
    row = StayRow(id, since, until, f"b{id}@cpu", "int8", "harbour/door", "resident", 100, "loaded", None, "", None)
    return row._replace(**fields)


def test_history_day_is_read_back_as_written(made: HistoryFile) -> None:
    """Whether the samples lie in minutes or hours or were not written yet; rates are zero where nothing was counted."""
    end = START + 3 * HOUR_S + 5 * MINUTE_S
    fill(made, START, end)
    more = {end + 10: {"up": 1.0, "memory": 5.0}}
    names = ["memory", "p99", "requests", "nothing"]
    found = made.read(names, START, end + MINUTE_S, is_fine=True, more=more)
    slots = range(START, end, STEP_S)
    assert found["memory"].mean[: len(slots)].tolist() == [slot // 10 % 997 for slot in slots]
    assert found["memory"].mean[len(slots) + 1] == 5
    assert np.isnan(found["memory"].mean[len(slots)])
    assert np.flatnonzero(~np.isnan(found["p99"].mean)).tolist() == [
        index for index, slot in enumerate(slots) if slot % 70 == 0
    ]
    requests = found["requests"].mean
    assert requests[:360].tolist() == [2.0 if slot % 20 == 0 else 0.0 for slot in range(START, START + HOUR_S, STEP_S)]
    assert set(requests[360 : len(slots)].tolist()) == {0.0}
    assert np.isnan(found["nothing"].mean).all()
    part = made.read(["memory"], START + 1230, START + 5000, is_fine=True)["memory"].mean
    assert part.tolist() == [slot // 10 % 997 for slot in range(START + 1230, START + 5000, STEP_S)]


def test_history_five_minute_points_keep_mean_and_extremes(made: HistoryFile) -> None:
    """Of days that are over, and of the present one, which is not folded yet."""
    end = START + 2 * DAY_S + 2 * HOUR_S + 10 * MINUTE_S
    fill(made, START, end)
    found = made.read(["memory", "requests"], START, end, is_fine=False)
    for index in (0, 5, 287, 288, 300, 576, 600):
        own = [slot // 10 % 997 for slot in range(START + 300 * index, START + 300 * (index + 1), STEP_S)]
        assert (found["memory"].least[index], found["memory"].most[index]) == (min(own), max(own))
        assert found["memory"].mean[index] == pytest.approx(sum(own) / len(own), rel=1e-3)
    assert found["requests"].mean[:12].tolist() == [1.0] * 12
    assert set(found["requests"].mean[12:].tolist()) == {0.0}
    assert found["requests"].most[0] == 2


def test_history_rates_add_up_over_downtime_of_the_box(made: HistoryFile) -> None:
    """Half an hour of a day at two requests a second: 3600 requests, however the day is divided."""
    made.write({slot: {"up": 1.0, "requests": 2.0} for slot in range(START + 40, START + 40 + 1800, STEP_S)})
    for now in (START + HOUR_S, START + DAY_S):  # before and after the day is over
        made.fold(now)
        found = made.read(["requests", "up"], START, START + DAY_S, is_fine=False)
        for group in (1, 7, 288):
            rate, up = (thinned(found[name], group).mean for name in ("requests", "up"))
            assert np.nansum(rate * up) * 300 * group == pytest.approx(3600, rel=0.03)


def test_history_minute_written_twice_merges_the_samples(made: HistoryFile) -> None:
    """The box restarted within the minute, or its clock was set back: new samples count, the others stay."""
    made.write({START: {"up": 1.0, "memory": 1.0, "p50": 3.0}, START + 10: {"up": 1.0, "memory": 2.0}})
    made.write({START + 10: {"up": 1.0, "memory": 7.0, "p99": 9.0}, START + 20: {"up": 1.0}})
    made.fold(START + HOUR_S)
    made.write({START + 20: {"memory": 8.0}})
    made.fold(START + HOUR_S)
    found = made.read(["memory", "p50", "p99"], START, START + 30, is_fine=True)
    assert found["memory"].mean.tolist() == [1, 7, 8]
    assert (found["p50"].mean[0], found["p99"].mean[1]) == (3, 9)


def test_history_of_killed_box_keeps_everything_written(path: Path) -> None:
    """Without a close; stays that were open end with the last minute."""
    killed = HistoryFile(path, days=30, series_max=100)
    killed.write({START: {"up": 1.0, "memory": 4.0}}, [stay(1, START - 5.0, None)])
    again = HistoryFile(path, days=30, series_max=100)
    again.end_open_stays()
    assert again.read(["memory"], START, START + 10, is_fine=True)["memory"].mean.tolist() == [4]
    (row,) = again.stays(START - 10, START + 10, 10)
    assert (row.until, row.left_by, again.last_stay()) == (START + MINUTE_S, "box ended", 1)
    again.close()
    killed.close()


def test_history_prunes_hours_by_count_after_clock_jump(made: HistoryFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was far ahead for two hours costs two hours, and the samples that it left in the future go first."""
    monkeypatch.setattr(folding, "HOURS_KEPT", 4)
    fill(made, START, START + 6 * HOUR_S)
    far = START + 5000 * DAY_S
    fill(made, far, far + 2 * HOUR_S)
    made.write({START + 6 * HOUR_S: sampled(START)})
    made.fold(START + 7 * HOUR_S)
    found = made.read(["memory"], START, START + 7 * HOUR_S, is_fine=True)["memory"].mean
    hours = [bool((~np.isnan(found[360 * hour : 360 * hour + 360])).any()) for hour in range(7)]
    assert hours == [False, False, False, False, True, True, True]
    ahead = made.read(["memory"], far, far + 2 * HOUR_S, is_fine=True)["memory"].mean
    assert np.isnan(ahead[360:]).all()


def test_history_series_beyond_the_bound_are_left_out_and_counted(path: Path) -> None:
    """Names of which nothing is left make room."""
    file = HistoryFile(path, days=30, series_max=3)
    file.write({START: {"up": 1.0, "p50:a/1": 1.0, "p50:a/2": 1.0, "p50:a/3": 1.0}})
    assert (file.skipped, len(file.names())) == (1, 3)
    file.drop_tenant("a")
    file.write({START + MINUTE_S: {"up": 1.0, "p50:a/3": 2.0}})
    assert file.skipped == 0
    assert file.names() == {"up", "p50:a/3"}
    file.close()


def test_history_tenant_cannot_take_all_series(path: Path) -> None:
    """Room is left for the next tenant and for the box."""
    file = HistoryFile(path, days=30, series_max=80)
    file.write({START: {f"p50:many/{number}": 1.0 for number in range(200)}})
    assert len(file.names()) == 70
    file.write({START + 10: {"up": 1.0, "load:cpu": 1.0, "requests:harbour": 1.0, "p99:harbour/door": 1.0}})
    assert {"up", "load:cpu", "requests:harbour", "p99:harbour/door"} < file.names()
    file.close()


def test_history_write_failed_on_full_disk_adds_no_series(made: HistoryFile, path: Path) -> None:
    """Names of series are rolled back with the rest; their numbers go to other series next."""
    made.write({START: {"up": 1.0}})
    before, files = resource.getrlimit(resource.RLIMIT_FSIZE), path.parent.glob(f"{path.name}*")
    too_much = [ReasonRow(number, 400 * "because ", "") for number in range(100)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(one.stat().st_size for one in files), before[1]))
    try:
        with pytest.raises(sqlite3.OperationalError, match="disk"):
            made.write({START + 10: {"requests:harbour": 1.0}}, reasons=too_much)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert made.names() == {"up"}
    made.write({START + 10: {"up": 1.0, "memory:museum": 5.0}})
    made.write({START + 10: {"requests:harbour": 1.0}})
    found = made.read(["requests:harbour", "memory:museum"], START + 10, START + 20, is_fine=True)
    assert {name: own.mean.tolist() for name, own in found.items()} == {"requests:harbour": [1], "memory:museum": [5]}


def test_history_of_deleted_tenant_is_removed(made: HistoryFile) -> None:
    """Series, stays and windows; a stay that other tenants share loses the tenant's name only."""
    made.write(
        {
            START: {
                "up": 1.0,
                "p99:harbour/door": 1.0,
                "requests:harbour": 1.0,
                "memory:harbourside": 2.0,
                "load:harbour": 1.0,
            }
        },
        [stay(1, START, None), stay(2, START, None, applications="harbour/door museum/door")],
        [ReasonRow(7, "because", "harbour")],
        [WindowRow("harbour/door", START, START + 1), WindowRow("museum/door", START, START + 1)],
    )
    made.fold(START + HOUR_S)
    made.drop_tenant("harbour")
    assert made.names() == {"up", "memory:harbourside", "load:harbour"}
    assert [row.applications for row in made.stays(START, START + 9, 9)] == ["museum/door"]
    assert [row.application for row in made.windows(START, START + 9, 9)] == ["museum/door"]
    assert np.isnan(made.read(["p99:harbour/door"], START, START + 10, is_fine=True)["p99:harbour/door"].mean).all()


def test_history_keeps_newest_stays_and_drops_unnamed_reasons(
    made: HistoryFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stay is replaced when it ends; the newest are answered and kept, and reasons as long as a stay names them."""
    monkeypatch.setattr(folding, "STAYS_MAX", 3)
    made.write({}, [stay(1, START, None, came=7)], [ReasonRow(7, "first", ""), ReasonRow(8, "second", "a b")])
    made.write({}, [stay(1, START, START + 5.0, came=7, went=8, left_by="evicted")])
    (row,) = made.stays(START, START + 100, 10)
    assert (row.until, row.came, row.went) == (START + 5, 7, 8)
    assert made.reasons(7, 8) == {7: ReasonRow(7, "first", ""), 8: ReasonRow(8, "second", "a b")}
    assert made.stays(START + 6, START + 100, 10) == []
    made.write({START: {"up": 1.0}}, [stay(id, START + id, START + id + 1) for id in range(2, 6)])
    assert [row.id for row in made.stays(START, START + 100, 2)] == [4, 5]
    made.fold(START + HOUR_S)
    assert [row.id for row in made.stays(START, START + 100, 10)] == [3, 4, 5]
    assert made.reasons(0, 100) == {}


@pytest.mark.parametrize("damage", ["noise", "cut", "another database", "newer version", "middle"])
def test_damaged_history_file_is_reported_and_can_be_set_aside(path: Path, damage: str) -> None:
    file = HistoryFile(path, days=30, series_max=1000)
    fill(file, START, START + 2 * HOUR_S)
    file.close()
    content = bytearray(path.read_bytes())
    if damage == "noise":
        path.write_bytes(b"\x07" * 50_000)
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "middle":
        content[20_000:60_000] = bytes(40_000)
        path.write_bytes(content)
    else:
        path.unlink()
        database = sqlite3.connect(path)
        database.executescript(
            "PRAGMA user_version=99; CREATE TABLE t (x);" if damage == "newer version" else "CREATE TABLE minute (x);"
        )
        database.close()
    with pytest.raises(Damaged):
        HistoryFile(path, days=30, series_max=1000)
    assert set_aside(path).exists()
    fresh = HistoryFile(path, days=30, series_max=1000)
    assert fresh.names() == set()
    fresh.close()


def test_history_read_leaves_out_a_damaged_piece(made: HistoryFile, path: Path) -> None:
    """Bytes that SQLite does not check: one hour of one series is missing, the rest is read."""
    fill(made, START, START + 2 * HOUR_S)
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE fine SET body = x'00112233' WHERE start = ?", (START,))
    other.close()
    found = made.read(["memory"], START, START + 2 * HOUR_S, is_fine=True)["memory"].mean
    assert np.isnan(found[:360]).all()
    assert not np.isnan(found[360:]).any()
