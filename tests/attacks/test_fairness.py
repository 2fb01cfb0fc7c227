"""One tenant floods a real box: another is answered all the same.

Which run goes when is counted in runs, not in seconds: how long they take is the machine's.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from appliance.wire.access import KeyOrder
from tests.benchmarks._busy import products
from tests.e2e.server import Server, running_server

pytestmark = pytest.mark.timeout(300)

RUN_MS = 60


@dataclass(frozen=True)
class Crowd:
    """A box with one worker, and two tenants with a model of `RUN_MS` each."""

    server: Server
    keys: dict[str, str]

    def ask(self, tenant: str, **parameters: int) -> httpx.Response:
        """One request of a tenant to its model."""
        inputs = [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]
        body: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
        headers = {"Authorization": f"Bearer {self.keys[tenant]}"}
        return httpx.post(f"{self.server.url}/v2/models/busy/infer", json=body, headers=headers, timeout=120)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    folder = tmp_path_factory.mktemp("crowd")
    model = products(folder / "busy.onnx", RUN_MS)
    with running_server(folder / "state", APPLIANCE_PROCESSORS='[{"workers": 1}]') as server:
        keys = {}
        with server.client() as admin:
            for tenant in ("greedy", "quiet"):
                admin.create_tenant(tenant)
                keys[tenant] = admin.create_key(tenant, KeyOrder()).key
        for key in keys.values():
            with server.client(key) as client:
                job = client.upload_model(model, "busy", "tensor", metadata={"precisions": []})
                assert [at.state for at in client.follow_job(job.id)][-1] == "done"
        made = Crowd(server, keys)
        for tenant in keys:
            assert made.ask(tenant).status_code == 200
        yield made


@pytest.mark.parametrize("parameters", [{}, {"priority": 1}, {"timeout": 2_000_000, "priority": 1}], ids=str)
def test_twelve_connections_keep_nobody_waiting(crowd: Crowd, parameters: dict[str, int]) -> None:
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
        for tenant in crowd.keys
    }
