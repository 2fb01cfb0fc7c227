"""The registry of sessions: what the API asks. Who is there, whether their devices are, what they are promised, what is
stored and when plans are made each has a module of its own below.

Sessions are stored when they begin, change and end, never for a frame. After a restart they are there again, suspended,
with their capacity kept for a while, and served with the first frame or stream that comes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from dataclasses import replace

from appliance.clock import Clock, others_first
from appliance.domain.errors import ApplianceError, FrameDropped, Unavailable
from appliance.domain.events import EventSink
from appliance.domain.session import DeviceReport, DropCause, FrameHead, Notice, NoticeKind, Promise, Session
from appliance.domain.states import SessionState
from appliance.log import get as get_log
from appliance.runtime.decisions.sessions import frame_drop
from appliance.runtime.engine.portions import Portions
from appliance.runtime.ports import DecisionSink
from appliance.runtime.serving.joins import Joins
from appliance.runtime.sessions.answers import KeptAnswers
from appliance.runtime.sessions.application_service import ApplicationService
from appliance.runtime.sessions.context import AT_ONCE
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.link import LinkEstimate
from appliance.runtime.sessions.live import LiveSession, Notices
from appliance.runtime.sessions.orders import JoinOrder
from appliance.runtime.sessions.pipeline_service import PipelineService
from appliance.runtime.sessions.presence import Presence
from appliance.runtime.sessions.promises import Promises
from appliance.runtime.sessions.register import Register
from appliance.runtime.sessions.rounds import Rounds
from appliance.runtime.sessions.services import Services
from appliance.runtime.sessions.storing import SessionStore, Storing

log = get_log("sessions")


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
        """`observe`: is told the time, twice a second and before a promise is made, and looks at what runs nobody has
        planned."""
        self._clock = clock
        self.applications, self.pipelines = applications, pipelines
        self.planning = applications.planning
        self._services = Services(applications, pipelines)
        self._observe = observe
        self._events = events
        self._decisions = decisions
        self._new_id = new_id
        self.register = Register(self._services, limits)
        self._presence = Presence(clock, self._services, limits.idle_ns)
        self.promises = Promises(self._services, self._live)
        self._storing = Storing()
        self._answers = Portions(limits.answers_bytes_max)
        """Bytes of those that may be asked for again."""
        self._rounds = Rounds(clock, self._services, self.register, self._storing, self._look_after)
        self.totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        """Tenant → frames of all its sessions by how they ended."""
        self._joins = Joins(limits.per_tenant_max)
        """Promises that are asked for: of each tenant one of a kind at a time."""
        self._waiting: set[str] = set()
        """Sessions of which was told that they wait."""

    @property
    def live(self) -> dict[str, LiveSession]:
        """Those that have not ended, by id."""
        return self.register.live

    # -- joining, changing, ending -------------------------------------------------------------------------------------

    async def join(self, order: JoinOrder) -> LiveSession:
        """A new session: served, or waiting where the order says so.

        Raises: PromiseNotPossible with the cause and offers, TooManySessions, ModelUnavailable, StorageFull.
        """
        self.register.check_room(order.tenant)
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
        service = self._services.of(session)
        service.require(session)
        live = self._live(session, LinkEstimate(order.uplink_bps, order.rtt_ms or 0.0))
        service.check(live)
        self.register.put(live)
        self._observe(self._clock.now_ns())  # while there were no sessions nobody did
        try:
            with self._presence.joining(live):
                async with self._turn(session):
                    found = await service.join(live)
                    if not found.fits and not order.wait:
                        raise await self.promises.refusal(live, found)
                if not found.fits:
                    live.reason = found.told
                await self._storing.keep(live)
        except BaseException:
            self.register.take(live)
            if live.state is not SessionState.ENDED:  # its device may have left meanwhile
                live.become(SessionState.ENDED, "it could not begin")
            raise
        of = {"pipeline": session.target} if session.pipeline_id else {"application": session.application_id}
        facts = {"session": live.id, "state": live.state.value, **of}
        self._events.emit("session began", tenant=session.tenant, name=session.name, **facts)
        if live.state is SessionState.WAITING:
            self._waiting.add(live.id)
        return live

    def get(self, id: str, tenant: str, key_id: str | None = None) -> LiveSession:
        """A session of the tenant, with `key_id` only if that key began it (a device's key); also one that ended less
        than 60 s ago.

        Raises: UnknownSession.
        """
        return self.register.get(id, tenant, key_id)

    def list(self, tenant: str | None, key_id: str | None = None) -> Sequence[LiveSession]:
        """By id; those that ended less than 60 s ago among them. `tenant` None: of all tenants."""
        return self.register.list(tenant, key_id)

    async def change(
        self, live: LiveSession, *, promise: Promise | None = None, is_paused: bool | None = None
    ) -> LiveSession:
        """Another promise (the old one stays where the new one cannot be kept), or pause and go on.

        Raises: PromiseNotPossible, UnknownSession where it has ended; StorageFull, with nothing changed.
        """
        wanted = replace(
            live.session,
            promise=live.promise if promise is None else promise,
            is_paused=live.session.is_paused if is_paused is None else is_paused,
        )
        await self._storing.keep(live, wanted)
        try:
            await self._change(live, promise, is_paused)
        finally:  # as it has become
            with suppress(Unavailable):
                await self._storing.keep(live)
        return live

    async def _change(self, live: LiveSession, promise: Promise | None, is_paused: bool | None) -> None:
        if promise is not None and promise != live.promise:
            async with self._turn(live.session, promise):
                await self.promises.change(live, promise)
            live.check_alive()
        if is_paused is not None and is_paused != live.session.is_paused:
            live.promised(replace(live.session, is_paused=is_paused))
            live.last_heard_ns = self._clock.now_ns()
            if is_paused and live.state is not SessionState.SUSPENDED:
                live.become(SessionState.SUSPENDED, "paused")
                live.plan, live.load = None, 0.0
            elif not is_paused:
                live.become(SessionState.WAITING)
                async with self._turn(live.session):
                    await self.promises.serve(live)
        self._services.plan_soon()

    async def end(self, live: LiveSession, reason: str = "left") -> None:
        """The session is over; its frames under way end as they would. Again: nothing."""
        if live.state is SessionState.ENDED:
            return
        self.register.end(live)
        live.become(SessionState.ENDED, reason)
        self._services.plan_soon()
        self._events.emit("session ended", tenant=live.session.tenant, session=live.id, reason=reason)
        await self._storing.remove(live)

    # -- the stream, and what it says ----------------------------------------------------------------------------------

    def attached(self, live: LiveSession) -> AbstractContextManager[None]:
        """While a stream of the session is open. With the end of the last one its link is gone: capacity is kept for
        2 s, and another stream takes it up. A session that only posts is taken to be there while frames come.

        Raises: UnknownSession where it has ended.
        """
        return self._presence.attached(live)

    def heard(self, live: LiveSession) -> None:
        """Something has come of its device that is no frame."""
        self._presence.heard(live)

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
        self._presence.heard(live)

    # -- frames --------------------------------------------------------------------------------------------------------

    def frame_begins(self, live: LiveSession, head: FrameHead, refused: DropCause | None = None) -> Frame:
        """A frame's head has come; its body need not be read where this raises. `refused`: why it would not be taken
        in any case.

        Raises: FrameDropped (refused, expired, hopeless, not-served: counted), CreditExceeded (counted as dropped),
        FrameMismatch for a number far out of order (not counted), UnknownSession where the session has ended.
        """
        if live.state is SessionState.SUSPENDED:
            self._presence.heard(live)
        return live.begin(head, refused)

    def results_since(self, live: LiveSession, frame: int | None) -> Sequence[FrameResult]:
        """Results of the last 2 s of frames after `frame` (None: all of them), in the order in which they ended: what a
        device that comes back has missed.
        """
        return live.results_since(frame)

    # -- for the composition root --------------------------------------------------------------------------------------

    def kept_in(self, store: SessionStore) -> None:
        """From now on sessions are stored."""
        self._storing.into(store)
        self.register.some.set()

    async def store_begun(self) -> None:
        """Store those that began before they were `kept_in` a store."""
        await self._storing.store_begun()

    def restore(self, sessions: Iterable[Session]) -> None:
        """Take back what a restart has left: after catalogue and pipelines are filled, before anything is asked."""
        for session in sessions:
            try:
                self._services.of(session).require(session)
            except ApplianceError:
                log.warning("a session is not taken back: what its frames go to has gone", session=session.id)
                self._storing.leave_out(session)
                continue
            live = self._live(session, None, SessionState.SUSPENDED)
            self._presence.restored(live)
            self.planning.restore(live)
            self.register.put(live)

    def forget_tenant(self, tenant: str) -> None:
        """It is gone with its sessions, and another one may have its name at once."""
        for live in [live for live in self.live.values() if live.session.tenant == tenant]:
            self.register.take(live)
            live.become(SessionState.ENDED, "its tenant is gone")
            self._storing.leave_out(live.session)
        self.register.forget_tenant(tenant)
        self._services.plan_soon()
        self.totals.pop(tenant, None)
        self.applications.forget_tenant(tenant)

    async def run(self) -> None:
        """Plan until cancelled; rests while there are no sessions."""
        await self._rounds.run()

    async def _look_after(self, now_ns: int) -> None:
        """What time alone brings about."""
        self._observe(now_ns)
        for at, live in enumerate(list(self.live.values()), 1):
            if at % AT_ONCE == 0:
                await others_first()
            if live.state is SessionState.ENDED:
                continue
            live.roll(now_ns)
            if gone := self._services.of(live.session).gone(live):
                await self.end(live, gone)
                continue
            if not self._presence.look(live, now_ns):
                await self.end(live, "nothing was heard of it")
        self.register.forget(now_ns)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _turn(self, session: Session, promise: Promise | None = None) -> AbstractAsyncContextManager[None]:
        """Of a session to be promised something, by default what it has been: another planner delays nobody."""
        kind = session.pipeline_id or (promise or session.promise).kind.value
        return self._joins.turn(session.tenant, kind)

    def _live(
        self, session: Session, link: LinkEstimate | None, state: SessionState = SessionState.WAITING
    ) -> LiveSession:
        service = self._services.of(session)
        return LiveSession(
            self._clock,
            session,
            credit=self.register.limits.credit,
            predict=service.predict,
            slot=service.slot,
            has_room=service.has_room,
            on_received=service.received,
            on_ended=self._frame_ended,
            on_told=self._told,
            answers=KeptAnswers(self._answers, session.tenant),
            link=link,
            state=state,
        )

    def _told(self, live: LiveSession, notice: Notice) -> None:
        """A session that began to wait, or was served in the end, is told to people, too; of one that has ended `end`
        tells.
        """
        about = {"tenant": live.session.tenant, "session": live.id}
        if notice.kind is NoticeKind.REMOVED:
            self._waiting.add(live.id)
            self._events.emit("session removed", **about, reason=notice.reason)
        elif notice.kind in (NoticeKind.SERVED, NoticeKind.ENDED) and live.id in self._waiting:
            self._waiting.discard(live.id)
            if notice.kind is NoticeKind.SERVED:
                self._events.emit("session served", **about)

    def _frame_ended(self, live: LiveSession, frame: Frame, result: FrameResult) -> None:
        totals = self.totals[live.session.tenant]
        totals[result.end.value if result.cause is None else f"{result.end.value}-{result.cause.value}"] += 1
        if isinstance(result.error, FrameDropped):  # here; the engine records its own
            self._decisions.record("drop", frame_drop(live.session, result.error))
        self._services.of(live.session).ended(live, frame, result)
