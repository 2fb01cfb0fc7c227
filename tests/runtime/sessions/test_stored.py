"""What is stored of sessions, and when it goes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.catalogue import Application
from appliance.domain.errors import PromiseNotPossible, StorageFull, UnknownSession
from appliance.domain.session import AccuracyPromise, LatencyPromise, Session
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.sessions.fleet import Fleet, box_with, steady

PROMISE = LatencyPromise(150.0, 5.0)


class Rows:
    """Port `SessionStore`: a table that takes its time to write."""

    def __init__(self) -> None:
        self.by_id: dict[str, Session] = {}
        self.writing = asyncio.Event()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_broken = self.is_full = False

    async def put(self, session: Session) -> None:
        self.writing.set()
        await self.may_write.wait()
        if self.is_full:
            raise StorageFull()
        self.by_id[session.id] = session

    async def remove(self, id: str) -> None:
        if self.is_broken:
            raise OSError("the disk is gone")
        self.by_id.pop(id, None)


@asynccontextmanager
async def stored() -> AsyncIterator[tuple[Fleet, Application, Rows]]:
    """A box at work whose sessions are kept in rows."""
    rows = Rows()
    async with box_with({640: Cost(run_ms=10)}) as (fleet, gate):
        fleet.sessions.kept_in(rows)
        yield fleet, gate, rows


@story
async def test_session_that_ends_while_stored_leaves_no_row() -> None:
    """The device leaves before the answer that it was let in, or while its promise changes."""

    async def ended_while_written(work: Coroutine[Any, Any, object]) -> LiveSession:
        rows.may_write.clear()
        rows.writing.clear()
        task = asyncio.create_task(work)
        await rows.writing.wait()
        (live,) = fleet.sessions.live.values()
        await fleet.sessions.end(live)
        rows.may_write.set()
        with pytest.raises(UnknownSession):
            await task
        assert rows.by_id == {}
        return live

    async with stored() as (fleet, gate, rows):
        await ended_while_written(fleet.join(gate, PROMISE))
        live = await fleet.join(gate, PROMISE)
        assert list(rows.by_id) == [live.id]
        assert await ended_while_written(fleet.sessions.change(live, is_paused=True)) is live
        assert live.state is SessionState.ENDED


@story
async def test_session_change_that_cannot_be_stored_is_refused() -> None:
    """The refusal says that the disk is full, and the session goes on as promised; a promise that is refused leaves the
    old one in the row.
    """
    async with stored() as (fleet, gate, rows):
        live = await fleet.join(gate, PROMISE)
        rows.is_full = True
        for change in ({"promise": LatencyPromise(300.0, 5.0)}, {"is_paused": True}):
            with pytest.raises(StorageFull):
                await fleet.sessions.change(live, **change)
            assert (live.promise, live.session.is_paused, live.state) == (PROMISE, False, SessionState.SERVED)
        rows.is_full = False
        with pytest.raises(PromiseNotPossible):
            await fleet.sessions.change(live, promise=LatencyPromise(5.0, 1000.0))
        assert rows.by_id[live.id].promise == PROMISE
        await fleet.sessions.change(live, is_paused=True)
        assert (rows.by_id[live.id].is_paused, live.session.is_paused) == (True, True)


@story
async def test_stored_session_of_missing_application_is_removed_at_restart() -> None:
    """The application has gone while the box was off; rows of other sessions stay."""
    async with stored() as (fleet, gate, _):
        live = await fleet.join(gate, PROMISE)
        await fleet.sessions.end(live)
    again, rows, kept = Fleet(), Rows(), live.session
    again.add({640: Cost(run_ms=10)})
    gone = replace(kept, id="gone", application_id="t/gone")
    rows.by_id = {one.id: one for one in (kept, gone)}
    again.sessions.restore([kept, gone])
    async with again.working():
        again.sessions.kept_in(rows)
        await again.pass_s(1)
        assert list(rows.by_id) == [kept.id]


@story
async def test_planning_goes_on_when_session_store_fails() -> None:
    """A session without frames ends, and its row cannot be removed: the loops go on."""
    async with stored() as (fleet, gate, rows):
        live = await fleet.join(gate, PROMISE)
        rows.is_broken = True
        await fleet.pass_s(65)
        assert live.state is SessionState.ENDED
        other = await fleet.join(gate, PROMISE)
        before = present(other.plan).number
        await fleet.pass_s(2)
        assert present(other.plan).number > before


@story
async def test_slow_planning_turn_delays_next_turn_by_half_a_second_at_most() -> None:
    """After a start on a busy machine the first may take seconds, and devices wait for their plans."""
    fleet = Fleet()
    gate = fleet.add({160: Cost(run_ms=6)})
    turns: list[int] = []
    planned = fleet.sessions.planning.adapt_all

    async def slow() -> None:
        turns.append(fleet.clock.now_ns())
        if len(turns) == 1:
            await fleet.pass_s(10)
        await planned()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet.sessions.planning, "adapt_all", slow)
        async with fleet.working():
            await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=50)
            await fleet.pass_s(12)
    assert (turns[1] - turns[0]) / NS_PER_S <= 10.6


@story
async def test_accuracy_sessions_keep_workers_over_restart() -> None:
    """On one worker together some would be removed, and let in again on the others one by one: that takes seconds."""
    async with box_with({300: Cost(run_ms=20)}, workers=2) as (fleet, gate):
        lives, _ = await fleet.fill(gate, AccuracyPromise(0.06), fps=60.0)
        lanes = sorted(live.lane for live in lives)
        assert set(lanes) == {0, 1}
    again = Fleet(workers=2)
    again.add({300: Cost(run_ms=20)})
    again.sessions.restore(live.session for live in lives)
    async with again.working():
        for live in again.sessions.live.values():
            again.stream(live, steady(20), drop_rate=0.006)
        await again.pass_s(1)
        assert sorted(device.live.lane for device in again.devices) == lanes
        assert again.states == [SessionState.SERVED] * len(lives)
        assert again.sessions.planning.figures.removals == 0
