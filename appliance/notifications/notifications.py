"""Notifications: who is told of conditions, and the messages under way. Event-loop thread only.

Each receiver has one message under way at most, in a task of its own, and nothing waits in a queue: a message is made
of what its receiver is to be told when it can be sent. `see` is called with each look at the health of the box, every
ten seconds at least, which is what sets the pace of tries, too.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import TooManyTests, UnknownReceiver
from appliance.domain.health.conditions import Condition
from appliance.domain.notifications.briefing import Briefing, concerning
from appliance.domain.notifications.messages import Message, message_of, post_of, trial_message_of
from appliance.domain.notifications.receivers import Receiver, ReceiverState, Sent, Standing
from appliance.log import get as get_log
from appliance.notifications.sending import Sender

APART_S = 30
"""Messages to one receiver are so far apart at least."""
TESTS_APART_S = 5
RETRY_S = 10
"""Until a message that did not arrive is sent again; twice as long each time."""
RETRY_S_MAX = 3600
log = get_log("notifications")


@dataclass(slots=True)
class _Known:
    """A receiver, and what came of telling it."""

    receiver: Receiver
    briefing: Briefing
    standing: Standing = field(default_factory=Standing)
    next_s: float = 0.0
    """When the next message may be sent."""
    next_test_s: float = 0.0
    sending: "asyncio.Task[Sent] | None" = None
    """The latest message."""

    @property
    def is_sending(self) -> bool:
        """Whether a message is under way."""
        return self.sending is not None and not self.sending.done()


class Notifications:
    """All receivers of the box."""

    def __init__(self, clock: Clock, sender: Sender, box: str) -> None:
        """`box`: the name of the box in messages."""
        self._clock, self._sender, self._box = clock, sender, box
        self._known: dict[str, _Known] = {}

    def put(self, receiver: Receiver) -> None:
        """Tell a receiver from now on, of what stands already first."""
        self._known[receiver.id] = _Known(receiver, Briefing(receiver))

    def remove(self, id: str) -> None:
        """Tell a receiver nothing more."""
        known = self._known.pop(id, None)
        if known is not None and known.sending is not None:
            known.sending.cancel()

    def standing(self, id: str) -> Standing:
        """Return what came of the latest message to a receiver."""
        known = self._known.get(id)
        return Standing() if known is None else known.standing

    def failing(self) -> tuple[tuple[Receiver, Sent], ...]:
        """Return the receivers to which messages do not arrive, each with the latest one."""
        failing = (ReceiverState.FAILING, ReceiverState.GIVEN_UP)
        found = ((one.receiver, one.standing) for one in self._known.values())
        return tuple((one, now.last) for one, now in found if now.last is not None and now.state in failing)

    def see(self, conditions: Iterable[Condition]) -> None:
        """Take all conditions of the box as they stand now, and begin to send what is due."""
        if not self._known:
            return
        of_all = list(conditions)
        own: dict[str | None, list[Condition]] = {}
        for one in of_all:
            own.setdefault(None if one.is_shared else one.subject.tenant, []).append(one)
        for known in list(self._known.values()):
            tenant = known.receiver.tenant
            candidates = of_all if tenant is None else [*own.get(tenant, ()), *own.get(None, ())]
            known.briefing.see(concerning(tenant, candidates))
            self._tell(known)

    def _tell(self, known: _Known) -> None:
        now_s = self._now_s()
        if known.is_sending or now_s < known.next_s or known.standing.state is ReceiverState.GIVEN_UP:
            return
        if news := known.briefing.due(now_s):
            message = message_of(self._box, news, self._clock.wall_now())

            async def tell() -> Sent:
                sent = await self._send(known, message)
                if sent.is_delivered:
                    known.briefing.told(news, self._now_s())
                return sent

            self._begin(known, tell())

    async def test(self, id: str) -> Sent:
        """Send a test message. Raises: UnknownReceiver; TooManyTests where a message is under way."""
        known = self._known.get(id)
        if known is None:
            raise UnknownReceiver(name=id)
        if known.is_sending or self._now_s() < known.next_test_s:
            raise TooManyTests(retry_after_s=TESTS_APART_S)
        known.next_test_s = self._now_s() + TESTS_APART_S
        message = trial_message_of(self._box, self._clock.wall_now())
        sending = self._begin(known, self._send(known, message))
        await asyncio.wait([sending])  # a caller who leaves ends nothing
        if sending.cancelled():
            raise UnknownReceiver(name=id)
        return sending.result()

    async def close(self) -> None:
        """End the messages under way."""
        under_way = [one.sending for one in self._known.values() if one.sending is not None]
        self._known.clear()
        for sending in under_way:
            sending.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _begin(self, known: _Known, work: Coroutine[Any, Any, Sent]) -> "asyncio.Task[Sent]":
        known.sending = sending = asyncio.create_task(work, name=f"notify {known.receiver.id}")
        return sending

    async def _send(self, known: _Known, message: Message) -> Sent:
        """Send a message, and note what came of it."""
        sent = await self._sender.send(post_of(known.receiver, message), known.receiver.tenant)
        before, known.standing = known.standing, known.standing.after(sent)
        failures = known.standing.failures
        wait_s = min(RETRY_S_MAX, RETRY_S * 2 ** (failures - 1)) if failures else APART_S
        known.next_s = self._now_s() + wait_s
        if known.standing.state is not before.state:
            who = {"receiver": known.receiver.id, "tenant": known.receiver.tenant}
            log.info("receiver of notifications changed", **who, state=known.standing.state.value, reason=sent.detail)
        return sent

    def _now_s(self) -> float:
        return self._clock.now_ns() / NS_PER_S
