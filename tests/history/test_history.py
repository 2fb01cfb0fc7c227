"""The loop in virtual time: a sample every ten seconds, a write every minute, whatever becomes of the file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from appliance.clock import NS_PER_S
from appliance.history.file import HistoryFile
from appliance.history.history import PENDING_MAX, History
from appliance.history.pieces import DAY_S, HOUR_S, MINUTE_S
from appliance.history.sampler import Sources
from appliance.lab.loop import VirtualClock
from appliance.runtime.telemetry import Telemetry
from tests.fakes.clock import story
from tests.fakes.sinks import Events
from tests.history.samples import fill

T = TypeVar("T")
Floats = np.ndarray[tuple[int], np.dtype[np.float32]]


async def at_once(compute: Callable[[], T], /) -> T:
    """In place of a thread, of which virtual time has none."""
    return compute()


class Box:
    """A history that reads one figure."""

    def __init__(self, path: Path, tenants: Collection[str] = ()) -> None:
        self.clock = VirtualClock()
        self.events = Events()
        self.telemetry = Telemetry(self.clock)
        self.path = path
        self.is_disk_gone = False
        sources = Sources(
            statistics=self.telemetry.statistics,
            memory_bytes=lambda: (int(self.wall_s()) // 10 % 997, 10_000),
            held_bytes=dict,
            processors=lambda: [],
            sensors=lambda: [],
            available_bytes=lambda: 1000,
            disk_free_bytes=lambda: self.disk_free(),
        )
        self.history = History(
            self.clock, path, sources, self.events, lambda *_: (), tenants, days=30, series_max=100, background=at_once
        )

    def disk_free(self) -> int:
        if self.is_disk_gone:
            raise OSError(5, "Input/output error")
        return 2000

    def wall_s(self) -> float:
        return self.clock.wall_now().timestamp()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It runs meanwhile, and ends as by a kill."""
        task = asyncio.create_task(self.history.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        await self.clock.sleep_until_ns(self.clock.now_ns() + int(seconds * NS_PER_S))

    async def live(self, seconds: float) -> None:
        """Let it run for so long."""
        async with self.running():
            await self.pause(seconds)

    async def memory(self, start: float, points: int = 2000) -> Floats:
        """The means of the series since then."""
        return (await self.history.read(["memory"], start, self.wall_s(), points)).series["memory"].mean

    @contextmanager
    def file(self) -> Iterator[HistoryFile]:
        with closing(HistoryFile(self.path, days=30, series_max=100)) as file:
            yield file


@story
async def test_history_of_killed_box_lacks_at_most_one_minute(tmp_path: Path) -> None:
    """All but the samples of the present minute are in the file."""
    box = Box(tmp_path / "history.db")
    start = box.wall_s()
    await box.live(1000)
    with box.file() as file:
        found = file.read(["memory"], int(start), int(start) + 1000, is_fine=True)["memory"].mean
    assert not np.isnan(found[:96]).any()
    asked = await box.history.read(["up", "memory"], start, box.wall_s(), 2000)
    assert (asked.step_s, asked.count) == (10, 100)
    assert not np.isnan(asked.series["memory"].mean[:-1]).any()


@story
async def test_history_query_of_a_month_has_bounded_points_and_extremes(tmp_path: Path) -> None:
    """Answers hold as many points as asked for, and know the extremes of each stretch; what is too old is gone."""
    box = Box(tmp_path / "history.db")
    begun = int(box.wall_s()) // HOUR_S * HOUR_S
    with box.file() as file:
        fill(file, begun, begun + 2 * DAY_S + 3 * HOUR_S)
    box.clock.step_ns = (2 * DAY_S + 3 * HOUR_S) * NS_PER_S
    await box.live(200)
    now = box.wall_s() - 200
    day = await box.history.read(["memory"], now - DAY_S, now, 2000)
    assert (day.step_s, day.count) == (50, 1728)
    assert np.nanmax(day.series["memory"].most) == 996
    assert np.nanmin(day.series["memory"].least) == 0
    month = await box.history.read(["memory", "up"], now - 30 * DAY_S, now, 500)
    assert month.count <= 250
    assert month.start >= now - 30 * DAY_S - month.step_s
    assert np.nanmax(month.series["memory"].most) == 996
    two = await box.history.read(["memory"], now - 2 * DAY_S, now, 2000)
    assert two.step_s == 300
    assert not np.isnan(two.series["memory"].mean[1:-1]).any()


@story
async def test_history_total_of_a_rate_does_not_depend_on_points_or_range(tmp_path: Path) -> None:
    """210 requests in ten minutes of an hour in which the box was down for a while."""
    box = Box(tmp_path / "history.db")
    begun = int(box.wall_s()) // HOUR_S * HOUR_S
    with box.file() as file:
        taken = [slot for slot in range(begun, begun + HOUR_S, 10) if slot // 700 % 3]
        file.write({slot: {"up": 1.0} | ({"requests": 0.7} if slot in taken[20:50] else {}) for slot in taken})
    box.clock.step_ns = HOUR_S * NS_PER_S
    await box.live(200)
    now = box.wall_s()
    for back_s, points in ((2 * HOUR_S, 2000), (2 * HOUR_S, 7), (30 * DAY_S, 2000), (30 * DAY_S, 11)):
        found = await box.history.read(["requests"], now - back_s, now, points)
        assert found.totals == {"requests": pytest.approx(210, rel=1e-3)}
    assert (await box.history.read(["memory"], now - HOUR_S, now, 9)).totals == {}


@story
async def test_history_sampling_survives_clock_steps(tmp_path: Path) -> None:
    """Forward and back, by hours and by years: samples go on, and earlier ones stay."""
    box = Box(tmp_path / "history.db")
    await box.live(600)
    for step_s in (7200, -7200, -3 * DAY_S, 3 * DAY_S, 900 * DAY_S, -900 * DAY_S):
        box.clock.step_ns += step_s * NS_PER_S
        await box.live(600)
        assert np.isnan(await box.memory(box.wall_s() - 590)).sum() <= 2, step_s
    found = await box.memory(box.wall_s() - 7200)
    assert (~np.isnan(found)).sum() > 170, "a wrong clock has cost what was there"


@pytest.mark.parametrize("when", ["before", "while it runs"])
@story
async def test_history_goes_on_after_its_file_is_damaged(tmp_path: Path, when: str) -> None:
    """The file is moved aside and begun anew, an event tells of the damage, and later samples are kept."""
    box = Box(tmp_path / "history.db")
    if when == "before":
        box.path.write_bytes(b"\x07" * 9999)
    else:
        await box.live(300)
        with closing(sqlite3.connect(box.path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        box.path.write_bytes(b"\x07" * 9999)
        assert np.isnan((await box.memory(box.wall_s() - 300, 100))[:20]).all()
    await box.live(600)
    await box.history.close()
    assert len(box.events.of("history damaged")) == 1
    assert (tmp_path / "history.damaged").exists()
    now = int(box.wall_s())
    with box.file() as file:
        assert not np.isnan(file.read(["memory"], now - 400, now - 20, is_fine=True)["memory"].mean).any()


@story
async def test_history_writes_pending_samples_once_disk_is_writable(tmp_path: Path) -> None:
    """Samples that could not be written wait, an hour of them at most, and are answered meanwhile."""
    folder = tmp_path / "away"
    box = Box(folder / "history.db")  # where nothing can be made
    await box.live(1200)
    start = box.wall_s() - 1200
    assert (await box.history.residency(start, box.wall_s())).is_whole
    assert np.isnan(await box.memory(start)).sum() <= 3
    folder.mkdir()
    await box.live(120)
    assert np.isnan(await box.memory(start)).sum() <= 3
    for _ in range(PENDING_MAX + 50):
        box.history.sample()
        box.clock.step_ns += 10 * NS_PER_S
    assert len(box.history.pending) == PENDING_MAX


@story
async def test_history_sampling_resumes_after_disk_read_errors(tmp_path: Path) -> None:
    """Samples of the time between are missing."""
    box = Box(tmp_path / "history.db")
    start = box.wall_s()
    async with box.running():
        for box.is_disk_gone in (False, True, False):
            await box.pause(100)
        found = await box.memory(start, 100)
    assert 9 <= np.isnan(found).sum() <= 12
    assert not np.isnan(found[-9:-1]).any()


@story
async def test_history_of_deleted_tenant_is_removed_once_disk_is_writable(tmp_path: Path) -> None:
    """A new tenant of the same name finds nothing of the deleted one, nor do later starts."""
    box = Box(tmp_path / "history.db", ["harbour", "museum"])
    await box.live(100)
    start = int(box.wall_s()) // MINUTE_S * MINUTE_S - HOUR_S
    with box.file() as file:
        file.write({start: {"up": 1.0, "memory:harbour": 5.0, "memory:museum": 6.0}})
    again = Box(box.path, ["harbour", "museum"])
    async with again.running():
        await again.pause(20)
        with closing(sqlite3.connect(box.path)) as other:
            other.execute("CREATE TRIGGER full BEFORE DELETE ON series BEGIN SELECT RAISE(ROLLBACK, 'disk full'); END")
        again.history.forget_tenant("harbour")
        await again.pause(90)
        assert "memory:harbour" in again.history.names()
        with closing(sqlite3.connect(box.path)) as other:
            other.execute("DROP TRIGGER full")
        await again.pause(90)
        assert {"memory:museum"} == {name for name in again.history.names() if ":" in name}
    late = Box(box.path, ["harbour"])
    await late.live(20)
    assert not {name for name in late.history.names() if ":" in name}


@story
async def test_history_of_zero_days_keeps_no_file_and_no_samples(tmp_path: Path) -> None:
    """An answer has no points."""
    box = Box(tmp_path / "history.db")
    box.history.days = 0
    await box.live(200)
    await box.history.close()
    assert not box.path.exists()
    assert np.isnan(await box.memory(box.wall_s() - 100, 100)).all()
