"""Uvicorn's HTTP protocol with one write per answer instead of two, made after everything that has arrived has been computed.

A write is a system call of several microseconds, and it empties the processor's branch predictors. Uvicorn makes two per answer, in the midst of
the computing. Corked, the head and the body leave together at the end of the event loop's turn: one request is computed after another with warm
code, then one answer is sent after another.
"""

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from appliance.api.exchange import EXCHANGE, Exchange


class CorkedTransport:
    """A transport whose writes of one turn of the event loop are joined. Everything else is the real transport's."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep `data` for the end of the turn."""
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)

    def flush(self) -> None:
        """Write what was kept, in one piece."""
        pending, self._pending = self._pending, []
        if pending:
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def close(self) -> None:
        """Close behind what was written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


BODY_WATER_BYTES = 640 * 1024
"""Bytes of a body that may gather before the application is woken and reading pauses; a 224 × 224 picture as floats has 588 KiB.

Uvicorn's 64 KiB makes ten rounds of waking, pausing and resuming of it, half a millisecond."""

BODY_SMALL_BYTES = 16 * 1024
"""Below this a copy of the body costs less than preparing to do without."""


class CorkedProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=...)`."""

    def connection_made(self, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BODY_WATER_BYTES)
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]

    def on_headers_complete(self) -> None:
        """Offer the handler of `/v2` the exchange; it begins to run at the end of the loop's turn."""
        super().on_headers_complete()
        if self.scope["path"].startswith("/v2/"):
            exchange = Exchange(self.cycle, dict(self.headers))
            exchange.align_body(BODY_SMALL_BYTES, BODY_WATER_BYTES)
            self.scope[EXCHANGE] = exchange  # type: ignore[literal-required]

    def on_body(self, body: bytes) -> None:
        """Gather the body; the end of the message wakes the application, or a full measure."""
        if self.parser.should_upgrade() or self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > BODY_WATER_BYTES:
            self.flow.pause_reading()
            self.cycle.message_event.set()
