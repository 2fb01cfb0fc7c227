"""Callers that close their connection take their waiting work back: it is not run, and counted as cancelled."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.server import Server, running_server
from tests.fakes.emulated_box import INPUT, furnish, one_busy_worker, settings_of

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.anyio]

RUN_MS = 100
CALLERS = 40
SCENARIO = one_busy_worker(RUN_MS)
TENSOR = {"name": INPUT, "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
BODIES = {
    "/v2/models/busy/infer": {"inputs": [TENSOR]},
    "/v1/applications/busy/predict": {"inputs": {INPUT: [[1.0]]}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A box with one worker, whose runs take a tenth of a second."""
    folder = tmp_path_factory.mktemp("leaving")
    asyncio.run(furnish(SCENARIO, folder))
    with running_server(folder / "state", **settings_of(SCENARIO)) as server:
        yield server


def counted(server: Server, outcome: str) -> float:
    """Requests that have ended so since the start."""
    return measured(server, "appliance_requests_total", f'outcome="{outcome}"')


def queued(server: Server) -> float:
    return measured(server, "appliance_queue_length")


def measured(server: Server, name: str, label: str = "") -> float:
    """The sum of a metric over its rows, or over those with a label."""
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    lines = httpx.get(f"{server.url}/metrics", headers=headers, timeout=60).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{") and label in line)


@pytest.mark.parametrize("path", BODIES)
async def test_queued_requests_of_closed_connections_are_cancelled(server: Server, path: str) -> None:
    """Forty callers ask, and leave while one request runs: the other requests are never run, and a caller that stays
    waits for none.
    """
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps(BODIES[path]).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer {server.admin_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    done, cancelled = counted(server, "done"), counted(server, "cancelled")
    callers = [await asyncio.open_connection(host, int(port)) for _ in range(CALLERS)]
    for _, writer in callers:
        writer.write(head + body)
    while await asyncio.to_thread(queued, server) < CALLERS - 10:
        pass
    for _, writer in callers:
        writer.close()
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    answer = await asyncio.to_thread(httpx.post, f"{server.url}{path}", json=BODIES[path], headers=headers, timeout=60)
    assert answer.status_code == 200
    ended = counted(server, "done") - done, counted(server, "cancelled") - cancelled
    assert sum(ended) == CALLERS + 1
    assert ended[0] <= 12
    assert queued(server) == 0
