"""The registry of sessions: what the API asks, and the loops that plan.

Sessions are stored when they begin, change and end, never for a frame. After a restart they are there again, suspended,
with their capacity kept for a while, and served with the first frame or stream that comes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from appliance.clock import NS_PER_MS, NS_PER_S, Clock, others_first
from appliance.domain.accuracy import share
from appliance.domain.errors import (
    ApplianceError,
    FrameDropped,
    PromiseNotPossible,
    TooManySessions,
    Unavailable,
    UnknownSession,
)
from appliance.domain.events import EventSink
from appliance.domain.session import (
    AccuracyPromise,
    Cause,
    DeviceReport,
    FrameHead,
    LatencyPromise,
    Promise,
    Session,
)
from appliance.domain.states import SessionState
from appliance.log import get as get_log
from appliance.runtime.decisions.sessions import frame_drop
from appliance.runtime.ports import DecisionSink
from appliance.runtime.sessions.application_service import ApplicationService
from appliance.runtime.sessions.context import AT_ONCE
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.link import LinkEstimate
from appliance.runtime.sessions.live import LiveSession, Notices
from appliance.runtime.sessions.pipeline_service import PipelineService
from appliance.runtime.sessions.service import Service
from appliance.runtime.sessions.verdict import Verdict

SERVE_NS = 500 * NS_PER_MS
"""Between two plans of the sessions with promises of latency (JF-17)."""
SERVE_APART_NS = 50 * NS_PER_MS
"""At least so much between two, whatever happens, ..."""
SERVE_APART = 4
"""... and so many times what the last one took, but never more than there is between two when nothing happens."""
OFFLOAD_NS = 200 * NS_PER_MS
"""Between two plans of those with promises of accuracy (AR-07)."""
HOLD_NS = 2 * NS_PER_S
"""So long the capacity of a session without a link is kept."""
RESTORED_HOLD_NS = 10 * NS_PER_S
"""The same after a restart of the box: devices take a moment to notice."""
SILENT_NS = 10 * NS_PER_S
"""A session that only posts has no link when nothing has come for so long."""
PAUSED_NS = 24 * 3600 * NS_PER_S
"""A paused session of which nothing was heard for so long ends."""
ENDED_NS = 60 * NS_PER_S
"""So long an ended session shows its final counts."""

log = get_log("sessions")


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """What a device asks for. The application, or the pipeline, was resolved, and may be called by the key."""

    tenant: str
    key_id: str
    application_id: str
    """Empty: its frames go through a pipeline."""
    fps: float
    promise: Promise
    name: str = ""
    weight: float = 1.0
    wait: bool = False
    rtt_ms: float | None = None
    uplink_bps: float | None = None
    """As the device knows its link; a prior, which frames correct."""
    pipeline_id: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on sessions."""

    per_tenant_max: int = 256
    all_max: int = 1024
    credit: int = 2
    """Frames of a session that may be on their way without acknowledgement."""
    idle_ns: int = 60 * NS_PER_S
    """A session of which nothing was heard for so long ends."""
    pools_max: int = 32
    """In so many ways the sessions of a tenant may differ: by application, kind of promise, least accuracy and, where
    accuracy is promised, frame rate. Each is planned by itself."""


class SessionStore(Protocol):
    """Where sessions are kept over restarts; the store of the box."""

    async def put(self, session: Session) -> None:
        """Add or replace. Raises: StorageFull ..."""
        ...

    async def remove(self, id: str) -> None:
        """It has ended."""
        ...


class Sessions:
    """All sessions of the box. Event-loop thread only; `run` is its background task."""

    def __init__(
        self,
        *,
        clock: Clock,
        applications: ApplicationService,
        pipelines: PipelineService,
        observe: Callable[[int], None],
        events: EventSink,
        decisions: DecisionSink,
        new_id: Callable[[], str],
        limits: Limits,
    ) -> None:
        """`observe`: is told the time, twice a second, and looks at what runs nobody has planned."""
        self._clock = clock
        self.applications, self.pipelines = applications, pipelines
        self.planning = applications.planning
        self._observe = observe
        self._events = events
        self._decisions = decisions
        self._new_id = new_id
        self._limits = limits
        self._store: SessionStore | None = None
        self._not_restored: list[str] = []
        """Stored, and not taken back: to be removed."""
        self.live: dict[str, LiveSession] = {}
        """Those that have not ended, by id."""
        self._ended: dict[str, LiveSession] = {}
        self.totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        """Tenant → frames of all its sessions by how they ended."""
        self._some = asyncio.Event()
        """There is a session."""

    # -- joining, changing, ending -------------------------------------------------------------------------------------

    async def join(self, order: JoinOrder) -> LiveSession:
        """A new session: served, or waiting where the order says so.

        Raises: PromiseNotPossible with the cause and offers, TooManySessions, ModelUnavailable, StorageFull.
        """
        self._check_room(order.tenant)
        session = Session(
            id=self._new_id(),
            tenant=order.tenant,
            application_id=order.application_id,
            name=order.name,
            fps=order.fps,
            promise=order.promise,
            key_id=order.key_id,
            began_at=self._clock.wall_now(),
            weight=order.weight,
            wait=order.wait,
            pipeline_id=order.pipeline_id,
        )
        service = self._service_of(session)
        service.require(session)
        live = self._live(session, LinkEstimate(order.uplink_bps, order.rtt_ms or 0.0))
        service.check(live)
        self._put(live)
        try:
            found = await service.join(live)
            if not found.fits:
                if not order.wait:
                    raise await self._not_possible(live, found)
                live.reason = found.told
            await self._keep(live)
        except BaseException:
            self._take(live)
            if live.state is not SessionState.ENDED:  # its device may have left meanwhile
                live.become(SessionState.ENDED, "it could not begin")
            raise
        of = {"pipeline": session.target} if session.pipeline_id else {"application": session.application_id}
        facts = {"session": live.id, "state": live.state.value, **of}
        self._events.emit("session began", tenant=session.tenant, name=session.name, **facts)
        return live

    def get(self, id: str, tenant: str, key_id: str | None = None) -> LiveSession:
        """A session of the tenant, with `key_id` only if that key began it (a device's key); also one that ended less
        than 60 s ago.

        Raises: UnknownSession.
        """
        live = self.live.get(id) or self._ended.get(id)
        if live is None or live.session.tenant != tenant or key_id not in (None, live.session.key_id):
            raise UnknownSession(name=id)
        return live

    def list(self, tenant: str | None, key_id: str | None = None) -> Sequence[LiveSession]:
        """By id; those that ended less than 60 s ago among them. `tenant` None: of all tenants."""
        found = [
            live
            for live in (*self.live.values(), *self._ended.values())
            if tenant in (None, live.session.tenant) and key_id in (None, live.session.key_id)
        ]
        return sorted(found, key=lambda live: live.id)

    async def change(
        self, live: LiveSession, *, promise: Promise | None = None, is_paused: bool | None = None
    ) -> LiveSession:
        """Another promise (the old one stays where the new one cannot be kept), or pause and go on.

        Raises: PromiseNotPossible, UnknownSession where it has ended.
        """
        self._check_alive(live)
        if promise is not None and promise != live.promise:
            await self._change_promise(live, promise)
            self._check_alive(live)
        if is_paused is not None and is_paused != live.session.is_paused:
            live.promised(replace(live.session, is_paused=is_paused))
            live.last_heard_ns = self._clock.now_ns()
            if is_paused and live.state is not SessionState.SUSPENDED:
                live.become(SessionState.SUSPENDED, "paused")
                live.plan, live.load = None, 0.0
            elif not is_paused:
                live.become(SessionState.WAITING)
                await self._try(live)
        self._plan_soon()
        await self._keep(live)
        return live

    async def end(self, live: LiveSession, reason: str = "left") -> None:
        """The session is over; its frames under way end as they would. Again: nothing."""
        if live.state is SessionState.ENDED:
            return
        self._take(live)
        live.become(SessionState.ENDED, reason)
        self._ended[live.id] = live
        self._plan_soon()
        self._events.emit("session ended", tenant=live.session.tenant, session=live.id, reason=reason)
        if self._store is not None:
            with suppress(Unavailable):  # a full disk; it ends again after a restart, for nobody will be heard of it
                await self._store.remove(live.id)

    async def _keep(self, live: LiveSession) -> None:
        """Store it as it is now; of one that ends meanwhile nothing stays. Raises: UnknownSession where it has."""
        self._check_alive(live)
        if self._store is None:
            return
        await self._store.put(live.session)
        if live.state is SessionState.ENDED:
            with suppress(Unavailable):
                await self._store.remove(live.id)
            raise UnknownSession(name=live.id)

    async def _change_promise(self, live: LiveSession, promise: Promise) -> None:
        service, draft = self._service_of(live.session), self._draft(live, promise)
        async with service.alone(live, promise.kind):  # nobody plans with it meanwhile
            self._check_alive(live)
            service.check(draft)
            if live.state is SessionState.SUSPENDED:
                self._promised(live, promise)
                live.holds_until_ns = 0  # what was kept for it was for the old one
                return
            found = await service.changed(live, self._draft(live, promise))
            self._check_alive(live)
            is_taken = found.fits or live.session.wait
            if is_taken:
                self._promised(live, promise, found.lane)
        if not is_taken:
            raise await self._not_possible(live, found, promise)
        await self._try(live)

    def _promised(self, live: LiveSession, promise: Promise, lane: int | None = None) -> None:
        """Another promise, on a worker where it is one of accuracy; it waits to be served by it."""
        service = self._service_of(live.session)
        service.give_back(live, promise)
        live.promised(replace(live.session, promise=promise))
        if live.state is SessionState.SERVED:
            live.become(SessionState.WAITING, "its promise has changed")
        live.lane = live.lane if lane is None else lane
        service.put(live)

    async def _try(self, live: LiveSession) -> None:
        """Serve one that waits, if that is possible now."""
        if live.state is SessionState.WAITING:
            found = await self._service_of(live.session).join(live)
            if not found.fits:
                live.reason = found.told

    async def _not_possible(
        self, live: LiveSession, found: Verdict, promise: Promise | None = None
    ) -> PromiseNotPossible:
        cause = found.cause or Cause.PROCESSOR
        asked = live.promise if promise is None else promise
        service = self._service_of(live.session)
        offered = await service.offers(asked, found, lambda other: self._draft(live, other))
        self.planning.figures.refusals += 1
        return PromiseNotPossible(
            name=live.session.target,
            cause=cause.value,
            offers=tuple(document_of(one.promise) for one in offered),
            reason=found.reason,
        )

    def _draft(self, live: LiveSession, promise: Promise) -> LiveSession:
        """The session with another promise, for a question: it is in no register."""
        draft = self._live(replace(live.session, promise=promise), live.link)
        draft.copy_device(live)
        return draft

    # -- the stream, and what it says ----------------------------------------------------------------------------------

    @contextmanager
    def attached(self, live: LiveSession) -> Iterator[None]:
        """While a stream of the session is open. With the end of the last one its link is gone: capacity is kept for
        2 s, and another stream takes it up. A session that only posts is taken to be there while frames come.

        Raises: UnknownSession where it has ended.
        """
        self._check_alive(live)
        live.streams += 1
        live.link.reset()
        self._heard(live)
        try:
            yield
        finally:
            live.streams -= 1
            live.last_heard_ns = self._clock.now_ns()
            if live.streams == 0 and live.state is SessionState.SERVED:
                self._suspend(live)

    def heard(self, live: LiveSession) -> None:
        """Something has come of its device that is no frame."""
        self._heard(live)

    @contextmanager
    def subscribe(self, live: LiveSession) -> Iterator[Notices]:
        """Plans and notices from now on, the present plan first."""
        notices = live.listen()
        try:
            yield notices
        finally:
            live.unlisten(notices)

    def report(self, live: LiveSession, report: DeviceReport) -> None:
        """What the device says of itself outside of a frame's head; clamped."""
        live.report(report)
        self._heard(live)

    # -- frames --------------------------------------------------------------------------------------------------------

    def frame_begins(self, live: LiveSession, head: FrameHead) -> Frame:
        """A frame's head has come; its body need not be read where this raises.

        Raises: FrameDropped (expired, hopeless, not-served: counted), CreditExceeded (counted as dropped),
        FrameMismatch for a number far out of order (not counted), UnknownSession where the session has ended.
        """
        if live.state is SessionState.SUSPENDED:
            self._heard(live)
        return live.begin(head)

    def results_since(self, live: LiveSession, frame: int | None) -> Sequence[FrameResult]:
        """Results of the last 2 s of frames after `frame` (None: all of them), in the order in which they ended: what a
        device that comes back has missed.
        """
        return live.results_since(frame)

    # -- for the composition root --------------------------------------------------------------------------------------

    def kept_in(self, store: SessionStore) -> None:
        """From now on sessions are stored."""
        self._store = store
        self._some.set()

    def restore(self, sessions: Iterable[Session]) -> None:
        """Take back what a restart has left: after catalogue and pipelines are filled, before anything is asked."""
        for session in sessions:
            try:
                self._service_of(session).require(session)
            except ApplianceError:
                log.warning("a session is not taken back: what its frames go to has gone", session=session.id)
                self._not_restored.append(session.id)
                continue
            live = self._live(session, None, SessionState.SUSPENDED)
            live.reason = "paused" if session.is_paused else "the box was started again"
            live.holds_until_ns = self._clock.now_ns() + RESTORED_HOLD_NS
            self._put(live)

    async def run(self) -> None:
        """Plan until cancelled; rests while there are no sessions."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve(), name="serve sessions")
            tasks.create_task(self._offload(), name="offload sessions")
            tasks.create_task(self._look_after_pipelines(), name="sessions of pipelines")

    # -- the loops -----------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            is_swept = self._store is None or not self._not_restored
            if not self.live and not self._ended and self.planning.is_over and is_swept:
                self._some.clear()
                await self._some.wait()
            start_ns = self._clock.now_ns()
            self.applications.replan.clear()
            try:
                await self._sweep()
                await self._look_after(start_ns)
                await self.planning.adapt_all()
            except Exception:  # the old plans stay
                log.exception("sessions were not planned")
            end_ns = self._clock.now_ns()
            apart_ns = min(SERVE_NS, SERVE_APART * (end_ns - start_ns))
            await self._clock.sleep_until_ns(max(start_ns + SERVE_APART_NS, end_ns + apart_ns))
            left_s = (start_ns + SERVE_NS - self._clock.now_ns()) / NS_PER_S
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left_s)):
                    await self.applications.replan.wait()

    async def _sweep(self) -> None:
        """Rows of sessions that were not taken back go, once the store is there."""
        while self._store is not None and self._not_restored:
            with suppress(Unavailable):
                await self._store.remove(self._not_restored[-1])
            self._not_restored.pop()

    async def _offload(self) -> None:
        while True:
            if not self.live and self.planning.is_over:
                self._some.clear()
                await self._some.wait()
            start_ns = self._clock.now_ns()
            self.applications.placed.clear()
            try:
                await self.planning.offload_all()
            except Exception:
                log.exception("sessions were not planned")
            await self._clock.sleep_until_ns(self._clock.now_ns() + SERVE_APART_NS)
            left_s = (start_ns + OFFLOAD_NS - self._clock.now_ns()) / NS_PER_S
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left_s)):
                    await self.applications.placed.wait()

    async def _look_after_pipelines(self) -> None:
        while True:
            if not self.live:
                self._some.clear()
                await self._some.wait()
            self.pipelines.replan.clear()
            try:
                await self.pipelines.look_after()
            except Exception:
                log.exception("sessions of pipelines were not looked after")
            await self._clock.sleep_until_ns(self._clock.now_ns() + SERVE_APART_NS)
            with suppress(TimeoutError):
                async with asyncio.timeout(SERVE_NS / NS_PER_S):
                    await self.pipelines.replan.wait()

    async def _look_after(self, now_ns: int) -> None:
        """What time alone brings about."""
        self._observe(now_ns)
        for at, live in enumerate(list(self.live.values()), 1):
            if at % AT_ONCE == 0:
                await others_first()
            if live.state is SessionState.ENDED:
                continue
            live.roll(now_ns)
            if gone := self._service_of(live.session).gone(live):
                await self.end(live, gone)
                continue
            silent_ns = now_ns - live.last_heard_ns
            if live.state is SessionState.SERVED and live.streams == 0 and silent_ns > SILENT_NS:
                self._suspend(live)
            if live.state is SessionState.SUSPENDED and now_ns >= live.holds_until_ns:
                live.load = 0.0
            if live.streams == 0 and silent_ns > (PAUSED_NS if live.session.is_paused else self._limits.idle_ns):
                await self.end(live, "nothing was heard of it")
        self._ended = {id: live for id, live in self._ended.items() if now_ns - (live.ended_ns or now_ns) <= ENDED_NS}

    # -- inside --------------------------------------------------------------------------------------------------------

    def _live(
        self, session: Session, link: LinkEstimate | None, state: SessionState = SessionState.WAITING
    ) -> LiveSession:
        service = self._service_of(session)
        return LiveSession(
            self._clock,
            session,
            credit=self._limits.credit,
            predict=service.predict,
            turn=service.turn,
            on_ran=service.ran,
            has_room=service.has_room,
            on_received=service.received,
            on_ended=self._frame_ended,
            link=link,
            state=state,
        )

    def _service_of(self, session: Session) -> Service:
        return self.pipelines if session.pipeline_id else self.applications

    def _put(self, live: LiveSession) -> None:
        self.live[live.id] = live
        self._service_of(live.session).put(live)
        self._some.set()

    def _take(self, live: LiveSession) -> None:
        if self.live.pop(live.id, None) is not None:
            self._service_of(live.session).take(live)

    def _check_room(self, tenant: str) -> None:
        """Raises: TooManySessions."""
        own = sum(live.session.tenant == tenant for live in self.live.values())
        if own >= self._limits.per_tenant_max:
            raise TooManySessions(tenant=tenant, sessions_max=self._limits.per_tenant_max)
        if len(self.live) >= self._limits.all_max:
            raise TooManySessions(tenant=tenant, sessions_max=self._limits.all_max, of_all=True)

    def _plan_soon(self) -> None:
        self.applications.replan.set()
        self.pipelines.replan.set()

    def _check_alive(self, live: LiveSession) -> None:
        if live.state is SessionState.ENDED:
            raise UnknownSession(name=live.id)

    def _heard(self, live: LiveSession) -> None:
        """Its device is there: what was suspended goes on where its capacity was kept, and else is tried."""
        now_ns = live.last_heard_ns = self._clock.now_ns()
        if live.state is not SessionState.SUSPENDED or live.session.is_paused:
            return
        is_kept = now_ns < live.holds_until_ns
        live.become(SessionState.SERVED if is_kept else SessionState.WAITING)
        self._plan_soon()

    def _suspend(self, live: LiveSession) -> None:
        live.holds_until_ns = self._clock.now_ns() + HOLD_NS
        live.become(SessionState.SUSPENDED, "its link is gone")
        self._plan_soon()

    def _frame_ended(self, live: LiveSession, frame: Frame, result: FrameResult) -> None:
        totals = self.totals[live.session.tenant]
        totals[result.end.value if result.cause is None else f"{result.end.value}-{result.cause.value}"] += 1
        if isinstance(result.error, FrameDropped):  # here; the engine records its own
            self._decisions.record("drop", frame_drop(live.session, result.error))
        self._service_of(live.session).ended(live, frame, result)


def document_of(promise: Promise) -> dict[str, object]:
    """A promise as it is posted."""
    if isinstance(promise, LatencyPromise):
        floor = {} if promise.accuracy_min is None else {"accuracy_min": share(promise.accuracy_min)}
        return {"kind": promise.kind.value, "slo_ms": promise.slo_ms, "rate_rps": promise.rate_rps, **floor}
    assert isinstance(promise, AccuracyPromise)
    return {"kind": promise.kind.value, "drop_max": promise.drop_max, "reference": promise.reference.value}
