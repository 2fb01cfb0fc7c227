"""Sessions that name a pipeline: devices on emulated links, the engine and both planners, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from appliance.api.streams.words import notice_of
from appliance.clock import NS_PER_MS
from appliance.domain.errors import BadInput, FrameDropped, PromiseNotPossible, UnknownClient, UnknownPipeline
from appliance.domain.session import (
    AccuracyPromise,
    Cause,
    DropCause,
    FrameEnd,
    FrameHead,
    LatencyPromise,
    NoticeKind,
    StageVariant,
)
from appliance.domain.states import SessionState
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.streaming import PipelineStreams
from appliance.runtime.sessions.frame import FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.pipelines.whole import WholeBox
from tests.runtime.sessions.fleet import Device, Fleet, promise_of, steady

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

FIND = {"fine": Cost(run_ms=20), "coarse": Cost(run_ms=10)}
READ = {"fine": Cost(run_ms=8), "coarse": Cost(run_ms=4)}
FIND_TOGETHER = {"fine": Cost(run_ms=20, run_ms_by_batch={2: 21, 4: 22, 8: 24})}
"""Batches cost next to nothing more: a plan has frames wait for company for as long as it may."""
PROMISE = LatencyPromise(400.0, 15.0)


def state_of(live: LiveSession) -> SessionState:
    """As it is now: it may have become another one since the last time."""
    return live.state


class Both:
    """A box with a pipeline, and devices."""

    def __init__(self, objects: int = 2, slo_ms: float = 300.0, workers: int = 2, find: dict[str, Cost] = FIND) -> None:
        self.whole = WholeBox(find, READ, workers=workers)
        self.whole.objects = objects
        self.signs: LivePipeline = self.whole.add(slo_ms=slo_ms)
        streams = PipelineStreams(self.whole.pipelines, self.whole.box.core.catalogue)
        self.fleet = Fleet(bench=self.whole.box, pipelines=streams)

    @property
    def clients(self) -> dict[str, float]:
        """Of the pipeline, with their frames a second."""
        return {one.id: one.fps for one in self.whole.pipelines.get("t/signs").clients}

    def accuracy(self, application: str, variant: str) -> float:
        """Points."""
        return self.whole.box.catalogue.entry(f"t/{application}").servables[variant].accuracy

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self.whole.working(), self.fleet.planned():
            yield

    async def join(self, promise: LatencyPromise = PROMISE, **more: float) -> LiveSession:
        return await self.fleet.join_pipeline(self.signs.pipeline, promise, **more)  # type: ignore[arg-type]

    async def refused(self, promise: LatencyPromise = PROMISE, **more: float) -> PromiseNotPossible:
        with pytest.raises(PromiseNotPossible) as caught:
            await self.join(promise, **more)
        return caught.value

    async def change_refused(self, live: LiveSession, promise: LatencyPromise) -> PromiseNotPossible:
        """The session keeps the promise that it has."""
        before = live.promise
        with pytest.raises(PromiseNotPossible) as caught:
            await self.fleet.sessions.change(live, promise=promise)
        assert live.promise == before
        return caught.value

    async def cameras(self, count: int, promise: LatencyPromise, every_s: float = 0.0) -> list[Device]:
        """Sessions whose devices send."""
        devices = []
        for _ in range(count):
            devices.append(self.fleet.stream(await self.join(promise), steady(20)))
            await self.fleet.pass_s(every_s)
        return devices

    async def fill(self, promise: LatencyPromise = PROMISE, every_s: float = 0.0) -> PromiseNotPossible:
        """Sessions whose devices send, as many as are let in; returns the refusal of the one after them."""
        try:
            await self.cameras(20, promise, every_s)
        except PromiseNotPossible as refusal:
            return refusal
        raise AssertionError("no session was refused")

    async def frame(self, live: LiveSession, number: int, age_ms: float = 5.0) -> FrameResult:
        """One frame, captured so long ago, from its head to its end."""
        now_ns = self.fleet.clock.now_ns()
        head = FrameHead(number, now_ns, now_ns - int(age_ms * NS_PER_MS), None, 10)
        frame = self.fleet.sessions.frame_begins(live, head)
        frame.received(b"0123456789")
        return await frame.answer(Media(b"0123456789"), f"r{number}")


@asynccontextmanager
async def box_with_pipeline(**more: Any) -> AsyncIterator[Both]:
    """At work."""
    both = Both(**more)
    async with both.working():
        yield both


@pytest.mark.nightly("a long story of many plans")
@story
async def test_pipeline_sessions_keep_every_promise_window() -> None:
    """Three cameras are clients with what they send; every window is kept, every frame is counted once, on both sides;
    when they leave nothing is planned for them."""
    async with box_with_pipeline() as both:
        lives = [device.live for device in await both.cameras(3, LatencyPromise(400.0, 7.5))]
        await both.fleet.pass_s(31)
        assert both.clients == {live.id: 7.5 for live in lives}
        for live in lives:
            counts = live.counts
            assert counts.sent > 200
            assert counts.answered >= 0.99 * (counts.sent - counts.under_way), counts
            assert live.windows == live.kept == 3
            assert (present(live.plan).variant, present(live.plan).interval) == ("", 2)
            assert 96 < (present(live.plan).size or 0) <= 1920
        frames = both.signs.frames
        assert frames.joined == frames.sent
        assert frames.in_time == sum(live.counts.answered for live in lives)
        for live in lives:
            await both.fleet.sessions.end(live)
        assert both.clients == {}


@story
async def test_refused_pipeline_session_gets_offers_that_are_kept() -> None:
    """Cameras join until one is refused, with the rate that the pipeline's admission says would be possible: that
    offer is good; so is the SLO that is offered to a device behind a slow link."""
    async with box_with_pipeline(workers=1, objects=4) as both:
        slow = await both.refused(LatencyPromise(150.0, 2.0), mbps=0.5)
        assert slow.cause == Cause.LINK
        (offer,) = slow.offers
        live = await both.join(latency_promise_of(offer), mbps=0.5)
        assert live.state is SessionState.SERVED
        await both.fleet.sessions.end(live)

        refused = await both.fill(every_s=1)
        assert refused.cause == Cause.PROCESSOR
        assert "processor cpu" in refused.reason
        (offer,) = refused.offers
        promise = latency_promise_of(offer)
        assert 0.0 < promise.rate_rps < 15.0
        assert (await both.join(promise)).state is SessionState.SERVED
        await both.fleet.pass_s(12)
        assert all(device.live.windows == device.live.kept for device in both.fleet.devices)


def latency_promise_of(offer: Mapping[str, object]) -> LatencyPromise:
    promise = promise_of(offer)
    assert isinstance(promise, LatencyPromise)
    return promise


@story
async def test_waiting_pipeline_session_is_let_in_when_there_is_room() -> None:
    """With `wait` the session is no client until another leaves, and its device is told."""
    async with box_with_pipeline(workers=1, objects=4) as both:
        await both.fill()
        waits = await both.fleet.join_pipeline(both.signs.pipeline, PROMISE, wait=True)
        device = both.fleet.stream(waits, steady(20))
        await both.fleet.pass_s(3)
        assert state_of(waits) is SessionState.WAITING
        assert "processor" in waits.reason
        assert waits.id not in both.clients
        await both.fleet.sessions.end(both.fleet.devices[0].live)
        await both.fleet.pass_s(3)
        assert state_of(waits) is SessionState.SERVED
        assert device.told[NoticeKind.SERVED] == 1
        assert waits.id in both.clients


@story
async def test_pipeline_session_that_cannot_be_served_is_tried_ever_less_often() -> None:
    """A session whose promise is shorter than what the plan takes waits, and rests ever longer between two tries, each
    of which plans twice; with another promise it is tried at once.
    """
    async with box_with_pipeline() as both:
        waits = await both.fleet.join_pipeline(both.signs.pipeline, LatencyPromise(20.0, 1.0), wait=True)
        both.fleet.stream(waits, steady(20))
        await both.fleet.pass_s(60)
        assert state_of(waits) is SessionState.WAITING
        assert "ms in the box" in waits.reason
        assert 5 <= waits.tries <= 12
        await both.fleet.sessions.change(waits, promise=LatencyPromise(400.0, 1.0))
        await both.fleet.pass_s(2)
        assert state_of(waits) is SessionState.SERVED


@story
async def test_pipeline_session_without_link_stays_client_for_two_seconds() -> None:
    """After that the session is no client, and is let in again when its device comes back."""
    async with box_with_pipeline() as both:
        (device,) = await both.cameras(1, PROMISE, every_s=2)
        live = device.live
        both.fleet.disconnect(device)
        await both.fleet.pass_s(1.5)
        assert state_of(live) is SessionState.SUSPENDED
        assert live.id in both.clients
        back = both.fleet.stream(live, steady(20), from_frame=100)
        await both.fleet.pass_s(0.5)
        assert state_of(live) is SessionState.SERVED
        both.fleet.disconnect(back)
        await both.fleet.pass_s(4)
        assert live.id not in both.clients
        both.fleet.stream(live, steady(20), from_frame=300)
        await both.fleet.pass_s(2)
        assert state_of(live) is SessionState.SERVED
        assert live.id in both.clients


@story
async def test_pipeline_session_stays_client_over_restart() -> None:
    """The stored session is planned with again at once, without asking, and served with its first frame."""
    both = Both()
    async with both.working():
        live = await both.join()
        stored = live.session
        again = Both()
        again.fleet.sessions.restore([stored])
        assert again.clients == {stored.id: 15.0}
        both.whole.pipelines.remove("t/signs")
        both.fleet.sessions.restore([])
    async with again.working():
        await again.fleet.pass_s(1)
        back = again.fleet.sessions.live[stored.id]
        assert (await again.frame(back, 3)).end is FrameEnd.ANSWERED
        assert back.state is SessionState.SERVED


@story
async def test_pipeline_session_keeps_old_promise_where_new_promise_is_refused() -> None:
    """More frames are let in as one more client's would be; where they are not, the old promise stays."""
    async with box_with_pipeline(workers=1, objects=4) as both:
        live = await both.join(LatencyPromise(400.0, 5.0))
        await both.fleet.sessions.change(live, promise=LatencyPromise(400.0, 10.0))
        assert both.clients == {live.id: 10.0}
        assert live.state is SessionState.SERVED
        await both.fill(LatencyPromise(400.0, 5.0))
        await both.change_refused(live, LatencyPromise(400.0, 15.0))
        assert (await both.change_refused(live, LatencyPromise(20.0, 10.0))).cause == Cause.PROCESSOR
        with pytest.raises(BadInput, match="kind"):
            await both.fleet.sessions.change(live, promise=AccuracyPromise(0.1))
        assert (both.clients[live.id], live.promise) == (10.0, LatencyPromise(400.0, 10.0))
        assert live.state is SessionState.SERVED
        await both.fleet.sessions.change(live, promise=LatencyPromise(500.0, 5.0))
        assert both.clients[live.id] == 5.0
        await both.fleet.sessions.change(live, is_paused=True)
        await both.fleet.pass_s(1)
        assert live.id not in both.clients
        await both.fleet.sessions.change(live, is_paused=False)
        assert both.clients[live.id] == 5.0


@pytest.mark.nightly("a long story of many plans")
@story
async def test_newest_pipeline_session_is_removed_when_load_grows() -> None:
    """Frames show more and more: the newest session goes, its device is told why, and the others are in time."""
    async with box_with_pipeline(workers=1, objects=0) as both:
        devices = await both.cameras(3, LatencyPromise(400.0, 7.5), every_s=3)
        assert set(both.fleet.states) == {SessionState.SERVED}
        both.whole.objects = 16
        await both.fleet.pass_s(15)
        removed = [device for device in devices if device.told[NoticeKind.REMOVED]]
        assert removed
        assert devices[0] not in removed
        assert "processor" in removed[-1].live.reason
        assert devices[0].live.counts.answered > 100


@story
async def test_pipeline_session_is_told_of_other_variant_at_stage() -> None:
    """Frames show more, and cheaper variants serve: the device is told which, at which stage, and how accurate they
    are; while these stay, nothing."""
    async with box_with_pipeline(workers=1, objects=2) as both:
        (device,) = await both.cameras(1, LatencyPromise(400.0, 15.0), every_s=3)
        assert device.notices
        assert device.news == []
        assert [(one.stage, one.variant) for one in present(device.live.plan).stages] == [
            ("find", "fine"),
            ("read", "fine"),
        ]
        both.whole.objects = 8
        await both.fleet.pass_s(5)
        changes = [notice for notice in device.notices if notice.kind is NoticeKind.VARIANT]
        assert changes
        told, plan = changes[-1], changes[-1].plan
        assert plan is not None
        assert "read: coarse in place of fine" in changes[0].reason
        fine, coarse = (both.accuracy("read", name) for name in ("fine", "coarse"))
        assert fine > coarse
        assert StageVariant("read", "coarse", coarse) in plan.stages
        notice = notice_of(told)
        assert (notice.variant, notice.accuracy) == ("", None)
        assert notice.stages is not None
        assert ("read", "coarse", coarse / 100.0) in [(one.stage, one.variant, one.accuracy) for one in notice.stages]
        await both.fleet.pass_s(5)
        assert device.told[NoticeKind.VARIANT] == len(changes)


@story
async def test_pipeline_frames_count_as_answered_late_or_dropped() -> None:
    """A frame is late of which a part is missing, or that is answered after its deadline; one beyond the rate runs
    where a processor is free; a hopeless one is not read; a repeat gets the same answer.
    """
    async with box_with_pipeline(workers=1) as both:
        live = await both.join(LatencyPromise(200.0, 2.0))
        whole = await both.frame(live, 0)
        assert whole.end is FrameEnd.ANSWERED
        assert b'"in_time":true' in (whole.body or b"")
        assert (await both.frame(live, 0)).body == whole.body
        both.whole.objects = 30
        part = await both.frame(live, 1)
        assert part.end is FrameEnd.LATE
        assert b'"dropped"' in (part.body or b"")
        await both.fleet.pass_s(3)
        both.whole.objects = 2
        results = await asyncio.gather(*(both.frame(live, number) for number in (4, 5)))
        assert [result.end for result in results] == [FrameEnd.ANSWERED] * 2
        await both.fleet.pass_s(2)
        with pytest.raises(FrameDropped, match="hopeless"):
            await both.frame(live, 8, age_ms=190)
        assert live.counts.drops == {DropCause.HOPELESS: 1}
        assert live.counts.sent == 5


@story
async def test_pipeline_client_of_session_cannot_be_used_or_ended_by_others() -> None:
    """A session ends with its pipeline."""
    async with box_with_pipeline() as both:
        live = await both.join()
        assert not both.signs.clients.takes(live.id)
        with pytest.raises(UnknownClient):
            both.whole.pipelines.leave("t/signs", live.id)
        with both.fleet.sessions.attached(live):
            await both.fleet.pass_s(15)  # silent for longer than a client may be
            assert live.id in both.clients
        both.whole.pipelines.remove("t/signs")
        await both.fleet.pass_s(1)
        assert live.state is SessionState.ENDED
        assert "pipeline" in live.reason
        with pytest.raises(UnknownPipeline):
            await both.join()


@story
async def test_pipeline_plan_keeps_shorter_promise_of_session() -> None:
    """Though the pipeline itself may take ten times as long, and would wait for larger batches: a shorter promise is
    served by a plan that keeps it, for as long as the session is there.
    """
    async with box_with_pipeline(slo_ms=5000.0, find=FIND_TOGETHER) as both:
        (device,) = await both.cameras(1, LatencyPromise(400.0, 5.0), every_s=40)
        live, plan = device.live, both.signs.plan
        assert (live.state, live.tries) == (SessionState.SERVED, 0)
        assert plan is not None
        assert (plan.latency_ms or 0.0) < 400.0
        counts = live.counts
        assert counts.answered >= 0.99 * (counts.sent - counts.under_way), counts
        assert live.windows == live.kept
        await both.fleet.sessions.end(live)
        client = await both.whole.pipelines.join(both.signs.pipeline.id, 5.0, "t")
        assert client.within_ms is None


@story
async def test_shorter_promise_of_session_replans_pipeline() -> None:
    """The first promise stays where the shorter one cannot be kept, and an SLO is offered that can."""
    async with box_with_pipeline(slo_ms=5000.0) as both:
        live = await both.join(LatencyPromise(3000.0, 5.0))
        await both.fleet.sessions.change(live, promise=LatencyPromise(500.0, 5.0))
        assert live.state is SessionState.SERVED
        assert (present(both.signs.plan).latency_ms or 0.0) < 500.0
        (offer,) = (await both.change_refused(live, LatencyPromise(25.0, 5.0))).offers
        assert live.promise == LatencyPromise(500.0, 5.0)
        await both.fleet.sessions.change(live, promise=promise_of(offer))
        assert live.state is SessionState.SERVED


@story
async def test_promises_of_applications_and_pipelines_share_memory() -> None:
    """The pipeline's networks and the application's do not fit together: who comes second is refused for memory."""
    async with box_with_pipeline(find={"fine": Cost(run_ms=20, resident_bytes=600)}) as both:
        gate, promise = both.fleet.add({64: Cost(run_ms=5, resident_bytes=500)}), LatencyPromise(400.0, 5.0)
        first = await both.join()
        refused = await both.fleet.refused(gate, promise, mbps=100)
        assert (refused.cause, state_of(first)) == (Cause.MEMORY, SessionState.SERVED)
        await both.fleet.sessions.end(first)
        second = await both.fleet.join(gate, promise, mbps=100)
        assert ((await both.refused()).cause, state_of(second)) == (Cause.MEMORY, SessionState.SERVED)
        await both.fleet.sessions.end(second)
        assert state_of(await both.join()) is SessionState.SERVED
