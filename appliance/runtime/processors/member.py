"""A kind of processor beside the first one of a group: whether it takes runs, what is loaded on it, and a watch over
its calls.

Such a kind may go, or stand still, without the box: what was loaded on it is lost then and what runs fails at once, so
that all of it is done again on another kind, and no worker waits for what may never end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import ProcessorLost
from appliance.domain.hardware import PreparedForm, ProcessorDescription, ProcessorStatus
from appliance.domain.request import Tensors
from appliance.domain.states import PROCESSOR_MOVES, ProcessorState, move
from appliance.runtime.processors.device_memory import DeviceMemory
from appliance.runtime.processors.group import InService

T = TypeVar("T")
_S = ProcessorState
RETRY_AFTER_S = 30.0
"""What callers are told where nothing else is left: a lost kind is probed about as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds after which a call of a kind counts as one that never ends; of a run only where it is not expected to
    take longer.
    """

    run_s: float = 30.0
    """A run without a deadline."""
    grace_s: float = 10.0
    """A run beyond its deadline: it is told to stop, and does so between two of its nodes."""
    load_s: float = 300.0
    unload_s: float = 60.0


@dataclass(slots=True, eq=False)
class _Call:
    """One that is under way: what the caller awaits, and the build that it is about."""

    answer: asyncio.Future[Any]
    handle: Any
    begun_ns: int
    timer: asyncio.TimerHandle


class Member:
    """Port `Processor` over another one, with its state. Event-loop thread only.

    It raises ProcessorLost where it takes no runs, and then every call that is under way ends with that.
    """

    def __init__(self, inner: InService, clock: Clock, limits: Limits = Limits()) -> None:
        self._inner = inner
        self._clock = clock
        self._limits = limits
        self.described = inner.describe()
        self.state = _S.NOT_RUN
        self.reason = "its probe has not ended yet"
        self._builds: dict[int, tuple[str, Any]] = {}
        """Identity of a handle → its build's id, and the handle."""
        self._calls: dict[asyncio.Future[Any], _Call] = {}
        self._burials: set[asyncio.Task[None]] = set()
        self._runs = 0
        self._busy_ns = 0
        self.on_change: Callable[[], None] = lambda: None
        """Told that it takes runs now, or none any more, before anything else follows from that."""
        self.on_lost: Callable[[str], None] = lambda build_id: None
        """Told of each build that has gone with it, by id."""
        self.rest_s: Callable[[Any, int], float] = lambda handle, begun_ns: 0.0
        """For how many seconds from now a run of a handle that began then, and is over its limit, may still take, by
        what is expected of it; 0: it should have ended."""

    # -- its state -----------------------------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        return self.state is _S.SERVING

    @property
    def is_clear(self) -> bool:
        """Whether nothing of what it was asked for is still under way."""
        return not self._calls and not self._burials

    def status(self) -> ProcessorStatus:
        status = ProcessorStatus(self.described, self.state, self.reason, self._runs, self._busy_ns / NS_PER_MS)
        if self.device_memory is None:
            return status
        used, budget = self.device_memory.held_bytes, self.device_memory.budget_bytes
        return replace(status, memory_used_bytes=used, memory_budget_bytes=budget)

    @property
    def device_memory(self) -> DeviceMemory | None:
        """Of a device that has its own."""
        return getattr(self._inner, "device_memory", None)

    def check_room(self, forms: Sequence[PreparedForm]) -> None:
        """Raises: LoadFailed where those of its kind cannot be in its device's memory together."""
        own = [form for form in forms if form.kind == self.described.kind]
        if own and self.device_memory is not None:
            self.device_memory.check(own)

    def serve(self) -> None:
        """From here on it takes runs."""
        self._to(_S.SERVING, "")

    def unfit(self, reason: str) -> None:
        """Its probe failed: again, where that is known already."""
        if self.state is not _S.UNFIT:
            self._to(_S.UNFIT, reason)
        self.reason = reason

    def lose(self, reason: str) -> None:
        """It has gone, or stands: its builds are lost, and all that is under way fails."""
        if not self.is_serving:
            return
        self._to(_S.LOST, reason)
        builds, self._builds = self._builds, {}
        for build_id, handle in builds.values():
            self.on_lost(build_id)
            self._bury(handle)
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(self._lost())

    def _to(self, state: ProcessorState, reason: str) -> None:
        self.state = move(PROCESSOR_MOVES, self.state, state)
        self.reason = reason
        self.on_change()

    def _lost(self) -> ProcessorLost:
        return ProcessorLost(processor=self.described.name, retry_after_s=RETRY_AFTER_S)

    # -- the port ------------------------------------------------------------------------------------------------------

    def describe(self) -> ProcessorDescription:
        return self.described

    async def load(self, form: PreparedForm) -> Any:
        if not self.is_serving:
            raise self._lost()
        load = self._inner.load(form)
        handle = await self._watched("a load", load, self._limits.load_s, None, self._bury)
        if not self.is_serving:  # lost the very moment it was there
            self._bury(handle)
            raise self._lost()
        self._builds[id(handle)] = (form.build_id, handle)
        return handle

    def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        return self._run(lambda: self._inner.run(handle, inputs, outputs, deadline_ns=deadline_ns), handle, deadline_ns)

    def run_rows(
        self,
        handle: Any,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> asyncio.Future[list[dict[str, Any]]]:
        return self._run(
            lambda: self._inner.run_rows(handle, requests, counts, outputs, deadline_ns=deadline_ns),
            handle,
            deadline_ns,
        )

    def _has(self, handle: Any) -> bool:
        """Whether a build is there; not one that was lost with it, and is dropped, though it is back."""
        return id(handle) in self._builds

    def _run(self, begin: Callable[[], Awaitable[T]], handle: Any, deadline_ns: int | None) -> asyncio.Future[T]:
        if not self.is_serving or not self._has(handle):
            lost: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            lost.set_exception(self._lost())
            return lost
        start_ns = self._clock.now_ns()
        limit_s = self._limits.run_s if deadline_ns is None else max(0.0, (deadline_ns - start_ns) / NS_PER_S)
        answer = self._watched("a run", begin(), limit_s + self._limits.grace_s, handle, _nothing, self.rest_s)
        answer.add_done_callback(partial(self._ran, start_ns))
        return answer

    def run_inline(self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        return self._inner.run_inline(handle, inputs, outputs)

    async def unload(self, handle: Any) -> None:
        if self._builds.pop(id(handle), None) is None:  # it was lost, and is dropped already
            return
        await self._watched("an unload", self._inner.unload(handle), self._limits.unload_s, handle, _nothing)

    def can_sleep(self, handle: Any) -> bool:
        return self._inner.can_sleep(handle)

    async def sleep(self, handle: Any) -> int:
        return await self._inner.sleep(handle)

    async def wake(self, handle: Any) -> None:
        await self._inner.wake(handle)

    async def fetch(self, handle: Any) -> None:
        await self._inner.fetch(handle)

    async def read_ahead(self, handle: Any) -> None:
        await self._inner.read_ahead(handle)

    def wake_ns(self, handle: Any) -> int:
        return self._inner.wake_ns(handle)

    def close(self) -> None:
        for call in self._calls.values():
            call.timer.cancel()
        self._inner.close()

    # -- the watch -----------------------------------------------------------------------------------------------------

    def _watched(
        self,
        what: str,
        call: Awaitable[Any],
        limit_s: float,
        handle: Any,
        unwanted: Callable[[Any], None],
        rest_s: Callable[[Any, int], float] = lambda handle, begun_ns: 0.0,
    ) -> asyncio.Future[Any]:
        """The answer to a call, which comes in any case: when the limit has passed, and nothing more is expected by
        `rest_s`, the kind is lost. `unwanted` is given what comes of the call after its caller has gone.
        """
        loop = asyncio.get_running_loop()
        begun_ns = self._clock.now_ns()
        under_way = asyncio.ensure_future(call)
        timer = loop.call_later(limit_s, self._overdue, under_way, what, limit_s, rest_s)
        self._calls[under_way] = known = _Call(loop.create_future(), handle, begun_ns, timer)
        under_way.add_done_callback(partial(self._ended, unwanted))
        return known.answer

    def _overdue(
        self, under_way: asyncio.Future[Any], what: str, waited_s: float, rest_s: Callable[[Any, int], float]
    ) -> None:
        call = self._calls[under_way]
        more_s = rest_s(call.handle, call.begun_ns)
        if more_s <= 0:
            self.lose(f"{what} has not ended within {waited_s:.3g} s")
            return
        loop = asyncio.get_running_loop()
        call.timer = loop.call_later(more_s, self._overdue, under_way, what, waited_s + more_s, rest_s)

    def _ended(self, unwanted: Callable[[Any], None], under_way: asyncio.Future[Any]) -> None:
        call = self._calls[under_way]
        call.timer.cancel()
        error = None if under_way.cancelled() else under_way.exception()
        if isinstance(error, ProcessorLost):
            self.lose(str(error))
        del self._calls[under_way]
        if call.answer.done():
            if error is None and not under_way.cancelled():
                unwanted(under_way.result())
        elif under_way.cancelled():
            call.answer.cancel()
        elif error is not None:
            call.answer.set_exception(error)
        else:
            call.answer.set_result(under_way.result())

    def _ran(self, start_ns: int, _: asyncio.Future[Any]) -> None:
        self._runs += 1
        self._busy_ns += self._clock.now_ns() - start_ns

    def _bury(self, handle: Any) -> None:
        """Drop a build that nobody will ask for again, however long that takes: in the kind's own threads, for what
        stands there would stop whoever drops it.
        """
        burial = asyncio.get_running_loop().create_task(self._drop(handle), name=f"drop {self.described.name}")
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)

    def _runs_of(self, handle: Any) -> list[asyncio.Future[Any]]:
        """Those under way, also where nobody waits for them any more."""
        return [under_way for under_way, call in self._calls.items() if call.handle is handle]

    async def _drop(self, handle: Any) -> None:
        if runs := self._runs_of(handle):
            await asyncio.wait(runs)
        with suppress(Exception):  # it has gone either way
            await self._inner.unload(handle)


def _nothing(_: Any) -> None:
    """What comes of a call whose caller has gone is of no use to anybody."""
