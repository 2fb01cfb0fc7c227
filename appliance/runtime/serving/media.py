"""The threads that turn media into tensors and outputs into answers.

Few and bounded: a burst of pictures waits in a short line instead of in memory, and one whose deadline passes in the
line is answered without being decoded. The threads' time goes to tenants by weight, as that of the workers does. A work
that has begun is not interrupted, so the last free thread is not for tenants whose works are long, while there are
others: a PNG of 6 kB may take half a second to decode, and as many of them as there are threads would be in the way of
whoever asks next.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import Any, TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import DeadlineExceeded, QueueFull
from appliance.runtime.engine.fairness import FairLine, Flow
from appliance.runtime.engine.portions import Portions

LONG_NS = 30 * NS_PER_MS
"""Of processor time; a work that takes more keeps whoever comes meanwhile waiting. A picture of a camera takes a few
milliseconds."""
REMEMBERED_NS = 10 * NS_PER_S
"""So long a tenant's works are known to be long, and so long others are taken to ask again."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Work:
    """A blocking function and who waits for its value."""

    tenant: str
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    weight: float = 1.0
    expected_ns: int = 0


@dataclass(slots=True, eq=False)
class _Tenant(Flow):
    """A tenant's works in the order of asking."""

    works: deque[_Work] = field(default_factory=deque)
    recent_ns: int = 0
    """What its latest work took: what the next is expected to take."""


@dataclass(slots=True)
class _Habits:
    """What a tenant's works were like of late."""

    asked_ns: int
    """When it asked last."""
    long_until_ns: int = 0
    """Until when they are taken to be long."""


class MediaPool:
    """Runs short blocking functions in threads; at most `waiting_max` are in line or under way, and no tenant's fill
    the line.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        threads: int,
        waiting_max: int,
        weight_of: Callable[[str], float],
        spent_ns: Callable[[], int] = thread_time_ns,
    ) -> None:
        """`weight_of` a tenant: its part of the threads' time where others want some, too. `spent_ns`: processor time
        of the thread that asks.
        """
        self._clock = clock
        self._spent_ns = spent_ns
        self._waiting_max = waiting_max
        self._weight_of = weight_of
        self._places = Portions(waiting_max)
        self._line: FairLine[_Tenant] = FairLine()
        self._tenants: dict[str, _Tenant] = {}
        self._threads = self._free = threads
        self._habits: dict[str, _Habits] = {}
        """Of those who have asked of late."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="media")

    @property
    def waiting(self) -> int:
        """In line or under way."""
        return self._places.taken

    async def run(self, application_id: str, tenant: str, deadline_ns: int | None, work: Callable[[], T]) -> T:
        """The value of `work()`.

        Raises: QueueFull, DeadlineExceeded (work that has begun is left to end unheard), and what `work` raises.
        """
        if not self._places.take(tenant):
            raise QueueFull(application_id=application_id, queue_len_max=self._waiting_max)
        start_ns = self._clock.now_ns()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = _Work(tenant, work, answer)
        self._habits.setdefault(tenant, _Habits(start_ns)).asked_ns = start_ns
        self._put(waiting)
        left_s = None if deadline_ns is None else max(0.0, (deadline_ns - start_ns) / NS_PER_S)
        try:
            async with asyncio.timeout(left_s):
                return await answer
        except TimeoutError:
            decoding_ms = (self._clock.now_ns() - start_ns) / NS_PER_MS
            raise DeadlineExceeded(waited_ms=decoding_ms, decoded_ms=decoding_ms) from None
        finally:
            self._leave(waiting)
            del answer, waiting  # an error holds this frame, and the answer holds the error

    def close(self) -> None:
        """Let go of the threads, after what they work on; what waits is cancelled."""
        for work in [work for tenant in self._tenants.values() for work in tenant.works]:
            work.answer.cancel()
            self._leave(work)
        self._executor.shutdown()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _put(self, work: _Work) -> None:
        tenant = self._tenants.setdefault(work.tenant, _Tenant())
        tenant.works.append(work)
        if tenant.entry is None:
            self._line.put(tenant)
        self._begin()

    def _leave(self, work: _Work) -> None:
        """Nobody waits for it any more; what has not begun never will."""
        tenant = self._tenants.get(work.tenant)
        if tenant is None or work not in tenant.works:
            return
        tenant.works.remove(work)
        self._places.give(work.tenant)
        if not tenant.works:
            self._line.drop(tenant)

    def _begin(self) -> None:
        """Give free threads what is next."""
        while self._free and (tenant := self._next()) is not None:
            work = tenant.works[0]
            work.weight, work.expected_ns = self._weight_of(work.tenant), tenant.recent_ns
            self._line.overtake(tenant, work.expected_ns, work.weight)
            tenant.works.popleft()
            if not tenant.works:
                self._line.drop(tenant)
            self._free -= 1
            self._submit(work)

    def _next(self) -> _Tenant | None:
        """Whose turn it is for a free thread; the last one of several only of those whose works are short, if any of
        these have asked of late.
        """
        first = self._line.first()
        if first is None or self._free > 1 or self._threads == 1:
            return first
        now_ns = self._clock.now_ns()
        if not self._is_long(first, now_ns) or self._are_all_long(now_ns):
            return first
        short = (tenant for tenant in self._tenants.values() if tenant.works and not self._is_long(tenant, now_ns))
        return min(short, key=self._line.start_of, default=None)

    def _is_long(self, tenant: _Tenant, now_ns: int) -> bool:
        return now_ns < self._habits[tenant.works[0].tenant].long_until_ns

    def _are_all_long(self, now_ns: int) -> bool:
        """Whether nobody is kept waiting who asks for little."""
        gone = [name for name, one in self._habits.items() if now_ns - one.asked_ns > REMEMBERED_NS]
        for name in gone:
            if now_ns >= self._habits[name].long_until_ns and name not in self._tenants:
                del self._habits[name]
        return all(now_ns < one.long_until_ns or now_ns - one.asked_ns > REMEMBERED_NS for one in self._habits.values())

    def _submit(self, work: _Work) -> None:
        loop = asyncio.get_running_loop()

        def call() -> None:
            start_ns, before_ns, value, error = self._clock.now_ns(), self._spent_ns(), None, None
            try:
                value = work.call()
            except BaseException as caught:
                error = caught
            took_ns, spent_ns = self._clock.now_ns() - start_ns, self._spent_ns() - before_ns
            try:
                loop.call_soon_threadsafe(self._end, work, took_ns, spent_ns, value, error)
            except RuntimeError:  # the loop closed meanwhile: nobody waits
                pass
            del value, error  # an error holds this frame

        self._executor.submit(call)

    def _end(self, work: _Work, took_ns: int, spent_ns: int, value: Any, error: BaseException | None) -> None:
        tenant = self._tenants[work.tenant]
        tenant.recent_ns = took_ns
        if spent_ns > LONG_NS:
            self._habits[work.tenant].long_until_ns = self._clock.now_ns() + REMEMBERED_NS
        self._line.end(tenant, took_ns - work.expected_ns, work.weight)
        self._places.give(work.tenant)
        self._free += 1
        answer = work.answer
        del work.answer  # an error holds the frames that hold the work: with the answer a circle, which keeps the body
        if answer.done():  # its caller went away
            pass
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)
        self._begin()
        if not self._line.is_busy:
            self._tenants.clear()  # they would all start equal
