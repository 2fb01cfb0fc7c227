"""One tenant floods a real box: another is answered all the same.

Which run goes when is counted in runs, not in seconds; a run takes as long as its network says, on any machine.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from appliance.lab.scenario import parse_scenario
from appliance.wire.access import KeyOrder
from tests.e2e.server import Server, running_server
from tests.fakes.emulated_box import INPUT, furnish, settings_of

pytestmark = [
    pytest.mark.nightly("half a minute of two tenants in overload"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(300),
]

RUN_MS = 60
TENANTS = ("greedy", "quiet")
SCENARIO = parse_scenario(
    {
        "box": {"memory_mb": 500, "processors": [{"name": "gpu"}]},
        "models": [
            {
                "name": f"of-{tenant}",
                "variants": [
                    {"name": "one", "size_mb": 5, "accuracy": 90, "load_ms": 1, "latency_ms": {"gpu": {"1": RUN_MS}}}
                ],
            }
            for tenant in TENANTS
        ],
        "applications": [{"name": f"of-{tenant}", "model": f"of-{tenant}"} for tenant in TENANTS],
    }
)


@dataclass(frozen=True)
class Crowd:
    """A box with one worker, and two tenants with a model of `RUN_MS` each."""

    server: Server
    clients: dict[str, httpx.Client]

    def ask(self, tenant: str, **parameters: int) -> httpx.Response:
        """One request of a tenant to its model."""
        inputs = [{"name": INPUT, "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]
        body: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
        return self.clients[tenant].post("/v2/models/busy/infer", json=body)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    folder = tmp_path_factory.mktemp("crowd")
    asyncio.run(furnish(SCENARIO, folder, shared=True))
    with running_server(folder / "state", **settings_of(SCENARIO)) as server, ExitStack() as stack:
        clients = {}
        for tenant in TENANTS:
            with server.client() as admin:
                admin.create_tenant(tenant)
                headers = {"Authorization": f"Bearer {admin.create_key(tenant, KeyOrder()).key}"}
            limits = httpx.Limits(max_keepalive_connections=0)  # a test leaves no connection to the next one
            client = stack.enter_context(httpx.Client(base_url=server.url, headers=headers, timeout=120, limits=limits))
            client.post("/v1/applications", json={"name": "busy", "model": f"of-{tenant}"}).raise_for_status()
            clients[tenant] = client
        made = Crowd(server, clients)
        for tenant in TENANTS:
            assert made.ask(tenant).status_code == 200
        yield made


@pytest.mark.parametrize("parameters", [{}, {"priority": 1}, {"timeout": 2_000_000, "priority": 1}], ids=str)
def test_flood_of_twelve_connections_does_not_starve_another_tenant(crowd: Crowd, parameters: dict[str, int]) -> None:
    """While another tenant asks from three connections, the flood of twelve gets about as many runs, not four times as
    many.
    """
    stop, counts = threading.Event(), [0]

    def flood() -> int:
        done = 0
        while not stop.is_set():
            done += crowd.ask("greedy", **parameters).status_code == 200
        return done

    with ThreadPoolExecutor(12) as threads:
        floods = [threads.submit(flood) for _ in range(12)]
        while _queued(crowd) < 8:
            assert not any(future.done() for future in floods)
        before = _done(crowd)
        with ThreadPoolExecutor(3) as few:
            assert all(answer.status_code == 200 for answer in few.map(crowd.ask, ["quiet"] * 30))
        after = _done(crowd)
        stop.set()
        counts = [future.result() for future in floods]
    assert after["quiet"] - before["quiet"] == 30
    assert after["greedy"] - before["greedy"] <= 90  # four times as many would be 120; looking takes a while, too
    assert sum(counts) > 0


def _status(crowd: Crowd) -> httpx.Response:
    headers = {"Authorization": f"Bearer {crowd.server.admin_key}"}
    return httpx.get(f"{crowd.server.url}/metrics", headers=headers, timeout=60)


def _queued(crowd: Crowd) -> float:
    """Requests of the flood that wait."""
    for line in _status(crowd).text.splitlines():
        if line.startswith('appliance_queue_length{application="greedy/busy"}'):
            return float(line.rsplit(" ", 1)[1])
    return 0


def _done(crowd: Crowd) -> dict[str, float]:
    """Requests answered with a result so far, by tenant."""
    lines = [line for line in _status(crowd).text.splitlines() if line.startswith("appliance_requests_total")]
    return {
        tenant: sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if f'tenant="{tenant}"' in line and '"done"' in line
        )
        for tenant in TENANTS
    }
