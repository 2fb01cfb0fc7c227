"""One running box for the tests of streams: a process of its own, with the tenants and models of a stand."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.demo.zoo import toys
from tests.api.stand import copied
from tests.api.streams.device import PATIENCE_S, Device, opened
from tests.e2e.server import Server, running_server

LATENCY = {"kind": "latency", "slo_ms": 30_000, "rate_rps": 10}
"""However busy the machine is, an answer is in time; what was captured a minute ago is too old."""


@dataclass(frozen=True)
class Box:
    """A box behind a port."""

    server: Server
    keys: dict[str, str]
    pictures: list[bytes]

    def http(self, who: str = "device") -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        return httpx.AsyncClient(base_url=self.server.url, headers=headers, timeout=PATIENCE_S)

    async def join(self, who: str = "device", **fields: Any) -> str:
        """A new session of `digits`; returns its id."""
        order = {"application": "digits", "name": "cam", "fps": 30, "promise": LATENCY} | fields
        async with self.http(who) as client:
            answer = await client.post("/v1/sessions", json=order)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def shown(self, session: str, who: str = "device") -> dict[str, Any]:
        async with self.http(who) as client:
            answer = await client.get(f"/v1/sessions/{session}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    @contextlib.asynccontextmanager
    async def device(self, session: str | None = None, who: str = "device", query: str = "") -> AsyncIterator[Device]:
        """A device with its stream; of a session of its own unless one is named."""
        session = session or await self.join(who)
        async with opened(self.server.url, self.keys[who], session, query) as device:
            yield device


@pytest.fixture(scope="module")
def box(
    furnished: tuple[Path, dict[str, str]], digits: toys.Digits, tmp_path_factory: pytest.TempPathFactory, ports: None
) -> Iterator[Box]:
    """Made once for each module."""
    state_dir = copied(furnished[0], tmp_path_factory.mktemp("streams") / "state")
    pictures = [path.read_bytes() for path in sorted(digits.evaluation.glob("*.png"))[:20]]
    with running_server(state_dir, APPLIANCE_GUARD__ISOLATION="none") as server:
        yield Box(server, dict(furnished[1]), pictures)
