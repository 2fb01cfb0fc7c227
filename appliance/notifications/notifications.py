"""The receivers of the box, and the messages that are being sent. Event-loop thread only.

Each receiver has at most one message under way, in a task of its own. No message waits in a queue: its text is made
when it can be sent. There is no timer: `update` is called at each health check, at least every ten seconds, and sends
what is due.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import NS_PER_S, Clock, others_first
from appliance.domain.errors import TooManyTests, UnknownReceiver
from appliance.domain.health.conditions import Condition
from appliance.domain.notifications.briefing import Briefing, visible_to
from appliance.domain.notifications.messages import Message, message_of, post_of, trial_message_of
from appliance.domain.notifications.receivers import DeliveryStatus, Receiver, ReceiverState, SendResult
from appliance.log import get as get_log
from appliance.notifications.sending import Sender

APART_S = 30
"""Least time between two messages to one receiver."""
TESTS_APART_S = 5
RETRY_S = 10
"""Time until the first retry of a failed message; doubles with each further failure."""
RETRY_S_MAX = 3600
log = get_log("notifications")


@dataclass(slots=True)
class _Entry:
    """A receiver with its state."""

    receiver: Receiver
    briefing: Briefing
    status: DeliveryStatus = field(default_factory=DeliveryStatus)
    next_s: float = 0.0
    """Time of the clock from which the next message may be sent."""
    next_test_s: float = 0.0
    sending: "asyncio.Task[SendResult] | None" = None
    """Task that sends the latest message."""

    @property
    def is_sending(self) -> bool:
        """Return whether a message is under way."""
        return self.sending is not None and not self.sending.done()


class Notifications:
    """All receivers of the box."""

    def __init__(self, clock: Clock, sender: Sender, box: str) -> None:
        """`box`: the name of the box in messages."""
        self._clock, self._sender, self._box = clock, sender, box
        self._entries: dict[str, _Entry] = {}

    def put(self, receiver: Receiver) -> None:
        """Send messages to a receiver from now on; the first one names the present conditions."""
        self._entries[receiver.id] = _Entry(receiver, Briefing(receiver))

    def remove(self, id: str) -> None:
        """Send nothing more to a receiver."""
        entry = self._entries.pop(id, None)
        if entry is not None and entry.sending is not None:
            entry.sending.cancel()

    def status(self, id: str) -> DeliveryStatus:
        """Return the result of the latest message to a receiver, and its failures in a row."""
        entry = self._entries.get(id)
        return DeliveryStatus() if entry is None else entry.status

    def failing(self) -> tuple[tuple[Receiver, SendResult], ...]:
        """Return the failing receivers, each with the result of its latest message."""
        failing = (ReceiverState.FAILING, ReceiverState.GIVEN_UP)
        found = ((one.receiver, one.status) for one in self._entries.values())
        return tuple((one, now.last) for one, now in found if now.last is not None and now.state in failing)

    async def update(self, conditions: Iterable[Condition]) -> None:
        """Take all present conditions of the box, and begin to send the messages that are due. Other work on the event
        loop goes on after each receiver, for a thousand conditions take milliseconds.
        """
        if not self._entries:
            return
        of_all = list(conditions)
        own: dict[str | None, list[Condition]] = {}
        for one in of_all:
            own.setdefault(None if one.is_shared else one.subject.tenant, []).append(one)
        for id, entry in list(self._entries.items()):
            if self._entries.get(id) is not entry:
                continue  # removed meanwhile
            tenant = entry.receiver.tenant
            candidates = of_all if tenant is None else [*own.get(tenant, ()), *own.get(None, ())]
            entry.briefing.update(visible_to(tenant, candidates))
            self._send_due(entry)
            await others_first()

    def _send_due(self, entry: _Entry) -> None:
        now_s = self._now_s()
        if entry.is_sending or now_s < entry.next_s or entry.status.state is ReceiverState.GIVEN_UP:
            return
        if changes := entry.briefing.due(now_s):
            message = message_of(self._box, changes, self._clock.wall_now())

            async def send() -> SendResult:
                sent = await self._send(entry, message)
                if sent.is_delivered:
                    entry.briefing.note_sent(changes, self._now_s())
                return sent

            self._begin(entry, send())

    async def test(self, id: str) -> SendResult:
        """Send a test message. Raises: UnknownReceiver; TooManyTests where a message is under way."""
        entry = self._entries.get(id)
        if entry is None:
            raise UnknownReceiver(name=id)
        if entry.is_sending or self._now_s() < entry.next_test_s:
            raise TooManyTests(retry_after_s=TESTS_APART_S)
        entry.next_test_s = self._now_s() + TESTS_APART_S
        message = trial_message_of(self._box, self._clock.wall_now())
        sending = self._begin(entry, self._send(entry, message))
        await asyncio.wait([sending])  # a caller who leaves ends nothing
        if sending.cancelled():
            raise UnknownReceiver(name=id)
        return sending.result()

    async def close(self) -> None:
        """End the messages under way."""
        under_way = [one.sending for one in self._entries.values() if one.sending is not None]
        self._entries.clear()
        for sending in under_way:
            sending.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _begin(self, entry: _Entry, work: Coroutine[Any, Any, SendResult]) -> "asyncio.Task[SendResult]":
        entry.sending = sending = asyncio.create_task(work, name=f"notify {entry.receiver.id}")
        return sending

    async def _send(self, entry: _Entry, message: Message) -> SendResult:
        """Send a message, and note its result."""
        sent = await self._sender.send(post_of(entry.receiver, message), entry.receiver.tenant)
        before, entry.status = entry.status, entry.status.after(sent)
        failures = entry.status.failures
        wait_s = min(RETRY_S_MAX, RETRY_S * 2 ** (failures - 1)) if failures else APART_S
        entry.next_s = self._now_s() + wait_s
        if entry.status.state is not before.state:
            who = {"receiver": entry.receiver.id, "tenant": entry.receiver.tenant}
            log.info("receiver of notifications changed", **who, state=entry.status.state.value, reason=sent.detail)
        return sent

    def _now_s(self) -> float:
        return self._clock.now_ns() / NS_PER_S
