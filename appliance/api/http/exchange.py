"""A request and its answer as plain calls, beside ASGI's `receive` and `send`: what the hot path uses where the server
offers it.

ASGI hands a body over as a copy and takes an answer in two messages, each through a coroutine. An exchange hands over
the very buffer that the body was gathered in, and writes an answer in one call.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from appliance.runtime.serving.eager import Begun, gone_on_with

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

BLANKS = b" \t"
"""May stand around the value of a header; the parser leaves those behind it."""
EXCHANGE = "appliance.exchange"
"""Its place in the scope."""
ALIGNMENT_BYTES = 64
SIZE = b"content-length"
AHEAD = b"inference-header-content-length"
"""How much of a body is JSON, with tensors behind it."""


class AlignedBody:
    """Gathers a body of known size such that what stands behind its first `ahead` bytes begins at a multiple of 64.

    Tensors behind their JSON are then views; anywhere else three of four would have to be copied to an address that
    their type may have. Stands in for the `bytearray` of uvicorn. It takes memory with the first byte: a request that
    is refused by its head never does.
    """

    __slots__ = ("_ahead", "_filled", "_room", "size")

    def __init__(self, size: int, ahead: int) -> None:
        self.size = size
        self._ahead = ahead
        self._room: memoryview | None = None
        self._filled = 0

    def __iadd__(self, piece: bytes) -> "AlignedBody":
        self.missing[: len(piece)] = piece
        self._filled += len(piece)
        return self

    def __len__(self) -> int:
        return self._filled

    def __bool__(self) -> bool:
        return True  # also before any of it has come

    @property
    def missing(self) -> memoryview:
        """Where the rest of it belongs; `filled` says how much of that has come."""
        if self._room is None:
            self._room = _room(self.size, self._ahead)
        return self._room[self._filled :]

    def filled(self, count: int) -> bool:
        """So many bytes more were written into `missing`; whether that was all of it."""
        self._filled += count
        return self._filled == self.size

    def __bytes__(self) -> bytes:
        return bytes(self.view())

    def view(self) -> memoryview:
        """What has come so far."""
        return memoryview(b"") if self._room is None else self._room[: self._filled]


_SPARE_MAX = 2
"""Rooms of bodies that are kept for the next ones: memory that was just used is in the processor's caches, and fresh
memory costs a request of 600 kB a seventh of a millisecond."""
_UNUSED = next(getrefcount(each) for each in [np.empty(0, np.uint8)])
"""References to a spare room that nobody has a view of: the list's, and those of who counts them, as `_room` does."""
_spare: list[np.ndarray] = []


def _room(size: int, ahead: int) -> memoryview:
    """Memory for a body, aligned behind its first `ahead` bytes."""
    needed = size + ALIGNMENT_BYTES
    for room in _spare:
        if len(room) == needed and getrefcount(room) == _UNUSED:
            break
    else:
        room = np.empty(needed, np.uint8)
        _spare.append(room)
        if len(_spare) > _SPARE_MAX:
            del _spare[0]
    start = -(room.__array_interface__["data"][0] + ahead) % ALIGNMENT_BYTES
    return room.data[start : start + size]


class HttpExchange:
    """One request over uvicorn's `cycle`. `headers` are its headers, the last of a name; `size` what they say of its
    body's length, None where they say nothing sane.

    Whoever answers takes it out of the scope: left there, it would keep the whole request alive until the garbage
    collector finds the circle.
    """

    __slots__ = ("_cycle", "_ends_with", "begun", "headers", "is_gathering", "size")

    def __init__(
        self,
        cycle: "RequestResponseCycle",
        headers: Mapping[bytes, bytes],
        ends_with: "Callable[[RequestResponseCycle], bool]",
    ) -> None:
        """`ends_with`: whether the connection ends with the answer that is about to be written."""
        self._cycle = cycle
        self._ends_with = ends_with
        self.headers = headers
        self.size = number(headers.get(SIZE))
        self.begun: Begun[Any] | None = None
        """The rest of the answer, where its making has begun without a task."""
        self.is_gathering = False
        """Whether that waits for the whole body, and needs no task until it is there."""

    def awaits_little(self, small: int) -> bool:
        """Whether all that is missing is a body of less than `small` bytes, so little that anybody may have it kept."""
        cycle, size = self._cycle, self.size
        return size is not None and size < small and cycle.more_body and not cycle.waiting_for_100_continue

    def align_body(self, size_max: int) -> AlignedBody | None:
        """Prepare for a body of known size, at most so many bytes, of which none has come; tensors behind its JSON will
        be aligned. None: it is another one.
        """
        cycle, size = self._cycle, self.size
        ahead = number(self.headers.get(AHEAD)) or 0
        if size is None or not ahead <= size <= size_max or not cycle.more_body or cycle.body:
            return None
        body = AlignedBody(size, ahead)
        cycle.body = body  # type: ignore[assignment]
        return body

    def close(self) -> None:
        """The caller has left: what is begun for it outside a task is ended."""
        if self.begun is not None:
            self.begun.close()
            self.begun = None

    @property
    def can_answer(self) -> bool:
        """Whether `answer` would answer, the connection stays for more, and the answer has a body."""
        cycle = self._cycle
        is_free = cycle.keep_alive and not cycle.flow.write_paused and not cycle.disconnected
        return is_free and cycle.scope["method"] != "HEAD"

    def small_body(self, small: int) -> bytearray | memoryview | None:
        """The body, which is the caller's from now on, where all of it has come and it has at most so many bytes."""
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected or len(cycle.body) > small:
            return None
        whole, cycle.body = self.body(), bytearray()
        return whole

    def body(self) -> bytearray | memoryview:
        """What of the body has come, uncopied."""
        body = self._cycle.body
        return body.view() if isinstance(body, AlignedBody) else body

    async def receive(self) -> dict[str, Any]:
        """As ASGI's, but the body is not copied: a `bytearray` or `memoryview` that belongs to the caller from now
        on.
        """
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue:
            if cycle.waiting_for_100_continue or cycle.disconnected or cycle.response_complete:
                return dict(await cycle.receive())
            cycle.flow.resume_reading()
            if isinstance(cycle.body, AlignedBody) and asyncio.current_task() is None:
                self.is_gathering = True
                await gone_on_with()  # when the body is there
            if cycle.more_body:
                await cycle.message_event.wait()
        if cycle.disconnected or cycle.response_complete:
            return {"type": "http.disconnect"}
        cycle.message_event.clear()
        whole, cycle.body = self.body(), bytearray()
        return {"type": "http.request", "body": whole, "more_body": cycle.more_body}

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a whole answer. The headers hold `content-length` and are well-formed: they are not checked.

        False, and nothing is done, when the connection is congested: then `send` can wait.
        """
        cycle = self._cycle
        if cycle.flow.write_paused:
            return False
        if not cycle.disconnected:
            self.end(status, headers, body)()
        return True

    def end(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Callable[[], None]:
        """End the exchange with this answer; what is returned writes it."""
        cycle = self._cycle
        cycle.keep_alive = not self._ends_with(cycle)
        pieces = [STATUS_LINE[status]]
        for name, value in cycle.default_headers:
            pieces += (name, b": ", value, b"\r\n")
        for name, value in headers:
            pieces += (name, b": ", value, b"\r\n")
        pieces += (b"\r\n", body) if cycle.keep_alive else (b"connection: close\r\n\r\n", body)
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        return partial(self._write, b"".join(pieces))

    def _write(self, answer: bytes) -> None:
        cycle = self._cycle
        cycle.transport.write(answer)
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


@lru_cache(64)
def number(text: bytes | None) -> int | None:
    """A length in a header; None where it says nothing sane. Nearly always one that was asked for before."""
    digits = b"" if text is None else text.strip(BLANKS)
    return int(digits) if digits.isdigit() and len(digits) < 10 else None
