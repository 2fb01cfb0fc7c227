"""What came of an unwanted body goes inside the kernel, and not a byte more of it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from appliance.api.http.discard import discard, tcp_file

pytestmark = pytest.mark.usefixtures("ports")

SENT = bytes(range(256)) * 800


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            near.settimeout(120)
            far.settimeout(120)
            yield near, far


def test_discard_takes_the_asked_bytes_and_leaves_the_next(pair: tuple[socket.socket, socket.socket]) -> None:
    """In however many pieces the bytes come; then it takes nothing, without waiting."""
    near, far = pair
    sending = threading.Thread(target=near.sendall, args=(SENT,))
    sending.start()
    left = 150_000
    while left:
        assert far.recv(1, socket.MSG_PEEK)  # waits until something is there
        left -= discard(far.fileno(), left)
    kept = b""
    while len(kept) < len(SENT) - 150_000:
        kept += far.recv(1 << 16)
    sending.join()
    assert kept == SENT[150_000:]
    assert discard(far.fileno(), 10) == 0


def test_discard_of_an_ended_or_closed_connection_takes_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    near.close()
    assert far.recv(1) == b""
    assert discard(far.fileno(), 10) == 0
    assert discard(-1, 10) == 0


class HandTransport:
    def __init__(self, **known: object) -> None:
        self._known = known

    def get_extra_info(self, name: str) -> object:
        return self._known.get(name)


def test_discard_is_not_used_for_unix_sockets_and_tls(pair: tuple[socket.socket, socket.socket]) -> None:
    """There the kernel's bytes are not the body's."""
    near, far = socket.socketpair()
    with near, far:
        assert tcp_file(HandTransport(socket=far)) is None
    assert tcp_file(HandTransport(socket=pair[1], sslcontext=object())) is None
    assert tcp_file(HandTransport(socket=pair[1])) == pair[1].fileno()
