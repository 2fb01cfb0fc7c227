"""Requests that are answered later: they go on after their callers were told an id, and what came of them is kept for
a minute.

All of it is in memory, by tenant: nobody finds another's requests, and a restart forgets all. A tenant has so many of
them at most, and their results share one bound in bytes; nobody's result is dropped for another's.
"""

import asyncio
import json
import secrets
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.api.http.problems import problem_response
from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import ApplianceError, ResultNotKept, ShuttingDown, TooManyDeferred, UnknownRequest
from appliance.domain.request import DeferredState, Request
from appliance.runtime.engine.portions import Portions

KEPT_S = 60
"""A request is forgotten so long after its end."""
REQUESTS_MAX = 1000
"""Of one tenant: those under way and those that are kept."""
_POLL_S_MAX = 10

Answering = Callable[[Callable[[Request], None]], Coroutine[Any, Any, bytes]]
"""Gives the answer as JSON bytes; shows the first request that goes to the engine before."""


@dataclass(slots=True, eq=False)
class Deferred:
    """One of them."""

    id: str
    """Not to be guessed."""
    tenant: str
    """Who asked."""
    name: str
    """Of the application that was asked, or of the pipeline."""
    is_frame: bool
    """Of a pipeline."""
    begun_ns: int
    task: asyncio.Task[bytes] | None = None
    """Answers it; None once it is over."""
    request: Request | None = None
    """The first that went to the engine, while it is under way."""
    end: DeferredState | None = None
    ended_ns: int = 0
    told: bytes = b""
    """What is said of it from its end on."""
    held_bytes: int = 0
    """Of its result."""

    @property
    def state(self) -> DeferredState:
        """How far it is. Once a processor has begun with it, it is running until it is over."""
        if self.end is not None:
            return self.end
        is_running = self.request is not None and self.request.started_ns > 0
        return DeferredState.RUNNING if is_running else DeferredState.WAITING

    def document(self) -> bytes:
        """The JSON of a `RequestShape`."""
        return self.told or _document(self.id, self.state)

    def poll_after_s(self, now_ns: int) -> int | None:
        """When to ask again: after as long as it has taken so far. None: at once, or no more."""
        taken_s = (now_ns - self.begun_ns) // NS_PER_S
        return min(taken_s, _POLL_S_MAX) if self.end is None and taken_s > 0 else None

    def show(self, request: Request) -> None:
        """The engine is about to be asked."""
        self.request = request


class DeferredRequests:
    """All of them. Event-loop thread only."""

    def __init__(self, clock: Clock, logger: Any, *, bytes_max: int) -> None:
        """`bytes_max`: of all results together."""
        self._clock = clock
        self._logger = logger
        self._bytes = Portions(bytes_max)
        self.by_tenant: dict[str, dict[str, Deferred]] = {}
        """Tenant → id → request; those that have any."""
        self._tasks: set[asyncio.Task[bytes]] = set()
        self.kept = 0
        """Requests that are over."""
        self._is_closing = False

    @property
    def under_way(self) -> int:
        """Requests that are not over."""
        return len(self._tasks)

    @property
    def results_bytes(self) -> int:
        """Of the results that are kept."""
        return self._bytes.taken

    def check_room(self, tenant: str) -> None:
        """Whether a tenant may have one more. Raises: TooManyDeferred, ShuttingDown."""
        if self._is_closing:
            raise ShuttingDown()
        mine = self.by_tenant.get(tenant, {})
        if len(mine) < REQUESTS_MAX:
            return
        first_ns = min((one.ended_ns for one in mine.values() if one.end is not None), default=None)
        after_ns = NS_PER_S if first_ns is None else first_ns + KEPT_S * NS_PER_S - self._clock.now_ns()
        raise TooManyDeferred(tenant=tenant, requests_max=REQUESTS_MAX, retry_after_s=max(0, after_ns) / NS_PER_S)

    async def begin(
        self, tenant: str, name: str, answering: Answering, holds: ExitStack, *, is_frame: bool = False
    ) -> Deferred:
        """Begin with a request to an application, or with a frame of a pipeline. What `holds` holds is let go when it
        is over.

        What refuses the request before it has to wait for anything is raised here, and `holds` stays the caller's.
        Raises: TooManyDeferred, ShuttingDown, and what `answering` raises at once.
        """
        self.check_room(tenant)
        one = Deferred(secrets.token_hex(16), tenant, name, is_frame, self._clock.now_ns())
        self.by_tenant.setdefault(tenant, {})[one.id] = one
        one.task = task = asyncio.create_task(answering(one.show), name="deferred request")
        self._tasks.add(task)
        try:
            await asyncio.wait([task], timeout=0)  # its first step
            if task.done() and not task.cancelled():
                task.result()
        except BaseException:
            task.cancel()
            self._tasks.discard(task)
            self._forget(one)
            raise
        task.add_done_callback(partial(self._end, one, holds.pop_all()))
        return one

    def find(self, tenant: str, id: str) -> Deferred:
        """A request of a tenant. Raises: UnknownRequest."""
        one = self.by_tenant.get(tenant, {}).get(id)
        if one is None:
            raise UnknownRequest(name=id)
        return one

    def drop_tenant(self, tenant: str) -> None:
        """Break off and forget everything of a tenant that is gone: another of its name must not find it."""
        for one in list(self.by_tenant.get(tenant, {}).values()):
            if one.task is not None:
                one.task.cancel()
            self._forget(one)

    def refuse_new(self) -> None:
        """The box shuts down: nothing that begins now could be fetched."""
        self._is_closing = True

    async def drain(self, seconds: float) -> None:
        """Let nothing new begin, and wait for what is under way, at most so long; what is left then fails."""
        self.refuse_new()
        if not self._tasks:
            return
        _, left = await asyncio.wait(self._tasks, timeout=seconds)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _end(self, one: Deferred, holds: ExitStack, task: asyncio.Task[bytes]) -> None:
        """Keep what came of a request."""
        holds.close()
        self._tasks.discard(task)
        one.task = one.request = None
        error = ShuttingDown() if task.cancelled() else task.exception()  # nobody else cancels what is not dropped
        if not self._has(one):
            return
        if error is None:
            one.told = _document(one.id, DeferredState.DONE, b"result", task.result())
            error = self._hold(one)
        if error is not None:
            if not isinstance(error, ApplianceError):
                self._logger.exception("deferred request failed", exc_info=error, asked=one.name)
            problem = problem_response(error, f"/v1/requests/{one.id}")[2]
            one.told = _document(one.id, DeferredState.FAILED, b"problem", problem)
        one.end = DeferredState.DONE if error is None else DeferredState.FAILED
        one.ended_ns = self._clock.now_ns()
        self.kept += 1
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, one)

    def _hold(self, one: Deferred) -> ResultNotKept | None:
        """Count a result; or the error, where it finds no room."""
        need_bytes = len(one.told)
        if need_bytes > self._bytes.limit or not self._bytes.take(one.tenant, need_bytes):
            return ResultNotKept(need_bytes=need_bytes, limit_bytes=self._bytes.limit)
        one.held_bytes = need_bytes
        return None

    def _has(self, one: Deferred) -> bool:
        """Whether it was not forgotten."""
        return self.by_tenant.get(one.tenant, {}).get(one.id) is one

    def _forget(self, one: Deferred) -> None:
        if not self._has(one):
            return
        mine = self.by_tenant[one.tenant]
        del mine[one.id]
        if not mine:
            del self.by_tenant[one.tenant]
        if one.end is not None:
            self.kept -= 1
        if one.held_bytes:
            self._bytes.give(one.tenant, one.held_bytes)


def _document(id: str, state: DeferredState, member: bytes = b"", value: bytes = b"") -> bytes:
    """`value`: JSON already, and perhaps large."""
    frame = json.dumps({"id": id, "state": state}).encode()
    return frame[:-1] + b', "' + member + b'": ' + value + b"}" if member else frame
