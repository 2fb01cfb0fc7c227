"""Which call goes over which channel and when, its answer, and its time limit. Event-loop thread only."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import RunFailed, RunRefused
from appliance.domain.request import Tensors
from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.area import LARGEST_BYTES
from appliance.runtime.processors.guard.calls import Call, Settle
from appliance.runtime.processors.guard.channels import Channel, ChannelGroup

STOP_GRACE_S = 0.15
"""From the runtime's own terminate flag, which is looked at between nodes, to the end of the process."""


class Dispatcher:
    """Calls to one guard. The last connection is for going to sleep and waking, which do not wait for loads; the two
    before it are for loads and for texts, all others for runs.
    """

    def __init__(self, clock: Clock, connections: Sequence[socket.socket], answer_bytes_max: int) -> None:
        self._clock = clock
        self._answer_bytes_max = min(LARGEST_BYTES, answer_bytes_max)
        self._loop = asyncio.get_running_loop()
        self.runs, self.loads, self.texts, self.pages = (ChannelGroup() for _ in range(4))
        groups = [self.runs] * (len(connections) - 3) + [self.loads, self.texts, self.pages]
        pairs = zip(groups, connections, strict=True)
        self._channels = [Channel(index, group, one) for index, (group, one) in enumerate(pairs)]
        self._is_reading = False
        self.is_open = False
        self.last_used_ns = clock.now_ns()
        self.on_broken: Callable[[str, list[str] | None], None] = lambda reason, blamed: None
        """Told when the guard cannot go on: why, and whose fault it is, by build; None: what its end tells."""
        self.on_begin: Callable[[], None] = lambda: None
        self.on_taken: Callable[[int], None] = lambda count_bytes: None
        """Told what the guard says that it takes in all, when nothing else is under way in it: the memory of that is
        counted elsewhere."""
        self.stop_run: Callable[[int, int], None] = lambda channel, sequence: None
        """Asked to have a run end before its next node; it may not."""

    @property
    def under_way(self) -> dict[int, Call]:
        """By the number of their channel."""
        return {channel.index: channel.call for channel in self._channels if channel.call is not None}

    @property
    def is_busy(self) -> bool:
        return any(channel.call is not None for channel in self._channels)

    def open(self) -> None:
        """The guard is there. Raises: OSError."""
        self._is_reading = True
        for channel in self._channels:
            channel.open()
            self._loop.add_reader(channel.descriptor, self._readable, channel)
        self.is_open = True
        self.last_used_ns = self._clock.now_ns()

    def close(self, reason: str) -> None:
        """The guard has ended; whoever waits for an answer is told why."""
        self.is_open = False
        for channel in self._channels:
            if self._is_reading:
                self._loop.remove_reader(channel.descriptor)
            call, channel.call = channel.call, None
            channel.close()
            if call is not None:
                call.ended(self._clock.now_ns())
                call.lose(reason)
        for group in (self.runs, self.loads, self.texts, self.pages):
            while group.waiting:
                group.waiting.popleft().lose(reason)

    def ask(
        self,
        group: ChannelGroup,
        code: int,
        number: int,
        fields: tuple[str, ...],
        tensors: Tensors,
        settle: Settle,
        about: str,
        limit_ns: int,
        deadline_ns: int | None = None,
        on_time: Callable[[int], None] | None = None,
    ) -> asyncio.Future[Any]:
        """`limit_ns`: the guard's own, from now on; `deadline_ns`: when the caller gives up."""
        result: asyncio.Future[Any] = self._loop.create_future()
        self.last_used_ns = self._clock.now_ns()
        until_ns = self.last_used_ns + limit_ns
        is_limit_own = deadline_ns is None or until_ns <= deadline_ns
        if deadline_ns is not None:
            until_ns = min(until_ns, deadline_ns)
        call = Call(code, number, fields, tensors, result, settle, about, until_ns, is_limit_own, on_time=on_time)
        if not self.is_open:
            call.lose("it has ended before")
        elif group.free:
            channel = group.free.popleft()
            if not self._begin(channel, call):
                group.free.append(channel)
        else:
            group.waiting.append(call)
        return result

    def _begin(self, channel: Channel, call: Call) -> bool:
        """False where it cannot be sent: its caller is told so, and the channel is as free as before."""
        try:
            header = channel.begin(call)
        except Exception as error:  # a type or a size that cannot be sent, no memory for it
            kind = RunFailed if isinstance(error, OSError | MemoryError) else RunRefused
            call.finish(kind(variant_id=call.about, reason=str(error) or type(error).__name__))
            return False
        call.started_ns = self._clock.now_ns()
        delay_s = max(0.0, (call.until_ns - call.started_ns) / NS_PER_S)
        if call.is_run and call.is_limit_own:  # so that the process ends at the limit; a caller is told anyway
            delay_s -= min(STOP_GRACE_S, delay_s / 2)
        channel.timer = self._loop.call_later(delay_s, self._stop, channel, channel.sequence)
        try:
            channel.send(header)
        except OSError as error:
            self.on_broken(str(error), None)
            return True
        self.on_begin()
        return True

    # -- answers -------------------------------------------------------------------------------------------------------

    def _readable(self, channel: Channel) -> None:
        try:
            message = channel.receive()
            if message is None:
                return
            if channel.call is None:
                raise m.BadMessage("it answered what it was not asked")
            if message.code == m.NEEDS_AREA:
                self._enlarge_answer(channel, channel.call, message.number)
            else:
                self._settle(channel, channel.call, message)
        except OSError as error:
            self.on_broken(str(error), None)
        except m.BadMessage as error:  # nothing of ours would say this
            self.on_broken(f"it broke the protocol: {error}", None)

    def _enlarge_answer(self, channel: Channel, call: Call, need_bytes: int) -> None:
        if need_bytes <= self._answer_bytes_max:
            channel.enlarge_answer(need_bytes)
            return
        channel.send()  # before the channel is another call's
        reason = f"its outputs take {need_bytes} bytes, more than the {self._answer_bytes_max} that a run may take"
        self._finish(channel, call, RunRefused(variant_id=call.about, reason=reason))

    def _settle(self, channel: Channel, call: Call, message: m.Message) -> None:
        value: Any
        if message.code == m.DONE:
            value = call.settle(message, channel.tensors(message))
            if message.number and not call.is_run and len(self.under_way) == 1:
                self.on_taken(message.number)
        elif message.code == m.FAILED and len(message.fields) == 2:
            value = call.failed(*message.fields)
        else:
            raise m.BadMessage(f"an answer of the kind {message.code}")
        self._finish(channel, call, value, message.end)

    def _finish(self, channel: Channel, call: Call, value: Any, answer_bytes: int = 0) -> None:
        """The channel is free again; the next that waits for one begins."""
        channel.end(answer_bytes)
        call.ended(self._clock.now_ns())
        call.finish(value)
        self.last_used_ns = self._clock.now_ns()
        group = channel.group
        while group.waiting:
            waiting = group.waiting.popleft()
            if not waiting.result.done() and self._begin(channel, waiting):
                return
        group.free.append(channel)

    # -- limits --------------------------------------------------------------------------------------------------------

    def _stop(self, channel: Channel, sequence: int) -> None:
        """A call is at its limit: the runtime's flag first, then the process. See `_begin` for when that is."""
        call = channel.call
        if call is None or channel.sequence != sequence:
            return
        call.is_stopped = True
        if not call.is_run:
            self._kill(channel, sequence)
            return
        self.stop_run(channel.index, sequence)
        channel.timer = self._loop.call_later(STOP_GRACE_S, self._kill, channel, sequence)

    def _kill(self, channel: Channel, sequence: int) -> None:
        call = channel.call
        if call is not None and channel.sequence == sequence:
            # Who gave up early says nothing about the build.
            self.on_broken("a run in it took longer than it may", [call.about] if call.is_limit_own else [])
