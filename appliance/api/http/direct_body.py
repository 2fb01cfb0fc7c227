"""Bodies that go past the parser: where their length is known, to the place where they belong, or nowhere, when their
request is answered already.

Uvicorn copies a body three times: out of the buffer of the event loop, out of the parser, and to where it is gathered.
"""

import asyncio
from functools import partial
from typing import Any

import httptools

from appliance.api.http.bounded_protocol import BoundedProtocol
from appliance.api.http.discard import discard, tcp_file
from appliance.api.http.exchange import AlignedBody

_FEW_BYTES = 4096
"""Read at once of a connection whose owner has had its part of a turn of the event loop."""


class DirectBodyProtocol(BoundedProtocol):
    """Reads bodies past the parser; who begins with a request says in `_left_bytes` how much that may be."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left_bytes = 0
        """Of a body of known length, that the parser has not seen yet, and need not see."""
        self._parser_waits = False
        """For a body that goes past it."""
        self._large: AlignedBody | None = None
        """The body that is being read to its place, past the parser."""
        self._surplus_bytes = 0
        """Of a body that is still to come, past the parser, and is dropped: its request is answered."""
        self._tcp_file: int | None = None
        """Where that can be dropped unread."""

    def connection_made(self, transport: Any) -> None:
        transport.set_protocol(Receiver(self))
        self._tcp_file = tcp_file(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes | memoryview) -> None:
        """Whatever comes, in order; `data` is used now and not kept. For who begins with requests to say."""
        raise NotImplementedError

    def _feed(self, data: memoryview) -> None:
        super()._feed(data)
        self._leave_parser()

    def _feed_large(self, data: memoryview) -> None:
        """A head with much behind it: when its request reads its body past the parser, only the head is parsed."""
        end = bytes(data[: self._head_bytes_max]).find(b"\r\n\r\n") + 4
        if end < 4:
            self._feed(data)
            return
        body = data[end:]
        self._bare_bytes -= len(body)
        self._feed(data[:end])
        if self._large is not None or self._surplus_bytes:
            self.received_bytes -= len(body)
            self.data_received(body)
        else:
            self._bare_bytes += len(body)
            self._feed(body)

    def _leave_parser(self) -> None:
        """Go past it with the rest of a body of known length: to its place, or nowhere, when it is answered already."""
        if self._left_bytes:
            self._parser_waits = True
            self._go_past_parser()

    def _go_past_parser(self) -> None:
        body = self.cycle.body
        if self.cycle.response_complete:
            self._surplus_bytes, self._left_bytes = self._left_bytes, 0
        elif self.tenant is not None and isinstance(body, AlignedBody):
            self._large, self._left_bytes = body, 0

    def _into_place(self, data: bytes | memoryview) -> bytes | memoryview:
        """What has come of the body goes there; returns what comes after it."""
        body = self._large
        assert body is not None
        if self.cycle.response_complete:  # answered before it was there
            self._large, self._surplus_bytes = None, len(body.missing)
            return self._without_surplus(data)
        missing = body.missing
        count = min(len(data), len(missing))
        missing[:count] = data[:count]
        self.in_place(count)
        return data[count:]

    def in_place(self, count: int) -> None:
        """So many bytes were read to where they belong."""
        body = self._large
        assert body is not None
        self._bare_bytes = 0
        if body.filled(count):
            self._large = None
            self._body_has_come()

    def place(self) -> memoryview | None:
        """Where the next bytes belong; None: they must be looked at."""
        if self._large is None or self._ended or self.cycle.response_complete:
            return None
        return self._large.missing

    def expected_bytes(self) -> int | None:
        """How much to read and then look where what follows belongs; None: what there is."""
        return None

    def count(self, received: int) -> None:
        """Bytes that came past `data_received`."""
        self.received_bytes += received

    def _without_surplus(self, data: bytes | memoryview) -> bytes | memoryview:
        count = min(len(data), self._surplus_bytes)
        self._surplus_bytes -= count
        self._drop(count)
        if not self._surplus_bytes:
            self._body_has_come()
        return data[count:]

    def _drop_unread(self) -> None:
        """Drop what has come of a surplus, or after the last answer, where the kernel can do that by itself."""
        unwanted_bytes = self._dropped_bytes_max if self._ended else self._surplus_bytes
        if not unwanted_bytes or self._tcp_file is None or self.transport.is_closing():
            return
        count = discard(self._tcp_file, unwanted_bytes)
        self.received_bytes += count
        self._drop(count)
        if self._ended:
            return
        self._surplus_bytes -= count
        if not self._surplus_bytes:
            self._body_has_come()

    def _body_has_come(self) -> None:
        """The parser, which knows nothing of the body, begins anew."""
        if self._parser_waits:
            self._parser_waits = False
            self.parser = httptools.HttpRequestParser(self)
        self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        """A piece that the parser has seen."""
        self._left_bytes = max(0, self._left_bytes - len(body))
        super().on_body(body)


class Receiver(asyncio.BufferedProtocol):
    """Where what comes on a connection is read to: a body's own place, or a buffer of all connections."""

    _BUFFER = memoryview(bytearray(256 * 1024))
    """Used up in the call that follows."""

    def __init__(self, protocol: DirectBodyProtocol) -> None:
        self._protocol = protocol
        self._place: memoryview | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        self._place = self._protocol.place()
        if self._place is not None:
            return self._place
        expected = self._protocol.expected_bytes()
        if expected is None and self._protocol.is_over:
            expected = _FEW_BYTES
        return self._BUFFER if expected is None else self._BUFFER[:expected]

    def buffer_updated(self, nbytes: int) -> None:
        if self._place is None:
            self._protocol.take_turn(partial(self._protocol.data_received, self._BUFFER[:nbytes]))
        else:
            self._place = None
            self._protocol.count(nbytes)
            self._protocol.in_place(nbytes)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
