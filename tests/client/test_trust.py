"""A box that is known by its fingerprint: asked for its authority, which is believed when it is the right one."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer import BadParameter

from appliance.api.http.certificate import AUTHORITY, CERTIFICATE, KEY, ensure
from appliance.api.http.fingerprint import fingerprint_of
from appliance.cli.connection import found
from appliance.cli.faults import sentence_of
from appliance.client import Client
from appliance.client.device.session import Box
from appliance.client.trust import UnknownBox, trusted
from appliance.clock import SystemClock

pytestmark = pytest.mark.usefixtures("ports")

NOW = SystemClock().wall_now()
NAMES = ["localhost", "127.0.0.1"]


@contextmanager
def served(tls: Path, authority: bytes | None, heard: list[str], raw: bytes = b"") -> Iterator[str]:
    """A box of one path, with a certificate; `heard`: the keys that it was sent; `raw`: said in place of HTTP."""

    class Paths(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(str(self.headers.get("Authorization")))
            if raw:
                self.wfile.write(raw)
                return
            found = authority if self.path == "/authority.crt" else b'{"items": [], "next_cursor": null}'
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *words: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Paths)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / CERTIFICATE, tls / KEY)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def der(tls: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((tls / AUTHORITY).read_text())


def test_box_is_trusted_by_the_fingerprint_of_its_authority(tmp_path: Path) -> None:
    """In any notation, also once the certificate was renewed; the key is sent to the right box only."""
    ensure(tmp_path, NAMES, NOW)
    known = fingerprint_of(tmp_path / AUTHORITY)
    assert ensure(tmp_path, [*NAMES, "192.0.2.7"], NOW)
    heard: list[str] = []
    with served(tmp_path, der(tmp_path), heard) as url:
        for notation in (known, known.replace(":", "").lower()):
            with Client(url, "ea_mine", fingerprint=notation) as client:
                assert list(client.models()) == []
        assert heard == ["None", "Bearer ea_mine"] * 2
        assert Box(url, "ea_mine", fingerprint=known).trust is not None


def test_box_without_authority_is_trusted_by_certificate_fingerprint(tmp_path: Path) -> None:
    """A certificate that an authority outside the box has signed."""
    ensure(tmp_path, NAMES, NOW)
    with (
        served(tmp_path, None, []) as url,
        Client(url, "ea_mine", fingerprint=fingerprint_of(tmp_path / CERTIFICATE)) as client,
    ):
        assert list(client.models()) == []


def test_key_is_not_sent_to_a_box_with_another_fingerprint(tmp_path: Path) -> None:
    """Another box, a box that only shows the authority of the right one, and a server without TLS."""
    for name in ("mine", "other"):
        ensure(tmp_path / name, NAMES, NOW)
    known = fingerprint_of(tmp_path / "mine" / AUTHORITY)
    heard: list[str] = []
    with served(tmp_path / "other", der(tmp_path / "other"), heard) as url:
        with pytest.raises(UnknownBox, match=known[:8]) as raised:
            Client(url, "ea_mine", fingerprint=known)
        assert "installer" in (sentence_of(raised.value) or "")
    with served(tmp_path / "other", der(tmp_path / "mine"), heard) as url:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            Box(url, "ea_mine", fingerprint=known).shown("s")
        with pytest.raises(UnknownBox):
            trusted(url=url.replace("https", "http"), fingerprint=known)
    assert set(heard) == {"None"}
    with pytest.raises(OSError, match="refused"):
        trusted(url=url, fingerprint=known)


def test_server_without_http_is_an_unknown_box(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        ensure(tmp_path / name, NAMES, NOW)
    known = fingerprint_of(tmp_path / "mine" / AUTHORITY)
    with served(tmp_path / "other", None, [], raw=b"SSH-2.0-other\r\n\r\n") as url, pytest.raises(UnknownBox):
        trusted(url=url, fingerprint=known)


def test_trust_by_both_certificate_file_and_fingerprint_is_refused(tmp_path: Path) -> None:
    """A fingerprint is not passed over because there is a file, too."""
    ensure(tmp_path, NAMES, NOW)
    with pytest.raises(ValueError, match="not by both"):
        trusted(tmp_path / AUTHORITY, url="https://127.0.0.1:1", fingerprint="00" * 32)
    with pytest.raises(BadParameter, match="not by both"):
        found(url="https://box", key=None, state=tmp_path, ca=tmp_path / AUTHORITY, as_json=False, fingerprint="00")
