"""Requests that come in pieces."""

from typing import Any

from hypothesis import strategies as st

from appliance.api.auth.callers import CONNECTION
from appliance.api.http.exchange import EXCHANGE, HttpExchange
from appliance.api.protocol import BoxProtocol
from tests.api.http.exchanges import HandTransport, head
from tests.fakes.clock import settle

CUTS = st.tuples(st.integers(1, 300), st.lists(st.integers(20_000, 300_000), min_size=1, max_size=8))


class Application:
    """Reads a body and answers with its length and last byte, or answers 429 at once."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange: HttpExchange = scope.pop(EXCHANGE)
        scope[CONNECTION].known("harbour")
        if b"x-refuse" in exchange.headers:
            text, status = b"refused", 429
        else:
            body = b""
            more = True
            while more:
                message = await exchange.receive()
                body += bytes(message["body"])
                more = message["more_body"]
            text, status = b"%d %d" % (len(body), sum(body[-1:])), 200
        assert exchange.answer(status, [(b"content-length", b"%d" % len(text))], text)


MORE = {"refuse": ["x-refuse: yes"], "upgrade": ["connection: Upgrade, HTTP2-Settings", "upgrade: h2c"]}


def sent(size: int, how: str, number: int, is_chunked: bool = False) -> bytes:
    body = bytes(max(0, size - 1)) + bytes([number]) * (size > 0)
    more = MORE.get(how, [])
    if not is_chunked:
        return head(size, *more) + body
    plain = head(0, *more).replace(b"content-length: 0", b"transfer-encoding: chunked")
    return plain + (b"%x\r\n%b\r\n" % (size, body) if size else b"") + b"0\r\n\r\n"


async def received(transport: HandTransport, protocol: BoxProtocol, data: bytes, cuts: tuple[int, list[int]]) -> None:
    """As the event loop does it: as much at once as the buffer takes that it is given."""
    before = protocol.received_bytes
    at = turn = 0
    while at < len(data):
        buffer = transport.receiver.get_buffer(-1)
        count = min(len(buffer), (cuts[1][turn % len(cuts[1])] if turn % 7 else cuts[0]), len(data) - at)
        buffer[:count] = data[at : at + count]
        transport.receiver.buffer_updated(count)
        at += count
        turn += 1
        await settle()
    assert protocol.received_bytes - before == len(data)
