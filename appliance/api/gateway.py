"""The first fork of the way: `/v2` goes to its bare handler, streams to theirs, the rest through the framework."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from appliance.api.auth.callers import CONNECTION, owner_of
from appliance.api.box import ServingBox
from appliance.api.http.exchange import EXCHANGE, HttpExchange
from appliance.api.http.limits import ASGIApp, Receive, Scope, Send
from appliance.api.http.turns import Turns
from appliance.api.v2.handler import V2

if TYPE_CHECKING:
    from appliance.api.streams.opening import Streams


class Gateway:
    """An ASGI application. Lifespan messages go to the framework."""

    def __init__(self, box: Callable[[], ServingBox], v2: V2, service: ASGIApp, turns: Turns) -> None:
        self._turns = turns
        self._box = box
        self._v2 = v2
        self._service = service
        self._streams: Streams | None = None
        self._arrived: list[tuple[Scope, Callable[[], None]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["path"].startswith("/v2/") or scope["path"] == "/v2"):
            await self._v2(scope, receive, send)
        else:
            await self._service(scope, receive, send)

    async def streams(self) -> "Streams":
        """The streams of sessions. What they need is imported with the first one, in a thread: it is needed for no
        answer of `/v2`, and would hold the event loop.
        """
        if self._streams is None:
            made = (await asyncio.to_thread(_streams))(self._box())
            self._streams = self._streams or made
        return self._streams

    def begin(self, scope: Scope) -> Callable[[], None] | None:
        """Begin with a request of `/v2` outside any task: as `V2.begin`."""
        return self._v2.begin(scope)

    def answer_soon(self, scope: Scope, go_on: Callable[[], None]) -> None:
        """Answer a request of `/v2` whose `EXCHANGE` has the whole body, at the end of this turn of the event loop; or
        `go_on` with it in a task.

        What has arrived in one turn is read first, computed then, and written last: each step finds its code warm,
        which a system call between them would cool. Computed and written where it arrives, a request takes a quarter
        more processor time.
        """
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._answer_arrived)
        self._arrived.append((scope, go_on))

    def _answer_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        writes = []
        turns, now_ns = self._turns, self._turns.now_ns()
        for scope, go_on in arrived:
            connection = scope.get(CONNECTION)
            owner = owner_of(scope)
            if connection is not None and connection.is_over:
                turns.next(owner, partial(self.answer, scope, go_on))
                continue
            writes.append(self._answered(scope, go_on))
            before_ns, now_ns = now_ns, turns.now_ns()
            turns.took(owner, now_ns - before_ns)
        for write in writes:
            write()

    def answer(self, scope: Scope, go_on: Callable[[], None]) -> None:
        """As `answer_soon`, now."""
        self._answered(scope, go_on)()

    def _answered(self, scope: Scope, go_on: Callable[[], None]) -> Callable[[], None]:
        """Go on with a request as far as it goes; what is returned writes its answer, or is `go_on`. Where it waits for
        its run that is nothing: it goes on when the run is over, and needs no task then.
        """
        exchange: HttpExchange | None = scope.get(EXCHANGE)
        if exchange is None:  # the caller has left meanwhile
            return _nothing
        write = self._v2.begin(scope)
        if write is not None:
            return write
        begun = exchange.begun
        if begun is not None and begun.when_ready(partial(self.answer, scope, go_on)):
            return _nothing
        return go_on


def _streams() -> "type[Streams]":
    from appliance.api.streams.opening import Streams

    return Streams


def _nothing() -> None:
    """Its answer is written later."""
