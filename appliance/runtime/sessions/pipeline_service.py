"""Sessions whose frames go through a pipeline: clients of it, which are let in and planned with as all of its clients.

The pipeline's own planning chooses variants and says what a frame takes in the box; what is left of the promise is the
way's, and decides how large the pictures are that a device sends.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from appliance.clock import NS_PER_S, Clock, others_first
from appliance.domain.errors import ApplianceError, BadInput, FrameDropped, PipelineNotPossible, UnknownPipeline
from appliance.domain.session import (
    Cause,
    DropCause,
    FrameEnd,
    LatencyPromise,
    Offer,
    Promise,
    PromiseKind,
    Session,
    SessionPlan,
)
from appliance.domain.slots import NO_SLOT, Slot
from appliance.domain.states import SessionState
from appliance.policies.sending.pictures import rungs
from appliance.policies.sending.sender import BUSY_MAX
from appliance.runtime.ports import PipelineFrame, PipelineStanding, StreamedPipelines
from appliance.runtime.sessions.adapting import VALID_NS, interval_of, rate_of, way_ms
from appliance.runtime.sessions.context import AT_ONCE, Figures
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offers import MARGIN, RATE_RPS_MIN, SLO_MS_MAX
from appliance.runtime.sessions.pools import holds, waiting
from appliance.runtime.sessions.sent import QUALITY
from appliance.runtime.sessions.verdict import Verdict
from appliance.tasks.base import Media

TRY_NS = NS_PER_S
"""Who waits for a pipeline is tried so often, one after another: each try plans it, and all beside it where it does not
fit."""
LATE_NS = 2 * NS_PER_S
"""A session whose frames could not be in time for so long is removed: links are slow for a moment now and then."""
WITHIN_MS_MIN = 1.0
WAY_SHARE = 1 / 3
"""Of what is left beside the way of the smallest message, that is for the picture, before plans have the rest: with
less, pictures are small, and with more, plans dear."""
TIME, MEMORY = "time", "memory"
"""What a pipeline's admission misses where no plan is quick enough; where memory has no room for its variants."""
CUT_SIDE = 1920
"""Longer side of the pictures that a pipeline is sent which cuts from them, where the link carries as much."""


class PipelineService:
    """Implements `Service`. Event-loop thread only."""

    def __init__(
        self, *, clock: Clock, pipelines: StreamedPipelines, free_workers: Callable[[], int], figures: Figures
    ) -> None:
        self._clock = clock
        self._pipelines = pipelines
        self._free_workers = free_workers
        self._figures = figures
        self._live: dict[str, LiveSession] = {}
        """Those that have not ended, by id."""
        self._locks: dict[str, asyncio.Lock] = {}
        """Session → for who changes what it has of its pipeline."""
        self._tried_ns: dict[str, int] = {}
        """Pipeline → when one that waits was tried last."""
        self._late_ns: dict[str, int] = {}
        """Session → since when its frames cannot be in time."""
        self.replan = asyncio.Event()
        """Somebody is to be looked at before it is time."""

    # -- port Service: which there are ---------------------------------------------------------------------------------

    def require(self, session: Session) -> None:
        self._pipelines.require(session.pipeline_id)

    def gone(self, live: LiveSession) -> str:
        try:
            self._pipelines.require(live.session.pipeline_id)
        except UnknownPipeline:
            return "its pipeline is gone"
        return ""

    def check(self, draft: LiveSession) -> None:
        promise = draft.promise
        if not isinstance(promise, LatencyPromise):
            raise BadInput(reason="promise.kind: of a pipeline there is a promise of latency only")
        if promise.accuracy_min is not None:
            raise BadInput(reason="promise.accuracy_min: the stages of a pipeline have their own")

    def put(self, live: LiveSession) -> None:
        """One that comes with its capacity kept, after a restart, is planned with from now on."""
        if live.id in self._live:
            return
        self._live[live.id], self._locks[live.id] = live, asyncio.Lock()
        if holds(live, self._clock.now_ns()):
            standing = self._pipelines.standing(live.session.pipeline_id, live.id)
            within_ms = max(_within_ms(live, standing), default=WITHIN_MS_MIN)
            self._pipelines.keep(live.session.pipeline_id, live.id, rate_of(live), within_ms)
        self.replan.set()

    def take(self, live: LiveSession) -> None:
        self._leave(live)
        for known in (self._live, self._locks, self._late_ns):
            known.pop(live.id, None)

    # -- promises ------------------------------------------------------------------------------------------------------

    async def join(self, live: LiveSession) -> Verdict:
        lock = self._locks.get(live.id)
        if lock is None:
            return _ended()
        async with lock:
            found = await self._admitted(live)
            if live.id not in self._live:  # it has ended meanwhile
                self._leave(live)
                return _ended()
            if live.state is SessionState.WAITING and found.fits:
                self._serve(live)
            elif live.state is not SessionState.SERVED:
                self._leave(live)
            return found

    @asynccontextmanager
    async def alone(self, live: LiveSession, *others: PromiseKind) -> AsyncIterator[None]:
        async with self._locks.get(live.id) or asyncio.Lock():  # nobody else has that of one that has ended
            yield

    async def changed(self, live: LiveSession, draft: LiveSession) -> Verdict:
        """Where it fits, the pipeline counts on the new rate at once; where not, on the old one as before."""
        pipeline_id, before = live.session.pipeline_id, self._rate(live)
        if before is None:  # it waits, and is tried with what it asks for now
            live.patience.asks_anew()
            return Verdict(True)
        standing = self._pipelines.standing(pipeline_id, live.id)
        refused: PipelineNotPossible | None = None
        for within_ms in _within_ms(draft, standing):
            try:
                await self._pipelines.change(pipeline_id, live.id, rate_of(draft), within_ms)
            except PipelineNotPossible as error:
                refused = error
                if TIME not in error.missing:
                    return _refused(draft, error, before)
            else:
                return Verdict(True)
        if refused is not None and self._is_in_time(draft, standing, is_cautious=True):
            return _refused(draft, refused, before)
        return self._too_late(draft, standing)

    def give_back(self, live: LiveSession, promise: Promise) -> None:
        """Not what the new promise has already."""
        assert isinstance(promise, LatencyPromise)
        if self._rate(live) != min(promise.rate_rps, live.session.fps):
            self._leave(live)
            live.holds_until_ns = 0  # of one that is suspended: nothing is kept for it

    async def offers(self, asked: Promise, found: Verdict, draft: Callable[[Promise], LiveSession]) -> list[Offer]:
        return list(found.offers)

    # -- its turn ------------------------------------------------------------------------------------------------------

    async def look_after(self) -> None:
        """What each is told anew, who is removed, and who is let in; of each pipeline one at a time."""
        now_ns = self._clock.now_ns()
        for at, live in enumerate(list(self._live.values()), 1):
            if at % AT_ONCE == 0:
                await others_first()
            if live.state is SessionState.SERVED:
                self._go_on(live, now_ns)
            elif not holds(live, now_ns) and not self._is_asked_for(live):
                self._leave(live)
        self._tried_ns = {id: at for id, at in self._tried_ns.items() if now_ns - at < TRY_NS}
        ids = {live.session.pipeline_id for live in self._live.values()} - self._tried_ns.keys()
        for id in sorted(ids):
            members = [one for one in self._live.values() if one.session.pipeline_id == id]
            tried = next(iter(waiting(members, now_ns)), None)
            if tried is not None and not self._is_asked_for(tried):
                self._tried_ns[id] = now_ns
                await self._try(tried)

    async def _try(self, live: LiveSession) -> None:
        try:
            found = await self.join(live)
        except ApplianceError as error:  # its pipeline has gone, or too many wait
            live.tries += 1
            live.reason = str(error)
            return
        if not found.fits and live.state is SessionState.WAITING:
            live.tries += 1
            live.reason = found.told

    def _go_on(self, live: LiveSession, now_ns: int) -> None:
        """A session that is served goes on, unless its pipeline does not count on it, or its frames are late."""
        try:
            standing = self._pipelines.standing(live.session.pipeline_id, live.id)
        except UnknownPipeline:  # it ends with its pipeline
            return
        if self._is_asked_for(live):
            return
        if not standing.is_served:
            self._remove(live, Cause.PROCESSOR, standing.reason)
            return
        if self._is_in_time(live, standing, is_cautious=False):
            self._late_ns.pop(live.id, None)
        elif now_ns - self._late_ns.setdefault(live.id, now_ns) >= LATE_NS:
            verdict = self._too_late(live, standing)
            self._remove(live, verdict.cause or Cause.LINK, verdict.reason)
            return
        plan = self._plan(live, standing)
        live.take(plan, _replaced(live.plan, plan))

    def _remove(self, live: LiveSession, cause: Cause, reason: str) -> None:
        self._figures.removals += 1
        live.patience.removed(self._clock.now_ns())
        self._leave(live)
        live.become(SessionState.WAITING, f"{cause.value}: {reason}", is_broken=True)
        self._tried_ns[live.session.pipeline_id] = self._clock.now_ns()

    # -- frames --------------------------------------------------------------------------------------------------------

    async def predict(self, live: LiveSession, frame: Frame, media: Media, request_id: str) -> bytes:
        session, asked = live.session, live.call_of(frame)
        answer = await self._pipelines.predict(
            session.pipeline_id,
            media,
            PipelineFrame(
                session.tenant,
                live.id,
                frame.number,
                request_id,
                asked.arrival_ns,
                asked.deadline_ns,
                asked.is_planned,
            ),
        )
        if answer.end is FrameEnd.DROPPED:
            cause = DropCause.NOT_SERVED if frame.is_planned else DropCause.OVER_RATE
            raise FrameDropped(frame=frame.number, cause=cause.value)
        frame.at_best = answer.end
        return answer.body

    def slot(self, live: LiveSession, frame: Frame) -> Slot:
        return NO_SLOT

    def has_room(self, live: LiveSession) -> bool:
        return self._free_workers() > 0

    def received(self, live: LiveSession) -> None:
        pass

    def ended(self, live: LiveSession, frame: Frame, result: FrameResult) -> None:
        pass

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _admitted(self, live: LiveSession) -> Verdict:
        """Let in as a client of its pipeline, whose plan leaves time for the way."""
        pipeline_id, rate = live.session.pipeline_id, rate_of(live)
        standing = self._pipelines.standing(pipeline_id, live.id)
        if self._rate(live) == rate:  # its capacity was kept
            return self._stays(live, standing)
        self._leave(live)
        found = Verdict(False)
        for within_ms in (*_within_ms(live, standing), None):  # None: what could be promised instead
            try:
                await self._pipelines.join(pipeline_id, live.id, rate, within_ms)
            except PipelineNotPossible as refused:
                found = _refused(live, refused)
                if TIME not in refused.missing:
                    return found
            else:
                return self._stays(live, self._pipelines.standing(pipeline_id, live.id))
        live.patience.tried_in_vain(self._clock.now_ns())
        return found

    def _stays(self, live: LiveSession, standing: PipelineStanding) -> Verdict:
        """A client of its pipeline, unless its plan leaves no time for the way."""
        if self._is_in_time(live, standing, is_cautious=True):
            return Verdict(True)
        self._leave(live)
        found = self._too_late(live, standing)
        if found.cause is Cause.PROCESSOR:  # the plan alone takes too long, and each try plans several times
            live.patience.tried_in_vain(self._clock.now_ns())
        return found

    def _serve(self, live: LiveSession) -> None:
        self._figures.admissions += 1
        self._late_ns.pop(live.id, None)
        live.become(SessionState.SERVED)
        live.take(self._plan(live, self._pipelines.standing(live.session.pipeline_id, live.id)))

    def _plan(self, live: LiveSession, standing: PipelineStanding) -> SessionPlan:
        now_ns = self._clock.now_ns()
        live.expected_run_ms = standing.first_ms
        size, quality = self._picture(live, standing)
        return SessionPlan(
            number=live.next_number(),
            variant="",
            size=size,
            quality=quality,
            interval=interval_of(live),
            frames=(),
            wait_ms=live.next_due(now_ns)[1],
            valid_until_ns=now_ns + VALID_NS,
            stages=standing.stages,
        )

    def _picture(self, live: LiveSession, standing: PipelineStanding) -> tuple[int | None, int]:
        """Size and quality of the pictures to send: the largest that are in time, and leave the link free for a part of
        the time."""
        most_ms = BUSY_MAX * 1000.0 * interval_of(live) / live.session.fps
        left_ms = _slo_ms(live) - way_ms(live) - (standing.latency_ms or 0.0)
        pictures = _pictures(standing)
        fitting = (one for one in pictures if live.link.margin * _on_way_ms(live, one) <= min(most_ms, left_ms))
        return next(fitting, pictures[-1])

    def _is_in_time(self, live: LiveSession, standing: PipelineStanding, *, is_cautious: bool) -> bool:
        """Whether the smallest of its pictures are, on the link as it is; cautious: though that is as much slower as
        devices allow for."""
        return _least_ms(live, standing, live.link.margin if is_cautious else 1.0) <= _slo_ms(live)

    def _too_late(self, live: LiveSession, standing: PipelineStanding) -> Verdict:
        """What keeps it from being in time, the box or the way; with the SLO that could be kept."""
        promise, takes_ms = live.promise, standing.latency_ms or 0.0
        assert isinstance(promise, LatencyPromise)
        least_ms = _least_ms(live, standing, live.link.margin)
        slo_ms = math.ceil(MARGIN * least_ms)
        offered = (Offer(replace(promise, slo_ms=float(slo_ms))),) if slo_ms <= SLO_MS_MAX else ()
        cause = Cause.LINK if takes_ms <= promise.slo_ms else Cause.PROCESSOR
        reason = f"a frame takes {takes_ms:.0f} ms in the box, and {least_ms - takes_ms:.0f} ms on its way"
        return Verdict(False, cause, reason, offers=offered)

    def _rate(self, live: LiveSession) -> float | None:
        return self._pipelines.rate_of(live.session.pipeline_id, live.id)

    def _leave(self, live: LiveSession) -> None:
        self._pipelines.leave(live.session.pipeline_id, live.id)

    def _is_asked_for(self, live: LiveSession) -> bool:
        """Its promise is being made, or changed, now."""
        lock = self._locks.get(live.id)
        return lock is not None and lock.locked()


def _slo_ms(live: LiveSession) -> float:
    assert isinstance(live.promise, LatencyPromise)
    return live.promise.slo_ms


def _pictures(standing: PipelineStanding) -> list[tuple[int | None, int]]:
    """(Longer side, quality) of those that a pipeline may be sent, from the largest down."""
    largest = CUT_SIDE if standing.is_cut else standing.size
    return [(None, QUALITY)] if largest is None else list(rungs(largest, QUALITY))


def _on_way_ms(live: LiveSession, picture: tuple[int | None, int]) -> float:
    """What a picture takes on its way beside `way_ms`, by what those of the session have taken."""
    return live.link.transfer_ms(live.sent.expected_bytes(*picture)) - live.link.fixed_ms


def _least_ms(live: LiveSession, standing: PipelineStanding, margin: float) -> float:
    """From a capture to the answer at the device, by the plan at worst, with the smallest picture."""
    return (standing.latency_ms or 0.0) + way_ms(live) + margin * _least_on_way_ms(live, standing)


def _least_on_way_ms(live: LiveSession, standing: PipelineStanding) -> float:
    """Of the smallest picture, as `_on_way_ms`."""
    return _on_way_ms(live, _pictures(standing)[-1])


def _within_ms(live: LiveSession, standing: PipelineStanding) -> list[float]:
    """What a frame may take in the box: first with pictures of a fair size, then with the smallest; none where the way
    takes all.
    """
    left_ms, least_ms = _slo_ms(live) - way_ms(live), live.link.margin * _least_on_way_ms(live, standing)
    times = {left_ms - max(least_ms, WAY_SHARE * left_ms), left_ms - least_ms}
    return sorted(one for one in times if one >= WITHIN_MS_MIN)


def _refused(live: LiveSession, refused: PipelineNotPossible, before_fps: float = 0.0) -> Verdict:
    """As the pipeline's admission says it; with the rate for which there would be room."""
    promise = live.promise
    assert isinstance(promise, LatencyPromise)
    rate_rps = math.floor((before_fps + refused.fps_possible) * 100.0) / 100.0
    is_some = refused.fps_possible > 0.0 and rate_rps >= RATE_RPS_MIN
    offered = (Offer(replace(promise, rate_rps=rate_rps)),) if is_some else ()
    lacks = f"{', '.join(refused.missing)}: " if refused.missing else ""
    cause = Cause.MEMORY if MEMORY in refused.missing else Cause.PROCESSOR
    return Verdict(False, cause, f"{lacks}{refused.reason}", offers=offered)


def _replaced(before: SessionPlan | None, plan: SessionPlan) -> str:
    """Which stages have another variant than before, for a person."""
    known = {} if before is None else {one.stage: one.variant for one in before.stages}
    found = [(one, known[one.stage]) for one in plan.stages if known.get(one.stage, one.variant) != one.variant]
    return "; ".join(f"{one.stage}: {one.variant or 'none'} in place of {was or 'none'}" for one, was in found)


def _ended() -> Verdict:
    return Verdict(False, Cause.PROCESSOR, "it has ended")
