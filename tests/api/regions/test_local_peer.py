"""Who is at the other end of a connection: by Unix sockets and TCP, of both families, and when nobody is any more."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv4Address

import pytest

from appliance.api.regions import local_peer
from appliance.api.regions.local_peer import user_at
from appliance.api.regions.socket_diag import ESTABLISHED, tcp_socket
from tests.harness.lacking import lacks_address, skip_if

pytestmark = pytest.mark.usefixtures("ports", "processes")


@pytest.fixture(autouse=True, params=["asked", "tables"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel is asked for one socket; where it has no answer to that, all of its connections are looked through."""
    if request.param == "asked":
        monkeypatch.setattr(local_peer, "_TABLES", ())
    else:
        monkeypatch.setattr(local_peer, "tcp_socket", lambda *_: None)
    return str(request.param)


FAMILIES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
OTHER = 64_900


@contextmanager
def listening(family: socket.AddressFamily, address: str) -> Iterator[socket.socket]:
    skip_if(lacks_address(family, address))
    with closing(socket.socket(family)) as one:
        one.bind((address, 0))
        one.listen()
        yield one


def test_user_at_unix_socket_is_the_user_of_the_other_end() -> None:
    """As the kernel says."""
    here, there = socket.socketpair()
    with here, there:
        assert user_at(here) == os.geteuid()


@pytest.mark.parametrize(("family", "address"), FAMILIES)
def test_user_at_tcp_socket_is_found_while_the_other_end_is_open(family: socket.AddressFamily, address: str) -> None:
    """A closed end counts as root's in the kernel's table, and has no user here."""
    with listening(family, address) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, _ = server.accept()
        with accepted:
            assert user_at(accepted) == os.geteuid()
            client.close()
            assert user_at(accepted) is None


def test_user_at_ipv4_connection_of_an_ipv6_socket_is_found() -> None:
    """As some runtimes connect; the kernel has it in the other table."""
    skip_if(lacks_address(socket.AF_INET6, "::ffff:127.0.0.1"))
    with listening(socket.AF_INET, "127.0.0.1") as server, closing(socket.socket(socket.AF_INET6)) as client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            assert user_at(accepted) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("user", "found"), [(OTHER, OTHER), (65_534, None)])
def test_user_at_tcp_socket_is_the_user_that_opened_the_connection(user: int, found: int | None) -> None:
    """Not the user of the listener; the number that stands for all unknown users gives no user."""
    waiting = "import socket, sys; line = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
    with listening(socket.AF_INET, "127.0.0.1") as server:
        command = [os.path.realpath(sys.executable), "-c", waiting, str(server.getsockname()[1])]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, user=user, group=user, extra_groups=[], cwd="/")
        accepted, _ = server.accept()
        with accepted:
            assert user_at(accepted) == found
        child.communicate()


def test_listener_is_not_taken_for_the_other_end_of_a_connection() -> None:
    """Asked for a connection that it does not have, the kernel answers with the socket that listens at that port."""
    with listening(socket.AF_INET, "127.0.0.1") as server, socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        server_port, client_port = server.getsockname()[1], client.getsockname()[1]
        here = IPv4Address("127.0.0.1")
        found = tcp_socket((here, server_port), (here, client_port))
        assert found is None or found.state != ESTABLISHED
        assert local_peer.owner_of((here, server_port), (here, client_port)) is None
