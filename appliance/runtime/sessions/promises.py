"""Promises of sessions: made, changed, and refused with others in their place."""

from collections.abc import Callable
from dataclasses import replace

from appliance.domain.accuracy import share
from appliance.domain.errors import PromiseNotPossible
from appliance.domain.session import AccuracyPromise, Cause, LatencyPromise, Promise, Session
from appliance.domain.states import SessionState
from appliance.runtime.sessions.link import LinkEstimate
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.services import Services
from appliance.runtime.sessions.verdict import Verdict


class Promises:
    """Of all sessions. Event-loop thread only."""

    def __init__(self, services: Services, made: Callable[[Session, LinkEstimate], LiveSession]) -> None:
        """`made`: a session that waits, in no register."""
        self._services = services
        self._made = made

    async def change(self, live: LiveSession, promise: Promise) -> None:
        """Another promise; the old one stays where the new one cannot be kept. Raises: PromiseNotPossible."""
        service, draft = self._services.of(live.session), self.draft(live, promise)
        async with service.alone(live, promise.kind):  # nobody plans with it meanwhile
            live.check_alive()
            service.check(draft)
            if live.state is SessionState.SUSPENDED:
                self._promised(live, promise)
                live.holds_until_ns = 0  # what was kept for it was for the old one
                return
            before, lane = live.promise, live.lane
            found = await service.changed(live, self.draft(live, promise))
            live.check_alive()
            is_taken = found.fits or live.session.wait
            if is_taken:
                self._promised(live, promise, found.lane)
        if not is_taken:
            raise await self.refusal(live, found, promise)
        found = await self.serve(live)
        if not found.fits and not live.session.wait:  # others have come meanwhile
            async with service.alone(live, before.kind):
                live.check_alive()
                self._promised(live, before, lane)
            await self.serve(live)
            raise await self.refusal(live, found, promise)

    def _promised(self, live: LiveSession, promise: Promise, lane: int | None = None) -> None:
        """Another promise, on a worker where it is one of accuracy; it waits to be served by it."""
        service = self._services.of(live.session)
        service.give_back(live, promise)
        live.promised(replace(live.session, promise=promise))
        if live.state is SessionState.SERVED:
            live.become(SessionState.WAITING, "its promise has changed")
        live.lane = live.lane if lane is None else lane
        live.forget_shown()
        service.put(live)

    async def serve(self, live: LiveSession) -> Verdict:
        """Serve one that waits, if that is possible now."""
        if live.state is not SessionState.WAITING:
            return Verdict(True, lane=live.lane)
        found = await self._services.of(live.session).join(live)
        if not found.fits:
            live.reason = found.told
        return found

    async def refusal(self, live: LiveSession, found: Verdict, promise: Promise | None = None) -> PromiseNotPossible:
        """What a device is told whose promise (None: the one that it has) cannot be kept, with offers."""
        cause = found.cause or Cause.PROCESSOR
        asked = live.promise if promise is None else promise
        service = self._services.of(live.session)
        offered = await service.offers(asked, found, lambda other: self.draft(live, other))
        self._services.applications.planning.figures.refusals += 1
        return PromiseNotPossible(
            name=live.session.target,
            cause=cause.value,
            offers=tuple(document_of(one.promise) for one in offered),
            reason=found.reason,
        )

    def draft(self, live: LiveSession, promise: Promise) -> LiveSession:
        """The session with another promise, for a question: it is in no register."""
        draft = self._made(replace(live.session, promise=promise), live.link)
        draft.copy_device(live)
        return draft


def document_of(promise: Promise) -> dict[str, object]:
    """A promise as it is posted."""
    if isinstance(promise, LatencyPromise):
        floor = {} if promise.accuracy_min is None else {"accuracy_min": share(promise.accuracy_min)}
        return {"kind": promise.kind.value, "slo_ms": promise.slo_ms, "rate_rps": promise.rate_rps, **floor}
    assert isinstance(promise, AccuracyPromise)
    return {"kind": promise.kind.value, "drop_max": promise.drop_max, "reference": promise.reference.value}
