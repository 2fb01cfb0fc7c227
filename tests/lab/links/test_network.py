"""Devices and a box in networks of their own: real sockets over emulated links."""

import hashlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.lab.links.link import LinkShape
from appliance.lab.links.trace import steady
from tests.fakes.network.network import DeviceLink, Network, Place, unavailable

pytestmark = [
    pytest.mark.usefixtures("ports", "processes"),
    pytest.mark.skipif(unavailable() is not None, reason=unavailable() or ""),
]

PORT = 5000
SIZE = 200_000


def link(mbps: float = 50, **shape: float) -> DeviceLink:
    down = LinkShape(steady(100), shape.get("delay_ms", 5))
    return DeviceLink(LinkShape(steady(mbps), **{"delay_ms": 5, **shape}), down)  # type: ignore[arg-type]


@contextmanager
def listening(place: Place) -> Iterator[list[str]]:
    """Whoever connects gets the digest of what they sent; the list tells who has."""
    server = place.run(lambda: socket.create_server(("0.0.0.0", PORT)))
    seen: list[str] = []

    def serve() -> None:
        while True:
            try:
                connection, (address, _) = server.accept()
            except OSError:
                return
            seen.append(address)
            with connection:
                left, digest = SIZE, hashlib.sha256()
                while left and (piece := connection.recv(65536)):
                    left -= len(piece)
                    digest.update(piece)
                connection.sendall(digest.digest())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def sent(place: Place, address: str) -> bool:
    """Whether so many bytes came through whole."""
    body = os.urandom(SIZE)
    with place.run(lambda: socket.create_connection((address, PORT), timeout=60)) as connection:
        connection.sendall(body)
        return connection.recv(64) == hashlib.sha256(body).digest()


def test_devices_send_over_their_own_links_at_the_links_rate(tmp_path: Path) -> None:
    """A link is slow and loses packets; both carry everything, and none faster than its rate."""
    with Network({"near": link(), "far": link(10, delay_ms=20, jitter_ms=2, loss=0.01)}, tmp_path) as network:
        with listening(network.box) as seen:
            assert all(sent(place, network.address[name]) for name, place in network.devices.items())
        assert seen == ["10.77.1.2", "10.77.2.2"]
    passages = network.passages()
    for name, mbps, delay_ms in [("near", 50, 5), ("far", 10, 20)]:
        up = [one for one in passages[name]["up"] if one.size_bytes > 1000]
        arrived = [one for one in up if one.out_ns is not None]
        assert sum(one.size_bytes for one in arrived) >= SIZE
        first, last = arrived[0], arrived[-1]
        assert first.out_ns is not None
        assert last.out_ns is not None
        carried = sum(one.size_bytes for one in arrived[1:])
        assert (last.out_ns - first.out_ns) / 1e9 >= 8 * carried / (mbps * 1e6) * 0.99
        assert first.out_ns - first.in_ns >= delay_ms * 0.5e6
    assert any(one.out_ns is None for one in passages["far"]["up"])


def test_device_reconnects_after_an_outage_and_a_new_address(tmp_path: Path) -> None:
    with Network({"a": link()}, tmp_path) as network, listening(network.box) as seen:
        assert sent(network.devices["a"], network.address["a"])
        network.cut("a", 3000)  # however late the next one begins
        assert sent(network.devices["a"], network.address["a"])  # it comes again
        network.move("a", 9)
        assert sent(network.devices["a"], network.address["a"])
        assert seen == ["10.77.1.2", "10.77.1.2", "10.77.1.9"]
    assert any(one.out_ns is None for one in network.passages()["a"]["up"])


def test_process_started_in_a_device_uses_the_devices_network(tmp_path: Path) -> None:
    with Network({"a": link()}, tmp_path) as network, listening(network.box) as seen:
        said = (
            f"import socket; line = socket.create_connection(({network.address['a']!r}, {PORT})); "
            "line.shutdown(socket.SHUT_WR); line.recv(64)"
        )
        assert network.devices["a"].start([sys.executable, "-c", said]).wait(60) == 0
        assert seen == ["10.77.1.2"]


def test_network_of_too_many_devices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="251 devices"):
        Network({str(number): link() for number in range(251)}, tmp_path)
