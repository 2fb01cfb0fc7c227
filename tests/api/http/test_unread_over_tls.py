"""Answers over TLS that callers do not read."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from appliance.api.http.certificate import AUTHORITY, CERTIFICATE, KEY, ensure
from appliance.api.http.unread import Unread
from appliance.clock import SystemClock
from tests.api.http.exchanges import connect_to, head

pytestmark = [pytest.mark.usefixtures("ports"), pytest.mark.anyio]
MB = 2**20
ANSWER_BYTES = 32 * MB
"""Far more than two systems keep of a connection."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """uvloop, as the box is on."""
    return "asyncio", {"use_uvloop": True}


async def test_unread_answer_over_tls_is_counted(tmp_path: Path) -> None:
    """All of it that the system has not taken."""
    ensure(tmp_path, ["127.0.0.1"], SystemClock().wall_now())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    trusting = ssl.create_default_context(cafile=str(tmp_path / AUTHORITY))
    unread, written = Unread(MB), asyncio.Event()

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        length = str(ANSWER_BYTES).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": bytes(ANSWER_BYTES)})
        written.set()

    server = await asyncio.get_running_loop().create_server(
        lambda: connect_to(answers, unread), "127.0.0.1", 0, ssl=context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        try:
            writer.write(head(0, path="/v1/models"))
            await written.wait()
            assert unread.bytes > ANSWER_BYTES // 2
            assert len(await reader.readuntil(b"\r\n\r\n")) < 1000
            assert await reader.readexactly(ANSWER_BYTES) == bytes(ANSWER_BYTES)
        finally:
            writer.transport.abort()
