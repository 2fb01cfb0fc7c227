"""What is stored of sessions, and when it goes."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.errors import PromiseNotPossible, StorageFull, UnknownSession
from appliance.domain.session import AccuracyPromise, LatencyPromise, Session
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.plans import plan_of
from tests.runtime.sessions.fleet import Fleet, box_with

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


@story
async def test_session_that_ends_while_stored_leaves_no_row() -> None:
    """The device leaves before the answer that it was let in, or while its promise changes."""
    fleet, rows = Fleet(), Rows()
    gate = fleet.add({640: Cost(run_ms=10)})
    async with fleet.working():
        fleet.sessions.kept_in(rows)
        rows.may_write.clear()
        joining = asyncio.create_task(fleet.join(gate, PROMISE))
        await rows.writing.wait()
        (live,) = fleet.sessions.live.values()
        await fleet.sessions.end(live)
        rows.may_write.set()
        with pytest.raises(UnknownSession):
            await joining
        assert rows.by_id == {}

        live = await fleet.join(gate, PROMISE)
        assert list(rows.by_id) == [live.id]
        rows.may_write.clear()
        rows.writing.clear()
        changing = asyncio.create_task(fleet.sessions.change(live, is_paused=True))
        await rows.writing.wait()
        await fleet.sessions.end(live)
        rows.may_write.set()
        with pytest.raises(UnknownSession):
            await changing
        assert rows.by_id == {}
        assert live.state is SessionState.ENDED


@story
async def test_session_change_that_cannot_be_stored_is_refused() -> None:
    """The refusal says that the disk is full, and the session goes on as promised; a promise that is refused leaves the
    old one in the row.
    """
    fleet, rows = Fleet(), Rows()
    gate = fleet.add({640: Cost(run_ms=10)})
    async with fleet.working():
        fleet.sessions.kept_in(rows)
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
    fleet, rows = Fleet(), Rows()
    gate = fleet.add({640: Cost(run_ms=10)})
    async with fleet.working():
        live = await fleet.join(gate, PROMISE)
        await fleet.sessions.end(live)
    again, kept = Fleet(), live.session
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
    fleet, rows = Fleet(), Rows()
    gate = fleet.add({640: Cost(run_ms=10)})
    async with fleet.working():
        fleet.sessions.kept_in(rows)
        live = await fleet.join(gate, PROMISE)
        rows.is_broken = True
        await fleet.pass_s(65)
        assert live.state is SessionState.ENDED
        other = await fleet.join(gate, PROMISE)
        before = plan_of(other).number
        await fleet.pass_s(2)
        assert plan_of(other).number > before


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
        lives: list[LiveSession] = []
        with suppress(PromiseNotPossible):
            while len(lives) < 50:
                lives.append(await fleet.join(gate, AccuracyPromise(0.06), fps=60.0, mbps=20.0))
        assert {live.lane for live in lives} == {0, 1}
    again = Fleet(workers=2)
    again.add({300: Cost(run_ms=20)})
    again.sessions.restore(live.session for live in lives)
    async with again.working():
        back = list(again.sessions.live.values())
        for live in back:
            again.stream(live, lambda s: 20e6, drop_rate=0.006)
        await again.pass_s(1)
        assert sorted(live.lane for live in back) == sorted(live.lane for live in lives)
        assert [live.state for live in back] == [SessionState.SERVED] * len(lives)
        assert again.sessions.planning.figures.removals == 0
