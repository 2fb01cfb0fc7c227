"""Callers that hang up, on any route and at any moment: the log has no word of it, and others are served."""

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from appliance.clock import pause_s
from tests.api.streams.conftest import Box
from tests.attacks.wire import head

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.anyio]
RESET = struct.pack("ii", 1, 0)
"""Of `SO_LINGER`: what is closed ends with a reset."""
LARGE = b" " * 700_000
TENSOR = b'{"inputs":[{"name":"image","datatype":"FP32","shape":[1,1,8,8],"data":[' + b",".join([b"0.5"] * 64) + b"]}]}"
HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": 13,
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
}
TEXT = b'{"type": "clock", "sent_ms": 1.0}'
MASKED = bytes([0x81, 0x80 | len(TEXT), 0, 0, 0, 0]) + TEXT
READING = (
    "/v1/events?latest=5",
    "/v1/models",
    "/v1/history?series=requests",
    "/v1/system",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/v2/models/digits/stats",
    "/v2/health/ready",
)
WRITING = {
    "POST /v1/applications/digits/predict": LARGE,
    "POST /v1/applications/digits/predict?wait=false": TENSOR,
    "POST /v2/models/digits/infer": TENSOR,
    "POST /v2/models/nothing/infer": LARGE,
    "POST /v2/repository/index": b"{}",
    "POST /v1/models": b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.onnx"\r\n\r\n' + LARGE,
    "POST /v1/sessions": b"{}" + LARGE,
    "PATCH /v1/applications/digits": b'{"latency_slo_ms": 1000}' + LARGE,
    "PATCH /v1/uploads/UPLOAD": LARGE,
    "POST /v1/sessions/SESSION/frames": LARGE,
}


def conversations(key: str, upload: str, session: str) -> Iterator[list[bytes]]:
    """What a caller sends; it hangs up after each part of it."""
    for path in READING:
        whole = head("GET", path, key)
        yield [whole[:20], whole[20:], whole, whole * 20]
    for order, body in WRITING.items():
        method, path = order.replace("UPLOAD", upload).replace("SESSION", session).split()
        more: dict[str, object] = {"content_type": "multipart/form-data; boundary=x"} if path == "/v1/models" else {}
        if path.endswith("/frames"):
            more["x_frame"] = 1
        more["upload_offset"] = 0
        half = len(body) // 2
        yield [head(method, path, key, content_length=len(body), **more), body[:half], body[half:]]
        chunked = head(method, path, key, transfer_encoding="chunked", **more)
        yield [
            chunked,
            b"%x\r\n%b\r\n" % (half, body[:half]),
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - half, body[half:]),
        ]
        yield [head(method, path, key, content_length=len(body), expect="100-continue", **more), body]
    shake = head("GET", f"/v1/sessions/{session}/stream", key, **HANDSHAKE)
    yield [shake, MASKED[:4], MASKED[4:], MASKED * 100]


def hang_up(url: str, sent: list[bytes], *, reads: bool, resets: bool, waits_s: float) -> None:
    host, port = url.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
            pause_s(waits_s)
            if reads:
                connection.settimeout(0.2)
                connection.recv(1)
        except OSError:  # the box has nothing to say, or has ended the connection
            pass
        if resets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.mark.parametrize(
    "waits_s", [(0.003,), pytest.param((0.0, 0.03), marks=pytest.mark.nightly("the same at more moments"))]
)
async def test_callers_that_hang_up_leave_no_error_in_the_log(box: Box, waits_s: tuple[float, ...]) -> None:
    """Inside a head, a body, an answer, or a stream; with an end or with a reset."""
    key = box.keys["harbour"]
    async with box.http("harbour") as client:
        upload = (await client.post("/v1/uploads", json={})).raise_for_status().json()["id"]
    session = await box.join("harbour")
    calls = [
        partial(hang_up, box.server.url, parts[:count], reads=reads, resets=resets, waits_s=wait_s)
        for parts in conversations(key, upload, session)
        for count in range(1, len(parts) + 1)
        for reads, resets in ((False, False), (False, True), (True, True))
        for wait_s in waits_s
    ]
    with ThreadPoolExecutor(8) as callers:
        for call in [callers.submit(call) for call in calls]:
            call.result()
    async with box.http("harbour") as client:
        assert (await client.post("/v2/models/digits/infer", content=TENSOR)).status_code == 200
    box.server.stop()
    log = box.server.log()
    box.server.start_again()  # for the tests that share it
    assert [line for line in log.splitlines() if is_loud(line)] == []


def is_loud(line: str) -> bool:
    """Whether somebody is to look at a line of the log: an error, a warning, or no line of JSON."""
    if not line.startswith("{"):
        return not line.startswith("The box listens at")
    return json.loads(line)["level"] not in ("debug", "info")
