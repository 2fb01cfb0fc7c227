"""Channels to a guard, the service's half: a connection with two areas of shared memory, for one call at a time."""

import asyncio
import socket
from collections import deque
from collections.abc import Mapping

import numpy as np

from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.area import LARGEST_BYTES, Area
from appliance.runtime.processors.guard.calls import Call
from appliance.runtime.processors.guard.inside import SEQUENCE

_RECEIVE_BYTES = m.HEADER_BYTES_MAX


class ChannelGroup:
    """Channels for one purpose, and what waits for one of them."""

    def __init__(self) -> None:
        self.free: deque[Channel] = deque()
        self.waiting: deque[Call] = deque()


class Channel:
    """Carries one call at a time. Knows bytes and areas, no limits and no errors of calls."""

    def __init__(self, index: int, group: ChannelGroup, connection: socket.socket) -> None:
        self.index = index
        self.group = group
        self.call: Call | None = None
        self.timer: asyncio.TimerHandle | None = None
        """At the limit of the call."""
        self.sequence = 0
        """Number of the call in this channel, modulo 2³²; says which one an order to stop is for."""
        self._connection = connection
        self._request_area = Area()
        self._answer_area = Area()
        self._requests = m.Layouts()
        self._answers = m.Layouts()
        self._used_bytes = 0
        group.free.append(self)

    @property
    def descriptor(self) -> int:
        return self._connection.fileno()

    def open(self) -> None:
        """Give the guard, once it is there, its half of the shared memory. Raises: OSError."""
        self._connection.setblocking(False)
        self._hand_over(m.TAKE_REQUEST_AREA, self._request_area)
        self._hand_over(m.TAKE_ANSWER_AREA, self._answer_area)

    def begin(self, call: Call) -> bytes:
        """Lay its tensors out; what `send` takes then. Raises: ValueError, OSError for what cannot be sent."""
        header, message, parts = self._requests.pack(call.code, call.number, call.fields, call.tensors)
        if message.end > self._request_area.size:
            self._enlarge_request(message.end)
        m.write(message, parts, self._request_area.mapping)
        self.call = call
        self._used_bytes = message.end
        self.sequence = (self.sequence + 1) & 0xFFFFFFFF
        return header

    def send(self, header: bytes = b"") -> None:
        """A call's header; an empty one refuses a larger answer area. Raises: OSError."""
        self._connection.send(SEQUENCE.pack(self.sequence) + header)

    def receive(self) -> m.Message | None:
        """What the guard says; None: nothing yet. Raises: m.BadMessage, ConnectionResetError when it has ended."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            raise ConnectionResetError("it was killed")
        return self._answers.read(data, self._answer_area.size)

    def tensors(self, message: m.Message) -> Mapping[str, np.ndarray]:
        """Copies of an answer's. Raises: m.BadMessage."""
        return m.copies(message, self._answer_area.mapping)

    def enlarge_answer(self, need_bytes: int) -> None:
        """Raises: OSError."""
        old, self._answer_area = self._answer_area, Area(need_bytes)
        old.close()
        self._answers.forget()
        self._hand_over(m.TAKE_ANSWER_AREA, self._answer_area)

    def end(self, answer_bytes: int = 0) -> None:
        """The call is over; memory of large tensors goes back to the system."""
        self._answer_area.give_back(answer_bytes)
        self._request_area.give_back(self._used_bytes)
        self.call = None
        self.stop_timer()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def close(self) -> None:
        self.stop_timer()
        self._connection.close()
        self._request_area.close()
        self._answer_area.close()

    def _enlarge_request(self, need_bytes: int) -> None:
        if need_bytes > LARGEST_BYTES:
            raise m.BadMessage(f"{need_bytes} bytes of tensors are too many")
        area = Area(need_bytes)
        try:
            self._hand_over(m.TAKE_REQUEST_AREA, area)
        except OSError:  # the guard has the old one still, and so do we
            area.close()
            raise
        self._request_area.close()
        self._request_area = area

    def _hand_over(self, code: int, area: Area) -> None:
        header = SEQUENCE.pack(self.sequence) + self._requests.pack(code, 0, (), {})[0]
        socket.send_fds(self._connection, [header], [area.descriptor])
        area.sent()
