"""Connections to a real box that never finish their TLS handshake."""

import resource
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.attacks.wire import ANSWER_S
from tests.e2e.server import Server, running_server

pytestmark = pytest.mark.usefixtures("processes", "ports")
CONNECTIONS = 24
SETTINGS = {
    "APPLIANCE_HTTP__TLS_SELF_SIGNED": "true",
    "APPLIANCE_HTTP__CONNECTIONS_MAX": str(CONNECTIONS),
    "APPLIANCE_HTTP__CONNECTIONS_RESERVED": "8",
    "APPLIANCE_HTTP__HEAD_S": "3",
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Started with few open files allowed, of which it may allow itself more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        with running_server(tmp_path_factory.mktemp("handshakes") / "state", **SETTINGS) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            yield server
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silent(box: Server) -> socket.socket:
    """A connection that says nothing."""
    host, port = box.url.removeprefix("https://").rsplit(":", 1)
    return socket.create_connection((host, int(port)), ANSWER_S)


@pytest.mark.nightly("waits until a silent caller is closed")
def test_silent_tls_handshakes_over_the_connection_limit_give_way(box: Server) -> None:
    """They count from their beginning: the oldest is closed over the limit, and other clients are served."""
    made = [silent(box) for _ in range(CONNECTIONS + 1)]
    try:
        assert _is_closed(made[0])
        made[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            made[-1].recv(1)
        with box.client() as client:
            assert client.tenants()
    finally:
        for one in made:
            one.close()


@pytest.mark.nightly("waits until a silent caller is closed")
def test_silent_tls_handshake_is_closed(box: Server) -> None:
    """After the time that the head of a request may take."""
    with closing(silent(box)) as one:
        assert _is_closed(one)


def test_plain_http_at_the_tls_port_is_closed(box: Server) -> None:
    with closing(silent(box)) as one:
        one.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n" * 4)
        while one.recv(1024):
            pass


def test_limit_on_open_files_is_raised_at_start(box: Server) -> None:
    """As far as the system lets it: each connection is an open file."""
    soft, hard = resource.prlimit(box.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard


def _is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True
