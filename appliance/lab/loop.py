"""Virtual time: an event loop whose clock jumps to the next timer, and the clock that reads it.

An hour of requests takes seconds and is the same every time: callbacks run in the order of their time, equal times in
the order of asking. There is no selector, so nothing can come from outside: threads, sockets, children and signals are
refused, and waiting for nothing is an error.
"""

import asyncio
import contextvars
import datetime
import heapq
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice
from types import AsyncGeneratorType
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from appliance.clock import NS_PER_S

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_NS = 1000 * NS_PER_S
"""Monotonic time at the start: not zero, because a clock of a real machine is never at zero when the box starts."""
EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""Civil time at the start."""
_TURNS_MAX = 100_000
"""Turns of the loop without any time passing: nobody needs as many, so something asks for its own next turn for
ever.
"""


class Deadlock(Exception):
    """Everything waits and no timer is set: nothing could ever happen again."""


class Livelock(Exception):
    """Callbacks follow one another for ever and no time passes."""


class LeftOpen(Exception):
    """A story has ended and left tasks or asynchronous generators behind."""


class Refused(Exception):
    """Something asked for what does not exist in virtual time: a thread, a socket, a child, a signal."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Serves timers and futures only.

    The base keeps the running, closing and task-making; time and the queues are here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = START_NS
        self.unhandled: list[BaseException] = []
        """Errors of callbacks and of tasks that nobody awaited."""
        self.generators = weakref.WeakSet[AsyncGeneratorType[Any, Any]]()
        """Asynchronous generators that have begun on this loop."""
        self.thrown_away: list[str] = []
        """Asynchronous generators that the garbage collector found before their end."""
        self._soon: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.Handle]] = []
        self._sequence = 0
        self._turns = 0
        self._idle_waiters: deque[asyncio.Future[None]] = deque()
        self.set_exception_handler(_remember)

    def time(self) -> float:
        return self.now_ns / NS_PER_S

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (round(when * NS_PER_S), self._sequence, handle))
        return handle

    def call_at_ns(self, when_ns: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Like `call_at`, exact to the nanosecond; cannot be cancelled."""
        self._sequence += 1
        heapq.heappush(self._timers, (when_ns, self._sequence, asyncio.Handle(callback, args, self)))

    async def idle(self) -> None:
        """Wait until all that can run without time passing has run: no callback is ready and no timer is due.

        Of several tasks that wait each returns to an idle loop, in the order of asking. Threads do not count: this loop
        refuses them. When something asks for its own next turn for ever, the loop ends with `Livelock`.
        """
        waiter: asyncio.Future[None] = self.create_future()
        self._idle_waiters.append(waiter)
        await waiter

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The base counts cancelled timers to clear its own heap; here they leave when their time comes."""

    def _asyncgen_firstiter_hook(self, agen: AsyncGeneratorType[Any, Any]) -> None:
        self.generators.add(agen)

    def _asyncgen_finalizer_hook(self, agen: AsyncGeneratorType[Any, Any]) -> None:
        """Close a generator that was thrown away before its end, as the base does, and note it."""
        self.thrown_away.append(repr(agen))
        if not self.is_closed():
            self.call_soon(self.create_task, agen.aclose())

    def _run_once(self) -> None:
        """Run one turn; the base calls this for as long as the loop runs: what is ready now, else what comes first."""
        soon = self._soon
        if not soon:
            self._make_ready()
        self._turns += 1
        if self._turns > _TURNS_MAX:
            going_on = ", ".join(_owner(handle) for handle in islice(soon, 3))
            raise Livelock(f"{_TURNS_MAX} turns and it is still {self.now_ns} ns; never idle: {going_on}")
        for _ in range(len(soon)):
            handle = soon.popleft()
            if not handle.cancelled():
                handle._run()

    def _make_ready(self) -> None:
        """Take the timers that are due, else wake one task that waits for an idle loop, else jump to the next timer."""
        timers, soon, waiters = self._timers, self._soon, self._idle_waiters
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if waiters and not (timers and timers[0][0] <= self.now_ns):
            wake(waiters.popleft())
            return
        if not timers:
            raise Deadlock("everything waits and nothing is left to happen")
        if timers[0][0] > self.now_ns:
            self.now_ns = timers[0][0]
            self._turns = 0
        while timers and timers[0][0] <= self.now_ns:
            soon.append(heapq.heappop(timers)[2])


class VirtualClock:
    """Port `Clock` on the running virtual loop. `step_ns` moves civil time only, as an operator or NTP would."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self.step_ns = 0

    def now_ns(self) -> int:
        return self._loop.now_ns

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        await self.alarm(deadline_ns)

    def alarm(self, at_ns: int) -> asyncio.Future[None]:
        """A future that is done at `at_ns`; it may be woken earlier by its owner (`wake`)."""
        loop = self._loop
        future: asyncio.Future[None] = loop.create_future()
        loop.call_at_ns(max(at_ns, loop.now_ns), wake, future)
        return future

    def wall_now(self) -> datetime.datetime:
        return EPOCH + datetime.timedelta(microseconds=(self._loop.now_ns - START_NS + self.step_ns) // 1000)


def run_virtual(story: Callable[[], Coroutine[Any, Any, T]], *, is_strict: bool = False) -> T:
    """Run `story()` to its end in virtual time.

    Tasks that the story leaves open are cancelled; with `is_strict` such tasks, and open generators, are an error.

    Raises: Deadlock when it hangs, Livelock, Refused, whatever the story raises, the first error that nobody handled,
    and, if `is_strict`, LeftOpen.
    """
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    left: list[str] = []
    try:
        try:
            result = loop.run_until_complete(story())
            if is_strict:
                left = _left_open(loop)
        finally:
            try:
                _cancel_all(loop)
            finally:
                asyncio.set_event_loop(None)
                loop.close()
    finally:
        if loop.unhandled:
            raise loop.unhandled[0]
    if left:
        raise LeftOpen("the story has ended, and these have not: " + "; ".join(left))
    return result


def _left_open(loop: VirtualLoop) -> list[str]:
    """Return the tasks that a story left open and that do not end without time passing, or else the generators."""
    loop.run_until_complete(loop.idle())
    tasks = sorted(map(repr, asyncio.all_tasks(loop)))
    return tasks or [*loop.thrown_away, *sorted(repr(one) for one in loop.generators if one.ag_frame is not None)]


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    loop._turns = 0
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=0))


def wake(future: asyncio.Future[None]) -> None:
    """Settle a future that nobody has settled yet."""
    if not future.done():
        future.set_result(None)


def _remember(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    error = context.get("exception")
    loop.unhandled.append(error if isinstance(error, BaseException) else RuntimeError(context["message"]))


def _owner(handle: asyncio.Handle) -> str:
    """Return the task that a callback goes on with, or the callback."""
    owner = getattr(getattr(handle, "_callback", None), "__self__", None)
    return repr(owner if isinstance(owner, asyncio.Task) else handle)


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: VirtualLoop, *args: object, **facts: object) -> NoReturn:
        raise Refused(f"there is no {name} in virtual time")

    refuse.__name__ = name
    return refuse


for _name in """run_in_executor set_default_executor call_soon_threadsafe getaddrinfo getnameinfo create_connection
    create_server create_unix_connection create_unix_server create_datagram_endpoint connect_accepted_socket
    start_tls sendfile sock_recv sock_recv_into sock_sendall sock_connect sock_accept sock_sendfile add_reader
    remove_reader add_writer remove_writer connect_read_pipe connect_write_pipe subprocess_shell subprocess_exec
    add_signal_handler remove_signal_handler""".split():
    setattr(VirtualLoop, _name, _refusal(_name))
