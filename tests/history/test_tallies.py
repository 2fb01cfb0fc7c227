"""Tallies: whole numbers over an hour, a day and a month, whatever becomes of the box and its file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.promised import PromiseEnd
from appliance.domain.spans import Span
from appliance.history.pieces import DAY_S, HOUR_S, MINUTE_S
from appliance.history.tallies import PromiseKind, Sums, tally_name
from tests.fakes.clock import story
from tests.history.test_history import Box

DOOR = tally_name(PromiseKind.REQUESTS, "harbour/door")


def ask(box: Box, kept: int, late: int = 0, refused: int = 0, failed: int = 0) -> None:
    """Requests to an application with an SLO end so."""
    for end, times in zip(PromiseEnd, (kept, late, refused, failed), strict=True):
        for _ in range(times):
            box.telemetry.failed(("harbour/door", "int8", "harbour"), "failed", 5, end)


async def sums(box: Box, span: Span) -> Sums:
    return (await box.history.sums([span], lambda name: name == DOOR))[span]


async def totals(box: Box) -> dict[str, list[int]]:
    """Kept, late, refused and failed over each span."""
    found = await box.history.sums(Span, lambda name: name == DOOR)
    return {span.value: [sum(column) for column in zip(*own.of(DOOR, 4), strict=True)] for span, own in found.items()}


def at_midnight(box: Box, days: int = 1) -> None:
    """Set the clock to a midnight of UTC."""
    now_s = int(box.wall_s())
    box.clock.step_ns += (days * DAY_S - now_s % DAY_S) * NS_PER_S


@story
async def test_promise_sums_of_a_month_are_exact_across_restarts_and_thinning(tmp_path: Path) -> None:
    """Numbers that a rounded rate would not hold: ten days, each with a kill of the box, and 3,001 requests in all."""
    path = tmp_path / "history.db"
    box = Box(path, ["harbour"])
    at_midnight(box)
    for day in range(10):
        again = Box(path, ["harbour"])
        again.clock.step_ns = box.clock.step_ns + day * DAY_S * NS_PER_S
        async with again.running():
            await again.pause(30)
            ask(again, kept=299, late=1)
            await again.pause(HOUR_S + 90)  # an hour is folded
            ask(again, kept=0, refused=day == 9)
            await again.pause(90)
    assert await totals(again) == {
        "hour": [0, 0, 1, 0],
        "day": [299, 1, 1, 0],
        "month": [2990, 10, 1, 0],
    }
    by_day = (await sums(again, Span.MONTH)).of(DOOR, 4)
    assert by_day == [[0, 0, 0, 0]] * 20 + [[299, 1, 0, 0]] * 9 + [[299, 1, 1, 0]]


@story
async def test_promise_sums_count_what_is_not_written_yet_once(tmp_path: Path) -> None:
    """Before the first write, after it, and after the box has ended in order and begun anew."""
    box = Box(tmp_path / "history.db", ["harbour"])
    at_midnight(box)
    async with box.running():
        ask(box, kept=3, late=1)
        await box.pause(20)
        assert (await totals(box))["hour"] == [3, 1, 0, 0]
        await box.pause(100)
        assert (await totals(box))["hour"] == [3, 1, 0, 0]
        ask(box, kept=0, failed=1)
        await box.pause(15)
    await box.history.close()
    again = Box(box.path, ["harbour"])
    again.clock.step_ns = box.clock.step_ns
    await again.live(20)
    assert (await totals(again)) == {span: [3, 1, 0, 1] for span in ("hour", "day", "month")}


@story
async def test_promise_cells_tell_when_the_box_was_down_and_when_nothing_was_recorded(tmp_path: Path) -> None:
    """A box that was killed at 00:10 and began anew at 00:30 was down for twenty minutes, in which nothing was kept."""
    box = Box(tmp_path / "history.db", ["harbour"])
    at_midnight(box)
    async with box.running():
        ask(box, kept=5)
        await box.pause(600)
    again = Box(box.path, ["harbour"])
    again.clock.step_ns = box.clock.step_ns + 1200 * NS_PER_S
    async with again.running():
        await again.pause(600)
        hour = await sums(again, Span.HOUR)
        down_s = hour.down_s()
        assert down_s[:19] == [None] * 19, "before the box was installed"
        assert sum(filter(None, down_s)) == pytest.approx(1200, abs=90)
        assert down_s[32:47] == [60] * 15
        assert set(down_s[52:]) == {0}
        assert sum(sum(counts) for counts in hour.of(DOOR, 4)) == 5
        month = await sums(again, Span.MONTH)
    assert month.down_s()[:29] == [None] * 29
    assert month.down_s()[29] == pytest.approx(1200, abs=90)


@story
async def test_promise_sums_are_counted_once_where_the_file_cannot_be_folded(tmp_path: Path) -> None:
    """What was written before the disk failed is not added again with the next try."""
    box = Box(tmp_path / "history.db", ["harbour"])
    at_midnight(box)
    async with box.running():
        await box.pause(70)
        with closing(sqlite3.connect(box.path)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON fine BEGIN SELECT RAISE(ROLLBACK, 'disk full'); END")
        box.clock.step_ns += HOUR_S * NS_PER_S
        ask(box, kept=7)
        await box.pause(5 * MINUTE_S)
        assert (await totals(box))["day"] == [7, 0, 0, 0]


@story
async def test_promise_sums_wait_for_a_disk_that_can_be_written(tmp_path: Path) -> None:
    """They are told meanwhile, and are in the file afterwards."""
    folder = tmp_path / "away"
    box = Box(folder / "history.db", ["harbour"])
    at_midnight(box)
    async with box.running():
        ask(box, kept=7)
        await box.pause(200)
        assert (await totals(box))["month"] == [7, 0, 0, 0]
        folder.mkdir()
        await box.pause(200)
        assert (await totals(box))["month"] == [7, 0, 0, 0]
    again = Box(box.path, ["harbour"])
    again.clock.step_ns = box.clock.step_ns
    await again.live(20)
    assert (await totals(again))["month"] == [7, 0, 0, 0]


@story
async def test_promise_sums_of_a_deleted_tenant_are_gone(tmp_path: Path) -> None:
    """From memory and from the file, also where the box was killed before the file forgot the tenant."""
    box = Box(tmp_path / "history.db", ["harbour"])
    at_midnight(box)
    async with box.running():
        ask(box, kept=7)
        await box.pause(100)
        ask(box, kept=7)
        await box.pause(20)
        box.telemetry.forget_tenant("harbour")
        box.history.forget_tenant("harbour")
        await box.pause(100)
        assert (await totals(box))["month"] == [0, 0, 0, 0]
        ask(box, kept=1)  # a new tenant of the name
        await box.pause(100)
        assert (await totals(box))["month"] == [1, 0, 0, 0]
    again = Box(box.path, [])
    again.clock.step_ns = box.clock.step_ns
    await again.live(20)
    assert (await totals(again))["month"] == [0, 0, 0, 0]


@story
async def test_promise_sums_lose_nothing_to_a_clock_that_steps(tmp_path: Path) -> None:
    """A box believes for an hour that it is years ahead, and comes back: the month is as it was."""
    box = Box(tmp_path / "history.db", ["harbour"])
    at_midnight(box)
    async with box.running():
        ask(box, kept=7)
        await box.pause(100)
        box.clock.step_ns += 900 * DAY_S * NS_PER_S
        ask(box, kept=2)
        await box.pause(HOUR_S + 200)
        assert (await totals(box))["month"] == [2, 0, 0, 0]
        box.clock.step_ns -= 900 * DAY_S * NS_PER_S
        await box.pause(HOUR_S)
        assert (await totals(box))["month"] == [7, 0, 0, 0]


@story
async def test_promise_cells_that_cannot_be_read_are_empty(tmp_path: Path) -> None:
    box = Box(tmp_path / "history.db", ["harbour"])
    at_midnight(box)
    ask(box, kept=7)
    await box.live(100)
    with closing(sqlite3.connect(box.path)) as other:
        other.execute("UPDATE tally SET body = x'00' WHERE width = 60")
        other.commit()
    assert await totals(box) == {"hour": [0, 0, 0, 0], "day": [7, 0, 0, 0], "month": [7, 0, 0, 0]}


@story
async def test_tallies_of_one_tenant_with_many_applications_leave_room_for_others(tmp_path: Path) -> None:
    """There is a bound to the names of a day, and no tenant has all of them."""
    box = Box(tmp_path / "history.db", ["harbour", "flood"])
    at_midnight(box)
    async with box.running():
        for number in range(300):
            key = (f"flood/{number}", "int8", "flood")
            box.telemetry.failed(key, "failed", 5, PromiseEnd.KEPT)
        await box.pause(100)
        ask(box, kept=7)
        await box.pause(100)
        assert (await totals(box))["month"] == [7, 0, 0, 0]
