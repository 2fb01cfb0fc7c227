"""Uvicorn's HTTP protocol, with a shorter way for `/v2`: small requests begin when their body is there, and are
answered together.

Uvicorn begins a task with the headers, wakes it for the body, and writes an answer in two system calls in the midst of
the computing.
"""

import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from appliance.api.gateway import Gateway
from appliance.api.http.exchange import EXCHANGE, HttpExchange

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

BODY_WATER_BYTES = 640 * 1024
"""Bytes of a body that may gather before the application is woken and reading pauses; a 224 × 224 picture as floats has
588 KiB.

Uvicorn's 64 KiB makes ten rounds of waking, pausing and resuming of it, half a millisecond."""

BODY_SMALL_BYTES = 16 * 1024
"""A body below this is kept before anybody looks at the request, and a copy of it costs less than preparing to do
without.
"""


class BoxProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=...)`."""

    _gathering: "ASGI3Application | None" = None
    """Who is to answer the request whose body is being gathered."""

    def connection_made(self, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BODY_WATER_BYTES)
        super().connection_made(transport)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Offer the handler of `/v2` the exchange.

        It begins when a small body is there; before a large one, so that a stranger's is refused unread.
        """
        if cycle.scope["path"].startswith("/v2/"):
            exchange = HttpExchange(cycle, dict(cycle.scope["headers"]))
            cycle.scope[EXCHANGE] = exchange  # type: ignore[literal-required]
            if exchange.awaits_little(BODY_SMALL_BYTES):
                self._gathering = app
                return
            exchange.align_body(BODY_WATER_BYTES)
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """Begin with a request that waited for its body, at the end of the turn, and then perhaps without a task."""
        super().on_message_complete()
        app, self._gathering = self._gathering, None
        if app is None:
            return
        cycle = self.cycle
        begin = partial(super()._start_asgi_task, cycle, app)
        if isinstance(app, Gateway):
            app.answer_soon(cycle.scope, begin)  # type: ignore[arg-type]
        else:
            begin()

    def on_body(self, body: bytes) -> None:
        """Gather the body; the end of the message wakes the application, or a full measure."""
        if self.parser.should_upgrade() or self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > BODY_WATER_BYTES:
            self.flow.pause_reading()
            self.cycle.message_event.set()
