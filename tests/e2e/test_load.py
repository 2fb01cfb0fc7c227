"""What the load generator sends, and that it notices when a request is refused."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e import load

pytestmark = pytest.mark.usefixtures("ports", "processes")

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 6\r\n\r\nheight"
ASKED = [b"a", b"b", b"c"]


def order(port: int, **facts: Any) -> dict[str, Any]:
    requests = [base64.b64encode(one).decode() for one in ASKED]
    return {"port": port, "requests": requests, "connections": 2, "seconds": 0.2, **facts}


@pytest.mark.parametrize("in_turn", [False, True])
def test_load_connection_repeats_its_request_or_sends_all_in_turn(in_turn: bool) -> None:
    came: list[list[bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own: list[bytes] = []
        came.append(own)
        while one := await reader.read(1):
            own.append(one)
            writer.write(ANSWER)
        writer.close()

    async def driven() -> dict[str, Any]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            return await load.driven(order(server.sockets[0].getsockname()[1], in_turn=in_turn))

    found = asyncio.run(driven())
    assert (found["errors"], found["refusal"]) == (0, "")
    expected = [[b"a", b"b", b"c", b"a"], [b"b", b"c", b"a", b"b"]] if in_turn else [[b"a"] * 4, [b"b"] * 4]
    assert sorted(own[:4] for own in came) == expected


@contextmanager
def refusing() -> Iterator[int]:
    """A server that refuses whatever it is asked, in a thread; its port."""
    ports: list[int] = []
    is_up, loop = threading.Event(), asyncio.new_event_loop()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1):
            writer.write(REFUSAL)
        writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            ports.append(server.sockets[0].getsockname()[1])
            is_up.set()
            await is_over.wait()

    is_over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    is_up.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


def test_load_run_fails_when_requests_are_refused() -> None:
    """Refusals are quicker than runs, so they would be the best figures of all."""
    with refusing() as port:
        with pytest.raises(RuntimeError, match=r"(?s)refused: HTTP/1\.1 400.*height"):
            load.drive(port, ASKED, 1, 0.1)
        found = load.drive(port, ASKED, 1, 0.1, may_fail=True)
    assert found["errors"] == found["count"] > 0
