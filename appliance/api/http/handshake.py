"""TLS before HTTP: a connection counts from its beginning, and ends when its handshake takes too long.

The server of the event loop shows a connection to nobody before its handshake, and waits a minute for that.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from appliance.api.http.connections import Connections, Counted
from appliance.domain.errors import Busy


class Handshake(asyncio.Protocol):
    """A connection that has yet to agree on TLS; a stranger's until then. `make` has what speaks on it afterwards."""

    is_idle = False

    def __init__(
        self,
        context: ssl.SSLContext,
        connections: Connections[Counted],
        limit_s: float,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self._context = context
        self._all = connections
        self._limit_s = limit_s
        self._make = make
        self._shaking: asyncio.Task[Any] | None = None

    def connection_made(self, transport: Any) -> None:
        """Count it, and hand it over: what it says is for TLS, so that nothing may be read here."""
        peer = transport.get_extra_info("peername")
        try:
            gone = self._all.enter(self, str(peer[0]) if peer else "")
        except Busy:
            transport.abort()
            return
        accepted = transport.get_extra_info("socket").dup()
        transport.abort()  # the connection is that of `accepted` now
        if gone is not None:
            gone.give_way()
        self._shaking = asyncio.get_running_loop().create_task(self._shake(accepted))

    def give_way(self) -> None:
        """Close at once; another needs the place."""
        if self._shaking is not None:
            self._shaking.cancel()

    async def _shake(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            with suppress(OSError):  # also ssl.SSLError, and what a timeout is: it is closed then
                await loop.connect_accepted_socket(
                    self._make, accepted, ssl=self._context, ssl_handshake_timeout=self._limit_s
                )
        finally:
            self._all.leave(self)
