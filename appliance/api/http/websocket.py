"""A connection that speaks WebSocket (RFC 6455) from its handshake on, with bounds on what it may take: how large a
message is, how long one may take to come, how long a caller may be silent, and how much may wait to be read.

The parsing is that of `websockets`. What comes of a message is said as it is read and not in a queue, so that a message
can say how large the next one may be.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

WRITE_BYTES_MAX = 2 * 2**20
"""Of what waits for the caller to read it, beside the largest message of that; beyond it the connection is given up
when more is to be sent."""
MESSAGE_S = 10.0
"""How long one message may take to come, and how long a caller may take nothing of what is sent."""
SILENCE_S = 10.0
"""How long a caller may be silent before it is asked whether it is there, and then until it is taken to be gone."""
FRAMES_MAX = 2500
"""Frames (of messages, and such that control the connection) that may come between two calls of `look`: two of each
picture of the fastest camera, and clocks. To parse one takes ten microseconds, however small it is."""
CLOSING_S = 2.0
"""How long a caller may take to see that the connection is closed."""
_READ_BYTES = 256 * 1024
_SOME_BYTES = 4096
_FEW_BYTES = 128
"""A few clocks: all streams of an owner read so much in a turn in which it has had its part."""
_LOGGER = logging.getLogger("appliance.websocket")
_LOGGER.setLevel(logging.ERROR)
"""Of our own mistakes only: what callers do wrong they are told."""


class Broken(Enum):
    """Which bound was passed."""

    TOO_LARGE = auto()
    TOO_SLOW = auto()
    NOT_READ = auto()
    NO_ROOM = auto()
    TOO_MANY = auto()


class Listener(Protocol):
    """Who is told what comes. All calls are made inside the event loop's read; none may wait."""

    @property
    def is_amid(self) -> bool:
        """Whether a message is to follow the last one at once."""
        ...

    def text(self, message: bytes) -> None:
        """A whole text message, perhaps no UTF-8."""
        ...

    def binary(self, message: bytes) -> None:
        """A whole binary message."""
        ...

    def gathered(self, count: int) -> bool:
        """So many bytes are kept of a message that is not whole; false where there is no room for them. Told when
        that has changed, after what is whole.
        """
        ...

    def turn_ended(self) -> None:
        """All that has come in this turn of the event loop has been told; what is sent now leaves with it."""
        ...

    def broken(self, bound: Broken) -> None:
        """The connection is closed right after this, with whatever is sent now before it."""
        ...

    def each_second(self) -> None:
        """About once a second."""
        ...


class Owner(Protocol):
    """The HTTP connection that a WebSocket began as."""

    def refuse_upgrade(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """The handshake is answered with this, and the connection ends as any other one."""
        ...

    def congested(self) -> None:
        """More waits for the caller than before: another connection may have to give way, or this one later."""
        ...

    def drained(self) -> None:
        """The caller has read most of that."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether whoever the connection is of has had its part of this turn of the event loop."""
        ...

    def take_turn(self, work: Callable[[], None]) -> None:
        """Do work that counts for whoever the connection is of; what takes too much is read on in a later turn."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """As the transport says it."""
        ...


class _Framing(ServerProtocol):
    """Tells of each frame when it is read, so that a bound holds for the very next one."""

    def __init__(self, on_frame: Callable[[Frame], None], on_too_large: Callable[[], None]) -> None:
        super().__init__(logger=_LOGGER)
        self._on_frame = on_frame
        self._on_too_large = on_too_large

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        self.events.clear()
        self._on_frame(frame)

    def end(self, code: int, reason: str) -> None:
        """Close it because we say so; what has come with the present frame is not parsed any more."""
        super().fail(code, reason)
        self.reader.discard()

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """The parser's word on what has come."""
        if code == CloseCode.MESSAGE_TOO_BIG and self.state is OPEN:
            self._on_too_large()
        super().fail(code, reason)


class WebSocket(asyncio.BufferedProtocol):
    """What receives for a transport whose HTTP ended with a handshake; it waits until that is accepted."""

    _BUFFER = memoryview(bytearray(_READ_BYTES))
    """Of all connections: used up in the call that follows."""

    def __init__(self, transport: Any, head: bytes, owner: Owner) -> None:
        """`head`: of the request, whole. Nothing is read before `accept`."""
        self.closed = asyncio.Event()
        """Set when the transport is."""
        self.message_bytes_max = 0
        """Of the next message."""
        self._transport = transport
        self._owner = owner
        self._framing = _Framing(self._frame, self._too_large)
        self._framing.receive_data(head)
        self._request = next((one for one in self._framing.events_received() if isinstance(one, Request)), None)
        self._listener: Listener | None = None
        self._pieces: list[bytes] = []
        self._is_text = False
        self._is_in_turn = False
        self._is_write_paused = False
        self._received_bytes = self._whole_bytes = 0
        """What has come, and of that what belongs to whole frames."""
        self._pieces_bytes = self._told_bytes = 0
        """Of a message that is not whole: in the pieces that have come, and in all, as was told."""
        self._largest_bytes = 0
        """Of what was sent at once and may still wait to be read."""
        self._is_drained = asyncio.Event()
        """The caller has read most of what was sent, or is gone."""
        self._is_drained.set()
        self._messages = self._drains = 0
        self.recent_frames = 0
        """Since the last `look`."""
        self._watched: dict[str, tuple[object, float]] = {}
        transport.set_protocol(self)
        transport.pause_reading()

    # -- the handshake -------------------------------------------------------------------------------------------------

    def accept(self, listener: Listener, message_bytes_max: int) -> bool:
        """Answer the handshake and begin to read. False: it was none, and has been answered so."""
        if self._transport.is_closing():
            return False
        if self._request is None:
            self._transport.abort()
            return False
        response = self._framing.accept(self._request)
        self._framing.send_response(response)
        self._listener = listener
        self.message_bytes_max = self._framing.max_message_size = message_bytes_max
        self._flush()
        is_open = self._framing.state is OPEN
        self._transport.resume_reading()
        if not is_open:
            self._transport.close()
        return is_open

    def refuse(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer the handshake with something else."""
        if not self._transport.is_closing():
            self._owner.refuse_upgrade(status, headers, body)
            self.closed.set()

    # -- sending -------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether what is sent may still arrive."""
        return self._framing.state is OPEN and not self._transport.is_closing()

    @property
    def is_congested(self) -> bool:
        """Whether the caller has yet to read what was sent."""
        return self._is_write_paused

    async def drained(self) -> None:
        """Until the caller has read most of what was sent, or is gone."""
        await self._is_drained.wait()

    def send_text(self, message: bytes) -> None:
        """Send a text message; nothing where the connection is closed."""
        if self.is_open:
            self._framing.send_text(message)
            self._flush_soon()

    def send_binary(self, message: bytes) -> None:
        """The same with a binary one."""
        if self.is_open:
            self._framing.send_binary(message)
            self._flush_soon()

    def close(self, code: int, reason: str = "") -> None:
        """Close it, after what was sent; what still comes is not told."""
        if self._transport.is_closing():
            return
        if self._listener is None:
            self._transport.close()
        elif self._framing.state is OPEN:
            self._framing.end(code, reason)
            self._flush_soon()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def _flush_soon(self) -> None:
        """At the end of the turn where one is read, so that its messages leave together."""
        if not self._is_in_turn:
            self._flush()

    def _flush(self) -> None:
        writes = self._framing.data_to_send()
        if not writes or self._transport.is_closing():
            return
        ends = not writes[-1]
        if not ends and self._transport.get_write_buffer_size() > WRITE_BYTES_MAX + self._largest_bytes:
            self._transport.abort()
            return
        content = b"".join(writes)
        self._largest_bytes = max(self._largest_bytes, len(content))
        self._transport.write(content)
        if self._is_write_paused:
            self._owner.congested()
        if ends and self._transport.can_write_eof():
            self._transport.write_eof()  # closed at once, the caller might lose the last messages to a reset
        elif ends:
            self._transport.close()

    # -- what comes ----------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for the rest of a picture, or for some short messages; where others wait for their turn, for a part of
        it, or for few.
        """
        missing = self.message_bytes_max - (self._received_bytes - self._whole_bytes + self._pieces_bytes)
        if self._owner.is_over:
            return self._BUFFER[: _FEW_BYTES if missing <= _SOME_BYTES else _SOME_BYTES]
        return self._BUFFER[: max(_SOME_BYTES, missing)]

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.take_turn(partial(self._take, nbytes))

    def _take(self, nbytes: int) -> None:
        self._received_bytes += nbytes
        self._is_in_turn = True
        self._framing.receive_data(self._BUFFER[:nbytes])  # type: ignore[arg-type]  # it is copied
        assert self._listener is not None
        self._listener.turn_ended()
        if self._framing.state is OPEN:
            self._tell_gathered(self._listener)
        self._is_in_turn = False
        self._flush()

    def _tell_gathered(self, listener: Listener) -> None:
        count = self._received_bytes - self._whole_bytes + self._pieces_bytes
        if count != self._told_bytes:
            self._told_bytes = count
            if not listener.gathered(count):
                self._break(Broken.NO_ROOM)

    def _frame(self, frame: Frame) -> None:
        """One frame, of which a message may have several."""
        assert self._listener is not None
        self._whole_bytes = self._received_bytes - len(self._framing.reader.buffer)
        self.recent_frames += 1
        if self.recent_frames > FRAMES_MAX and self._framing.state is OPEN:
            self._break(Broken.TOO_MANY)
            return
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        if not frame.fin:
            if frame.data:
                self._pieces.append(bytes(frame.data))
                self._pieces_bytes += len(frame.data)
            return
        message = bytes(frame.data) if not self._pieces else b"".join([*self._pieces, frame.data])
        self._pieces.clear()
        self._pieces_bytes, self._told_bytes = 0, -1  # to be told anew, whatever is left
        self._messages += 1
        if self._framing.state is OPEN:
            (self._listener.text if self._is_text else self._listener.binary)(message)
        self._framing.max_message_size = self.message_bytes_max

    def _too_large(self) -> None:
        assert self._listener is not None
        self._listener.broken(Broken.TOO_LARGE)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._is_drained.clear()
        self._owner.congested()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._is_drained.set()
        self._owner.drained()
        self._largest_bytes = 0
        self._drains += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.clear()
        self._is_drained.set()
        self.closed.set()
        self._owner.connection_lost(exc)

    # -- its pace ------------------------------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Close the connection when it takes too long; to be called about once a second."""
        if self._listener is None or self._transport.is_closing():
            return
        if self._framing.state is not OPEN:
            if self._has_lasted("closing", None, now_s, CLOSING_S):
                self._transport.abort()
            return
        self.recent_frames = 0
        is_amid = self._received_bytes != self._whole_bytes or bool(self._pieces) or self._listener.is_amid
        if is_amid and self._has_lasted("message", self._messages, now_s, MESSAGE_S):
            self._break(Broken.TOO_SLOW)
        elif self._is_write_paused and self._has_lasted("reading", self._drains, now_s, MESSAGE_S):
            self._break(Broken.NOT_READ)
        elif self._has_lasted("silence", self._received_bytes, now_s, SILENCE_S):
            self._ask(now_s)
        else:
            self._listener.each_second()
        if not is_amid:
            self._watched.pop("message", None)

    def _has_lasted(self, what: str, state: object, now_s: float, limit_s: float) -> bool:
        """Whether something has been in the same state for so long."""
        known = self._watched.get(what)
        if known is None or known[0] != state:
            self._watched[what] = state, now_s
            return False
        return now_s - known[1] >= limit_s

    def _ask(self, now_s: float) -> None:
        """Nothing has come for long: a ping the first time, the end the second."""
        state, _ = self._watched["silence"]
        if self._watched.get("asked", (None, 0.0))[0] == state:
            self._transport.abort()
            return
        self._watched["asked"] = state, now_s
        self._watched["silence"] = state, now_s
        self._framing.send_ping(b"")
        self._flush()

    def _break(self, bound: Broken) -> None:
        assert self._listener is not None
        self._listener.broken(bound)
        if bound is Broken.NOT_READ:
            self._transport.abort()
        else:
            self.close(CloseCode.POLICY_VIOLATION)
