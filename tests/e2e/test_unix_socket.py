"""A box that listens at a Unix socket beside its port: the same answers, keys and bounds."""

import os
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest

from tests import toys
from tests.e2e.polling import until
from tests.e2e.server import brought, running_server

pytestmark = [
    pytest.mark.nightly("a server for each kind of socket"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(240),
]
ASKED = {"inputs": [{"name": n, "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]} for n in ("A", "B")]}


def local(path: Path, key: str | None = None) -> httpx.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.HTTPTransport(uds=str(path))
    return httpx.Client(transport=transport, base_url="http://box", headers=headers, timeout=120)


@pytest.mark.parametrize("mode", ["0600", "0660"])
def test_unix_socket_answers_like_the_port_with_its_file_mode(tmp_path: Path, mode: str) -> None:
    """Only with a key; the file is removed at the end."""
    path = tmp_path / "box.sock"
    settings = {"APPLIANCE_HTTP__UNIX_SOCKET": str(path), "APPLIANCE_HTTP__UNIX_SOCKET_MODE": mode}
    with running_server(tmp_path / "state", **settings) as server:
        assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
        assert f"The box listens at {server.url} and at the Unix socket {path} " in server.log()
        with server.client() as client:
            brought(client, toys.tiny_add(tmp_path / "add.onnx"), "add", "tensor")
        with local(path) as stranger:
            assert stranger.get("/v2/health/ready").status_code == 200
            assert stranger.post("/v2/models/add/infer", json=ASKED).status_code == 401
        with local(path, server.admin_key) as caller:
            answer = caller.post("/v2/models/add/infer", json=ASKED)
            assert answer.json()["outputs"][0]["data"] == [2, 4, 6, 8]
            assert caller.get("/v1/system").json()["ready"] is True
        assert server.stop() == 0
    assert not path.exists()


def test_unix_socket_connections_count_against_the_connection_limit(tmp_path: Path) -> None:
    """At one more than the limit the oldest connection without a key gives way, as at the port."""
    path = tmp_path / "box.sock"
    settings = {"APPLIANCE_HTTP__UNIX_SOCKET": str(path), "APPLIANCE_HTTP__CONNECTIONS_MAX": "2"}
    with running_server(tmp_path / "state", **settings):
        lines = []
        for _ in range(3):
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(120)
            line.connect(str(path))
            lines.append(line)
        assert lines[0].recv(1) == b""
        lines[2].sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: box\r\n\r\n")
        assert lines[2].recv(12) == b"HTTP/1.1 200"
        for line in lines:
            line.close()


def test_unix_socket_left_by_a_killed_box_is_replaced(tmp_path: Path) -> None:
    """A file stays, and so does the socket of a box that runs."""
    path = tmp_path / "box.sock"
    settings = {"APPLIANCE_HTTP__UNIX_SOCKET": str(path)}
    with running_server(tmp_path / "state", **settings) as server:
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        assert path.is_socket()
        server.start_again()
        _answers(path)
        with pytest.raises(AssertionError, match="is taken"), running_server(tmp_path / "other", **settings):
            pass
        _answers(path)
        assert server.stop() == 0
    path.write_text("mine")
    with pytest.raises(AssertionError, match="is taken"), running_server(tmp_path / "other", **settings):
        pass
    assert path.read_text() == "mine"


def _answers(path: Path) -> None:
    with local(path) as caller:
        until(lambda: caller.get("/v2/health/ready").status_code == 200, "the box answers at its socket")
