"""A box that has too much to do says so with the head of a request, before its body, and keeps the connection.

A run takes as long as its network says, on any machine.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from appliance.clock import pause_s
from tests.attacks.wire import Wire
from tests.e2e.server import Server, running_server
from tests.fakes.emulated_box import INPUT, furnish, one_busy_worker, settings_of

pytestmark = [
    pytest.mark.nightly("half a minute of overload"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(300),
]

RUN_MS = 400
SLO_MS = 1000
ORDER = {"inputs": [{"name": INPUT, "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}
BODY = json.dumps(ORDER).encode() + b" " * 100_000
TRIES = 20
SCENARIO = one_busy_worker(RUN_MS, latency_slo_ms=SLO_MS)


@dataclass(frozen=True)
class Busy:
    """A box with one worker, and a model whose runs take nearly half of its SLO."""

    server: Server

    def head(self, *lines: str) -> bytes:
        """Of a request with a large body, which it does not have."""
        key = f"Authorization: Bearer {self.server.admin_key}"
        return "\r\n".join(["POST /v2/models/busy/infer HTTP/1.1", "Host: box", key, *lines, "", ""]).encode()

    @contextmanager
    def full(self) -> Iterator[None]:
        """While others ask without a pause, so that more would be late."""
        url, headers = f"{self.server.url}/v2/models/busy/infer", {"Authorization": f"Bearer {self.server.admin_key}"}
        has_ended = False
        seen: set[int] = set()

        def flood() -> None:
            with httpx.Client(headers=headers, timeout=60) as client:
                while not has_ended:
                    seen.add(client.post(url, json=ORDER).status_code)

        with ThreadPoolExecutor(8) as threads:
            for _ in range(8):
                threads.submit(flood)
            for _ in range(6000):
                if 429 in seen:
                    break
                pause_s(0.01)
            assert 429 in seen
            try:
                yield
            finally:
                has_ended = True
        assert seen <= {200, 429, 504}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    folder = tmp_path_factory.mktemp("overload")
    asyncio.run(furnish(SCENARIO, folder))
    with running_server(folder / "state", **settings_of(SCENARIO)) as server:
        made = Busy(server)
        with closing(Wire(server.url)) as wire:
            status = 0
            while status != 200:  # the first ones bring it into memory
                status = wire.ask(made.head(f"Content-Length: {len(BODY)}") + BODY)
        yield made


def refused(busy: Busy, line: str) -> Wire:
    """A connection on which a head alone was refused, with the seconds after which to try again."""
    for _ in range(TRIES):
        wire = Wire(busy.server.url)
        wire.socket.settimeout(10)
        wire.send(busy.head(line))
        try:
            status, body = wire.answer()
        except TimeoutError:
            status, body = 100, b""
        if status == 100:  # it came at a moment when there was room, and the box waits for its body
            wire.close()
            continue
        assert status == 429, body
        assert 0 < float(json.loads(body)["error"].rsplit(" ", 2)[1]) < 60
        return wire
    raise AssertionError("it was never refused")


def test_overloaded_box_refuses_a_request_before_its_body(busy: Busy) -> None:
    """Announced, of unknown length, or waiting to be asked for: the answer is there before a byte of it came. The
    connection goes on after a body of stated length, and ends otherwise.
    """
    ways = {
        f"Content-Length: {len(BODY)}": (BODY, 200),
        "Transfer-Encoding: chunked": (b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), 0),
        f"Content-Length: {len(BODY)}\r\nExpect: 100-continue": (BODY, 0),
    }
    for line, (body, after) in ways.items():
        with busy.full(), closing(refused(busy, line)) as wire:
            wire.send(body + b"GET /v2/health/live HTTP/1.1\r\nHost: box\r\n\r\n")
            assert wire.answer()[0] == after, line


def test_pipelined_requests_to_an_overloaded_box_are_each_answered(busy: Busy) -> None:
    """Three in one piece on one connection: each has its answer, in order, and then the next request is served."""
    one = busy.head(f"Content-Length: {len(BODY)}") + BODY
    with closing(Wire(busy.server.url)) as wire:
        with busy.full():
            seen: set[int] = set()
            for _ in range(TRIES):  # there may be room for three, one after the other
                wire.send(one * 3 + b"GET /v2/health/live HTTP/1.1\r\nHost: box\r\n\r\n")
                answers = [wire.answer()[0] for _ in range(4)]
                assert answers[3] == 200
                seen |= set(answers[:3])
                if 429 in seen:
                    break
            assert 429 in seen
            assert seen <= {200, 429, 504}
        assert any(wire.ask(one) == 200 for _ in range(100))
