"""Slow, silent, endless and many connections against a real box: they end, and nobody else notices."""

import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import psutil
import pytest

from appliance.clock import pause_s
from appliance.wire.access import KeyOrder
from tests import toys
from tests.attacks.wire import Wire, chunk, head, wire, wires
from tests.e2e.polling import until
from tests.e2e.server import Server, running_server

pytestmark = [
    pytest.mark.nightly("minutes of slow connections to a server"),
    pytest.mark.usefixtures("processes", "ports"),
]
CONNECTIONS, RESERVED = 24, 8
MB = 10**6
HEAD_BYTES = 32 * 1024
PROBE = head("GET", "/v2/health/ready")
INFER, PREDICT = "/v2/models/add/infer", "/v1/applications/add/predict"
SMALL = (
    b'{"inputs":[{"name":"A","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]},'
    b'{"name":"B","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
)
SETTINGS = {
    "APPLIANCE_HTTP__CONNECTIONS_MAX": str(CONNECTIONS),
    "APPLIANCE_HTTP__CONNECTIONS_RESERVED": str(RESERVED),
    "APPLIANCE_HTTP__HEAD_S": "1.5",
    "APPLIANCE_HTTP__BODY_S": "1.5",
    "APPLIANCE_HTTP__INFLIGHT_BYTES_MAX": str(16 * MB),
    "APPLIANCE_HTTP__BODY_BYTES_MAX": str(16 * MB),
    "APPLIANCE_SECURITY__FAILED_KEYS_PER_MIN": "100000",
}


@dataclass(frozen=True)
class Box:
    """A box with one shared model and two tenants."""

    server: Server
    harbour: str
    museum: str

    @property
    def url(self) -> str:
        return self.server.url

    def infer(self, key: str) -> bytes:
        """A whole small request."""
        return head("POST", INFER, key, content_length=len(SMALL)) + SMALL

    def assert_serves(self, key: str) -> None:
        """A fresh connection of a tenant gets its answer."""
        with wire(self.url) as fresh:
            assert fresh.ask(self.infer(key)) == 200

    def body_bytes(self) -> float:
        """What the box counts of bodies in memory."""
        with wire(self.url) as asking:
            asking.send(head("GET", "/metrics", self.server.admin_key))
            _, text = asking.answer()
        line = next(line for line in text.decode().splitlines() if line.startswith("appliance_body_bytes "))
        return float(line.split()[1])


ROWS_MAX = 300_000
"""Of the model that adds."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """With small bounds, so that a test takes seconds."""
    folder = tmp_path_factory.mktemp("attacked")
    with running_server(folder / "state", **SETTINGS) as server:
        with server.client() as client:
            model = toys.tiny_add(folder / "add.onnx")
            largest = {"A": [ROWS_MAX, 4], "B": [ROWS_MAX, 4]}
            metadata = json.dumps({"precisions": [], "shape_max": largest})
            form = {"task": "tensor", "shared": "true", "metadata": metadata}
            admin = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.admin_key}"})
            files = {"file": (model.name, model.read_bytes())}
            job = admin.post("/v1/models", data={"name": "add", **form}, files=files).raise_for_status().json()["id"]
            while (state := admin.get(f"/v1/jobs/{job}").json()["state"]) not in ("done", "failed"):
                pause_s(0.05)
            assert state == "done"
            keys = []
            for tenant in ("harbour", "museum"):
                client.create_tenant(tenant)
                keys.append(admin.post(f"/v1/tenants/{tenant}/keys", json={}).raise_for_status().json()["key"])
            admin.close()
        yield Box(server, *keys)


# -- too slow ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"\r\n", b"GET /v2/health/live HTT", head("GET", "/v2/health/live")[:-2]])
def test_connection_without_a_complete_head_is_answered_408_and_closed(box: Box, said: bytes) -> None:
    """Silent from the first, or inside the head."""
    with wire(box.url) as silent:
        silent.send(said)
        status, body = silent.answer()
        assert (status, b"/problems/request-timeout" in body) == (408, True)
        assert silent.is_closed()


def test_connection_with_a_trickling_head_is_closed(box: Box) -> None:
    """A byte now and then does not keep a connection."""
    with wire(box.url) as slow:
        letters = iter(head("GET", "/v2/health/live", padding="x" * 4000))
        while slow.send(bytes([next(letters)])):  # the head has more letters than the box has patience
            pause_s(0.05)


def test_used_connection_with_an_incomplete_next_head_is_closed(box: Box) -> None:
    """Also with a good key."""
    with wire(box.url) as used:
        assert used.ask(box.infer(box.harbour)) == 200
        used.send(b"GET /v2/hea")
        assert used.answer()[0] == 408
        assert used.is_closed()


@pytest.mark.parametrize("path", [INFER, PREDICT, "/v1/tenants", "/v1/uploads/none"])
@pytest.mark.parametrize("announced", [10_000, MB, None])
def test_request_with_a_stalled_body_is_answered_408_and_frees_memory(
    box: Box, path: str, announced: int | None
) -> None:
    """Announced or in chunks, for every kind of route."""
    length = {"transfer_encoding": "chunked"} if announced is None else {"content_length": announced}
    with wire(box.url) as slow:
        slow.send(head("PATCH" if "uploads" in path else "POST", path, box.harbour, upload_offset=0, **length))
        slow.send(chunk(b"[") if announced is None else b"[")
        status, _ = slow.answer()
        assert status == (404 if "uploads" in path else 408)
        assert slow.is_closed()
    assert box.body_bytes() == 0


def test_slow_body_above_the_minimum_rate_is_answered(box: Box) -> None:
    """Longer than any bound lasts, but never slower than the rate."""
    body = SMALL + b" " * 30_000
    with wire(box.url) as steady:
        steady.send(head("POST", INFER, box.harbour, content_length=len(body)))
        for at in range(0, len(body), 1000):
            assert steady.send(body[at : at + 1000])
            pause_s(0.1)
        assert steady.answer()[0] == 200


def test_client_that_never_reads_its_answer_is_disconnected(box: Box) -> None:
    """An unread answer does not stay in memory, but for what the system has of it."""
    count = 1_000_000
    tensor = b'{"name":"%s","shape":[%d,4],"datatype":"FP32","parameters":{"binary_data_size":%d}}'
    described = b",".join(tensor % (name, count // 4, 4 * count) for name in (b"A", b"B"))
    text = b'{"inputs":[%s]}' % described
    body = text + 2 * count * struct.pack("<f", 1 / 3)
    with wire(box.url) as deaf:
        ahead = {"inference_header_content_length": len(text), "content_length": len(body)}
        deaf.send(head("POST", INFER, box.harbour, **ahead) + body)
        own, process = deaf.socket.getsockname(), psutil.Process(box.server.process.pid)
        until(lambda: own not in {one.raddr for one in process.net_connections("tcp")}, "the end of the connection")
        answer, _, taken = b"".join(deaf.rest()).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(taken) < count * len("0.6666667") < int(answer.lower().partition(b"content-length: ")[2].split()[0])


# -- too much ----------------------------------------------------------------------------------------------------------


def test_head_over_the_limit_is_answered_431_and_closed(box: Box) -> None:
    """In one header or in many, in one piece or in several."""
    long = head("GET", "/v2/health/live", padding="x" * (HEAD_BYTES + 1000))
    many = head("GET", "/v2/health/live", None, **{f"h{number}": number for number in range(1000)})
    for request in (long, many, b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n"):
        for step in (len(request), 1000):
            with wire(box.url) as talkative:
                for at in range(0, len(request), step):
                    talkative.send(request[at : at + step])
                status, body = talkative.answer()
                assert (status, b"/problems/head-too-large" in body) == (431, True)
                assert talkative.is_closed()


def test_large_head_within_the_limit_is_answered(box: Box) -> None:
    """Also together with a large body in one piece, and behind another request."""
    padding = "x" * (HEAD_BYTES - 1000)
    body = SMALL + b" " * 200_000
    request = head("POST", INFER, box.harbour, padding=padding, content_length=len(body)) + body
    with wire(box.url) as large:
        large.send(request * 3)
        assert [large.answer()[0] for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize("tail", [b"0\r\nx: ", b"5;x="])
def test_endless_trailers_and_chunk_extensions_close_the_connection(box: Box, tail: bytes) -> None:
    """They are read no further than a head."""
    with wire(box.url) as endless:
        endless.send(head("POST", INFER, box.harbour, transfer_encoding="chunked") + chunk(b"[") + tail)
        sent = 0
        while endless.send(b"x" * 10_000) and sent < 200 * MB:
            sent += 10_000
        assert sent < 50 * MB


def test_connection_with_too_many_pipelined_requests_is_closed(box: Box) -> None:
    with wire(box.url) as hasty:
        hasty.send(head("GET", "/v1/system", box.server.admin_key) * 5000)
        assert hasty.is_closed()
    box.assert_serves(box.harbour)


# -- too many ----------------------------------------------------------------------------------------------------------


def test_silent_connections_over_the_limit_give_way_to_active_ones(box: Box) -> None:
    """From one address: other clients are served, on fresh connections and on old ones."""
    with wire(box.url) as old:
        assert old.ask(box.infer(box.harbour)) == 200
        with wires(box.url, 2 * CONNECTIONS):
            assert old.ask(box.infer(box.harbour)) == 200
            for _ in range(CONNECTIONS):
                box.assert_serves(box.museum)
        assert old.ask(box.infer(box.harbour)) == 200


def test_tenant_with_all_its_connections_busy_is_refused_alone(box: Box) -> None:
    unfinished = head("POST", INFER, box.harbour, content_length=100_000) + b" " * 50_000
    with wires(box.url, CONNECTIONS - RESERVED) as busy:
        for one in busy:
            one.send(unfinished)
        with wire(box.url) as one_more:
            one_more.send(box.infer(box.harbour))
            status, body = one_more.answer()
            assert (status, b"connections" in body) == (429, True)
        box.assert_serves(box.museum)


def test_idle_connection_of_the_largest_tenant_gives_way(box: Box) -> None:
    """A tenant with many idle connections loses one of them, and is served."""
    with wires(box.url, CONNECTIONS) as idle:
        for one in idle:
            assert one.ask(box.infer(box.harbour)) == 200
        box.assert_serves(box.harbour)
        box.assert_serves(box.museum)


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [INFER, PREDICT, "/v1/tenants"])
@pytest.mark.parametrize("key", [None, "ea_wrong"])
def test_bodies_without_a_good_key_reserve_no_memory(box: Box, path: str, key: str | None) -> None:
    """Refused unread, whatever they announce; the body of another client finds no less room."""
    with wires(box.url, CONNECTIONS - 4) as strangers:
        for one in strangers:
            one.send(head("POST", path, key, content_length=900_000) + b" " * 500_000)
        assert box.body_bytes() == 0
        box.assert_serves(box.harbour)
        assert strangers[-1].answer()[0] == 401


@pytest.mark.parametrize("path", [INFER, PREDICT])
@pytest.mark.parametrize("is_announced", [True, False])
def test_unfinished_bodies_of_a_tenant_leave_memory_for_another(box: Box, path: str, is_announced: bool) -> None:
    """Announced or in chunks they are counted, some are refused, and another tenant is served."""
    piece = b" " * MB
    length = {"content_length": 10 * MB} if is_announced else {"transfer_encoding": "chunked"}
    with wires(box.url, 8) as senders:
        for one in senders:
            one.send(head("POST", path, box.harbour, **length))
            for _ in range(4):
                one.send(piece if is_announced else chunk(piece))
        counted = box.body_bytes()
        box.assert_serves(box.museum)
        statuses = {one.answer()[0] for one in senders}
    assert statuses == {503, 408}
    assert 4 * MB < counted <= 16 * MB


def test_large_body_over_the_request_quota_is_refused_before_it_is_read(box: Box) -> None:
    """Whatever the tenant announces."""
    with box.server.client() as admin:
        admin.create_tenant("kiosk")
        key = admin.create_key("kiosk", KeyOrder()).key
    headers = {"Authorization": f"Bearer {box.server.admin_key}"}
    order = {"quota": {"requests_per_s": 0.001}}
    httpx.put(f"{box.url}/v1/tenants/kiosk", json=order, headers=headers).raise_for_status()
    box.assert_serves(key)
    with wire(box.url) as large:
        large.send(head("POST", INFER, key, content_length=10 * MB) + b" " * 100_000)
        assert large.answer()[0] == 429
        assert box.body_bytes() == 0


def test_announced_bodies_that_never_come_keep_no_tenant_out(box: Box) -> None:
    """Neither another tenant nor the tenant that announces."""
    with wires(box.url, CONNECTIONS - RESERVED - 2) as announcers:
        for one in announcers:
            one.send(head("POST", INFER, box.harbour, content_length=10 * MB))
        box.assert_serves(box.museum)
        box.assert_serves(box.harbour)


@pytest.mark.parametrize("path", ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/add", INFER, "/v2/nothing"])
@pytest.mark.parametrize("more", [{}, {"content_length": 5}])
def test_answer_to_a_head_request_has_no_body(box: Box, path: str, more: dict[str, int]) -> None:
    """Any byte behind its head would be taken for the answer to the next request."""
    with wire(box.url) as one:
        one.send(
            head("HEAD", path, box.harbour, connection="close", **more) + b"12345"[: more.get("content_length", 0)]
        )
        closed = b"".join(one.rest())
    with wire(box.url) as one:
        one.send(head("HEAD", path, box.harbour, **more) + b"12345"[: more.get("content_length", 0)])
        one.send(head("GET", "/v2/health/live", connection="close"))
        kept = b"".join(one.rest())
    assert closed.partition(b"\r\n\r\n")[2] == b""
    assert kept.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@pytest.mark.parametrize("path", [INFER, PREDICT])
def test_request_with_an_upgrade_header_is_answered_in_http_1(box: Box, path: str, protocol: str) -> None:
    """Some clients ask with every request: its body is read, and what comes behind it, too."""
    small = SMALL if path == INFER else b'{"inputs":{"A":[[1,2,3,4]],"B":[[1,2,3,4]]}}'
    upgrade = {"connection": "Upgrade", "upgrade": protocol, "content_type": "application/json"}
    for body in (small, small + b" " * 300_000):
        request = head("POST", path, box.harbour, content_length=len(body), **upgrade) + body
        for step in (len(request), 100_000, 150):
            with wire(box.url) as asking:
                data = request * 3 if step > 150 else request[:2000]
                for at in range(0, len(data), step):
                    asking.send(data[at : at + step])
                asking.send(request[2000:] if step == 150 else b"")
                expected = [200] if step == 150 else [200] * 3
                assert [asking.answer()[0] for _ in expected] == expected


# -- what others notice ------------------------------------------------------------------------------------------------


def _large(count: int) -> bytes:
    """An infer request with `count` numbers as JSON for each input."""
    numbers = b",".join([b"0.25"] * count)
    tensor = b'{"name":"%s","shape":[%d,4],"datatype":"FP32","data":[%s]}'
    tensors = b",".join(tensor % (name, count // 4, numbers) for name in (b"A", b"B"))
    return b'{"inputs":[%s],"parameters":{"binary_data_output":true}}' % tensors


@pytest.mark.parametrize("path", [INFER, PREDICT])
def test_probes_are_answered_while_large_json_is_read(box: Box, path: str) -> None:
    """Probes are answered while 5 MB of JSON come, are read and answered; `tests/api/test_large_json.py` holds the
    reader, so that a probe comes in the middle of it.
    """
    body = _large(500_000)
    with wire(box.url) as large, wire(box.url) as probe:
        assert probe.ask(box.infer(box.museum)) == 200
        order: list[str] = []
        sending = threading.Thread(target=lambda: _note(order, large, head_and(path, box.harbour, body)))
        sending.start()
        while not order:
            assert probe.ask(PROBE) == 200
        sending.join()
        assert order == ["200"]


def head_and(path: str, key: str, body: bytes) -> bytes:
    return head("POST", path, key, content_length=len(body)) + body


def _note(order: list[str], sender: Wire, request: bytes) -> None:
    order.append(str(sender.ask(request)))
