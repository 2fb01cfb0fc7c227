"""Connections whose transport and requests are the test's."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from appliance.api.http.connections import Connections, Counted
from appliance.api.http.origins import Origins
from appliance.api.http.pace import Pace
from appliance.api.http.proxies import Proxies
from appliance.api.http.turns import Turns
from appliance.api.http.unread import Unread
from appliance.api.protocol import BoxProtocol
from appliance.clock import SystemClock

PATH = "/v2/models/m/infer"


class HandTransport(asyncio.Transport):
    """Notes what is written."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.written: list[bytes] = []
        self.is_closed = self.is_half_closed = False
        self.unread_bytes = 0

    def setsockopt(self, *_: int) -> None:
        """The transport is its own socket."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def fileno(self) -> int:
        return -1

    getpeername = getsockname
    family = socket.AF_INET

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_half_closed = True

    def set_protocol(self, protocol: Any) -> None:
        self.receiver = protocol

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connect(
    app: Callable[[Any, Any, Any], Any], unread: Unread | None = None, turns: Turns | None = None
) -> tuple[BoxProtocol, HandTransport]:
    """A protocol with an application and a transport, as after the connection was made."""
    protocol, transport = connect_to(app, unread, turns), HandTransport()
    protocol.connection_made(transport)
    return protocol, transport


def connect_to(
    app: Callable[[Any, Any, Any], Any], unread: Unread | None = None, turns: Turns | None = None
) -> BoxProtocol:
    """A protocol with an application, before the connection is made."""
    config = uvicorn.Config(app, interface="asgi3", lifespan="off", log_config=None, proxy_headers=False)
    connections = Connections[Counted](10, 1)
    pace = Pace(head_s=10, keep_alive_s=30, body_s=10, body_bytes_per_s_min=1000)
    return BoxProtocol(
        config,
        ServerState(),
        {},
        connections=connections,
        unread=Unread(2**20) if unread is None else unread,
        pace=pace,
        head_bytes_max=32 * 1024,
        turns=turns or Turns(SystemClock()),
        proxies=Proxies(),
        origins=Origins(),
    )


def head(size: int, *more: str, path: str = PATH) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: box", f"content-length: {size}", *more, "", ""]).encode()
