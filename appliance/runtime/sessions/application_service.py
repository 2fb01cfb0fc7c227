"""Sessions whose frames go to an application: planned by the planners of sessions, run as its requests."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import count

from appliance.clock import NS_PER_MS, NS_PER_S, Clock, others_first
from appliance.domain.errors import FrameDropped, ModelUnavailable, TooManySessions
from appliance.domain.request import Request
from appliance.domain.session import DropCause, Offer, Promise, PromiseKind, Session
from appliance.domain.slots import NO_SLOT, Member, Slot
from appliance.domain.states import SessionState
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.predict import Call, Predictor
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offers import offers
from appliance.runtime.sessions.planning import Planning
from appliance.runtime.sessions.pools import holds, key_of
from appliance.runtime.sessions.verdict import Verdict
from appliance.runtime.sessions.worker_lanes import NO_LANE
from appliance.tasks.base import Media

DECODED_NS = 10 * NS_PER_S
"""What decoding has taken longer ago says nothing of now: frames that are not let in for it would never show better."""


class ApplicationService:
    """Implements `Service`. Event-loop thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        engine: Engine,
        predictor: Predictor,
        planning_of: Callable[["ApplicationService"], Planning],
        pools_max: int,
    ) -> None:
        """`planning_of` is asked once, when the sessions can be read. `pools_max`: as of `Limits`."""
        self._clock = clock
        self._catalogue = catalogue
        self._engine = engine
        self._predictor = predictor
        self._pools_max = pools_max
        self.live: dict[str, LiveSession] = {}
        """Those that have not ended, by id."""
        self._gates: dict[Member, Batches] = {}
        """Where frames wait, or run, that came and have not ended: their session may be planned elsewhere meanwhile."""
        self._decode_ms: dict[tuple[str, str], tuple[float, int]] = {}
        """By tenant and application, and when the last one came."""
        self.replan = asyncio.Event()
        """A link has changed, or memory: plans are due."""
        self.placed = asyncio.Event()
        """The first frame has come of a session that could not be planned frame by frame before."""
        self.planning = planning_of(self)

    def active_weights(self) -> dict[str, float]:
        """Processor weights of the tenants that have sessions which wait, or which capacity is kept for."""
        now_ns = self._clock.now_ns()
        tenants = {
            live.session.tenant
            for live in self.live.values()
            if live.state is SessionState.WAITING or holds(live, now_ns)
        }
        return {tenant: self._catalogue.processor_weight(tenant) for tenant in tenants}

    def decode_ms(self, tenant: str, application_id: str) -> float:
        """What decoding a frame of a tenant's devices takes, by those that came of them: others may send larger ones to
        an application that is shared. 0 where none has come of late."""
        ms, last_ns = self._decode_ms.get((tenant, application_id), (0.0, 0))
        return ms if self._clock.now_ns() - last_ns <= DECODED_NS else 0.0

    def forget(self, application_id: str) -> None:
        """An application is no more, or asks another model: what its frames have shown says nothing of others."""
        for of in [of for of in self._decode_ms if of[1] == application_id]:
            del self._decode_ms[of]
        self.planning.forget(application_id)

    def forget_tenant(self, tenant: str) -> None:
        """It is gone: what its devices have shown says nothing of those of another one that has its name one day."""
        for of in [of for of in self._decode_ms if of[0] == tenant]:
            del self._decode_ms[of]
        self.planning.forget_tenant(tenant)

    # -- port Service: which there are ---------------------------------------------------------------------------------

    def require(self, session: Session) -> None:
        self._catalogue.entry(session.application_id)

    def gone(self, live: LiveSession) -> str:
        session, application = live.session, self._catalogue.application(live.session.application_id)
        is_own = application is not None and (application.tenant == session.tenant or application.shared)
        if is_own and self._catalogue.has_tenant(session.tenant):
            return ""  # it may be out of service for a while
        return "its application is gone, or is shared no more"

    def check(self, draft: LiveSession) -> None:
        entry = self._catalogue.entry(draft.session.application_id)
        if not entry.model.variants:
            raise ModelUnavailable(name=entry.application.name)
        tenant = draft.session.tenant
        there = self.planning.pools_of(tenant)
        if len(there) >= self._pools_max and key_of(draft) not in there:
            raise TooManySessions(tenant=tenant, sessions_max=self._pools_max, of="kinds of sessions")

    def put(self, live: LiveSession) -> None:
        self.live[live.id] = live
        if live.figures.busy_before is None:
            live.figures.busy_before = self._engine.run_totals()[1], self._clock.now_ns()
        self.planning.put(live)

    def take(self, live: LiveSession) -> None:
        self.live.pop(live.id, None)
        self.planning.take(live)

    # -- promises ------------------------------------------------------------------------------------------------------

    async def join(self, live: LiveSession) -> Verdict:
        return await self.planning.join(live)

    def alone(self, live: LiveSession, *others: PromiseKind) -> AbstractAsyncContextManager[None]:
        return self.planning.alone(live, *others)

    async def changed(self, live: LiveSession, draft: LiveSession) -> Verdict:
        return await self.planning.changed(live, draft)

    def give_back(self, live: LiveSession, promise: Promise) -> None:
        self.planning.give_back(live)

    async def offers(self, asked: Promise, found: Verdict, draft: Callable[[Promise], LiveSession]) -> list[Offer]:
        numbers = count(1)

        async def fits(other: Promise) -> bool:
            await others_first()  # a dozen questions in a row, each of which may be answered on the event loop
            one = draft(other)
            there = self.live.get(one.id)
            if there is None or there.state is SessionState.WAITING:
                # It is posted by a session of another name, and among equals planners go by names: no luck is offered.
                one.session = replace(one.session, id=f"{one.id}-{next(numbers)}")
            return (await self.planning.possible(one)).fits

        return await offers(asked, fits)

    # -- frames --------------------------------------------------------------------------------------------------------

    async def predict(self, live: LiveSession, frame: Frame, media: Media, request_id: str) -> bytes:
        """Through the engine's ordinary admission."""
        application = self._catalogue.entry(live.session.application_id).application
        tenant = live.session.tenant
        asked = live.call_of(frame)
        call = Call(
            tenant,
            request_id,
            asked.arrival_ns,
            asked.variant,
            asked.timeout_ms,
            asked.priority,
            is_frame=True,
            slot=asked.slot,
            ran=asked.ran,
        )
        learn = self._watch(tenant, application.id)
        made: list[Request] = []

        def seen(request: Request) -> None:
            learn(request)
            made.append(request)

        try:
            with self._engine.admitted(application, tenant):
                return await self._predictor.predict(application, media, call, seen)
        finally:
            if made:
                frame.began(made[0])

    def slot(self, live: LiveSession, frame: Frame) -> Slot:
        if not frame.is_planned:
            if not self.has_room(live):
                raise FrameDropped(frame=frame.number, cause=DropCause.OVER_RATE.value)
            return NO_SLOT
        member = live.id, frame.number
        gates = self.planning.gates_of(live)
        if gates is None:
            if not self.planning.is_in_memory(live, frame.variant):  # it waits for that, and no lane waits for it
                return NO_LANE
            return self.planning.worker_lanes.slot(live.id)
        self._gates[member] = gates
        frame.planned_ns = gates.planned_ns(member)
        return gates.slot(member, is_planned=True)

    def has_room(self, live: LiveSession) -> bool:
        """Whether a worker is free for a run that nobody planned, and is not for a batch that begins before its end."""
        free = self._engine.free_workers()
        if not free:  # as where frames come in plenty: all gates need not be looked at for each
            return False
        until_ns = self._clock.now_ns() + int(live.expected_run_ms * NS_PER_MS)
        return free > self.planning.beginning(until_ns)

    def received(self, live: LiveSession) -> None:
        if self.planning.makes_do(live) or self.planning.has_changed(live):
            self.replan.set()
        if self.planning.is_unplaced(live):
            self.placed.set()

    def ended(self, live: LiveSession, frame: Frame, result: FrameResult) -> None:
        member = live.id, frame.number
        came, planned = self._gates.pop(member, None), self.planning.gates_of(live)
        for gates in (came, planned if planned is not came else None):
            if gates is not None:
                gates.ended(member)
        if result.variant and self._is_refused(live, result):
            self.planning.refused(live.session.application_id, result.variant)
            self.replan.set()

    def _is_refused(self, live: LiveSession, result: FrameResult) -> bool:
        """Whether memory has no room for a frame's variant, or has taken it away and not had it back in time."""
        if result.cause is DropCause.LATE:
            return self.planning.was_taken(live, result.variant)
        return result.cause is DropCause.MEMORY

    def _watch(self, tenant: str, application_id: str) -> Callable[[Request], None]:
        """Learns what decoding takes."""
        of = tenant, application_id

        def seen(request: Request) -> None:
            now_ns = self._clock.now_ns()
            ms = (now_ns - request.arrival_ns) / NS_PER_MS
            before = self.decode_ms(*of) or ms
            self._decode_ms[of] = before + 0.05 * (ms - before), now_ns

        return seen
