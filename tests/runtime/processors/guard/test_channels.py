"""The service's half of a channel to a guard, over a real connection."""

import mmap
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from appliance.domain.request import Tensors
from appliance.runtime.processors.guard import messages as m
from appliance.runtime.processors.guard.area import SMALLEST_BYTES, mapped
from appliance.runtime.processors.guard.calls import Call
from appliance.runtime.processors.guard.channels import Channel, ChannelGroup
from appliance.runtime.processors.guard.inside import SEQUENCE


class FarEnd:
    """Takes what a guard takes: shared memory, and the tensors that lie in it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._area: mmap.mmap | None = None

    def taken(self) -> Mapping[str, np.ndarray]:
        """Tensors of the next request."""
        while True:
            data, descriptors, _flags, _address = socket.recv_fds(self._connection, m.HEADER_BYTES_MAX, 1)
            if len(data) == SEQUENCE.size:
                continue
            message = m.Layouts().read(data[SEQUENCE.size :], 0 if self._area is None else len(self._area))
            if message.code == m.TAKE_REQUEST_AREA:
                self._area = mapped(descriptors[0], writable=False)
            elif message.code == m.TAKE_ANSWER_AREA:
                mapped(descriptors[0], writable=True).close()
            else:
                assert self._area is not None
                return m.copies(message, self._area)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def call_of(tensors: Tensors) -> Call:
    result: Any = None  # nobody waits for it
    return Call(m.RUN, 1, (), tensors, result, lambda message, outputs: outputs, "build", 0, is_limit_own=True)


def fill(channel: Channel) -> None:
    """Send until nothing more goes in."""
    with suppress(BlockingIOError):
        while True:
            channel.send()


def test_guard_memory_that_cannot_be_handed_over_is_not_used(ends: tuple[socket.socket, socket.socket]) -> None:
    """The guard still has the area before, and the next call's tensors lie there; an area for tensors that are too
    large for it is handed over anew.
    """
    ours, theirs = ends
    channel, guard = Channel(0, ChannelGroup(), ours), FarEnd(theirs)
    channel.open()
    small, large = np.arange(4.0), np.arange(float(SMALLEST_BYTES))
    channel.send(channel.begin(call_of({"x": small})))
    assert np.array_equal(guard.taken()["x"], small)
    fill(channel)
    with pytest.raises(BlockingIOError):
        channel.begin(call_of({"x": large}))
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        guard.taken()
    for tensors in (small + 1, large, small + 2):
        channel.send(channel.begin(call_of({"x": tensors})))
        assert np.array_equal(guard.taken()["x"], tensors)
    channel.close()
