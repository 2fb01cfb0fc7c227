"""A real box with more networks than fit into its memory awake: asked in turn, they sleep and wake all the time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np

from tests import toys
from tests.e2e.server import Server, brought, running_server

MEGABYTES = 8
AWAKE = 1.7
"""So many of them fit, with what the others keep."""
_AMPLE_BYTES = 1 << 30
NEAR = 1e-4
"""Prepared forms and plain files differ in the last digits."""


@dataclass
class SleepingBox:
    """The box, and what its networks answer."""

    server: Server
    expected: Mapping[str, Sequence[float]]

    def ask(self, client: httpx.Client, name: str) -> httpx.Response:
        """One request; the answer is right, or it is an error."""
        answer = client.post(f"/v2/models/{name}/infer", json=_REQUEST)
        if answer.status_code == 200:
            found = answer.json()["outputs"][0]["data"]
            assert np.allclose(found, self.expected[name], atol=NEAR), name
        return answer

    def restart(self, **environment: str) -> None:
        """Start anew with these settings and no others, and memory for `AWAKE` networks beside the guards."""
        for budget in (_AMPLE_BYTES, None):
            if budget is None:
                with self.client() as client:
                    for name in self.expected:
                        assert self.ask(client, name).status_code == 200
                    memory = client.get("/v1/memory").json()
                largest = max(build["resident_bytes"] for build in memory["builds"])
                budget = int(AWAKE * largest) + memory["overhead_bytes"]
            self.server.stop()
            self.server.environment.clear()
            self.server.environment.update(environment, APPLIANCE_MEMORY__BUDGET_BYTES=str(budget))
            self.server.start_again()

    def client(self) -> httpx.Client:
        """Of the admin."""
        headers = {"Authorization": f"Bearer {self.server.admin_key}"}
        return httpx.Client(base_url=self.server.url, headers=headers, timeout=120)

    def builds(self, client: httpx.Client) -> dict[str, dict[str, Any]]:
        """All that there are, by the network."""
        builds = client.get("/v1/memory").raise_for_status().json()["builds"]
        return {build["applications"][0].partition("/")[2]: build for build in builds if build["applications"]}

    def weights(self, build_id: str = "*") -> list[Path]:
        """Of its prepared form, or of all of them, in no order."""
        return list((self.server.state_dir / "prepared").glob(f"*/{build_id}/model.bin"))

    def leave_cache(self, chance: Random) -> None:
        """Have one of the files read from the disk again."""
        with chance.choice(self.weights()).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


_IMAGE = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).round(3)
_REQUEST = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": _IMAGE.ravel().tolist()}]}


@contextmanager
def sleeping_box(folder: Path, names: Sequence[str]) -> Iterator[SleepingBox]:
    """Import the networks, then start anew with memory for `AWAKE` of them."""
    with running_server(folder / "state") as server:
        for seed, name in enumerate(names):
            upload(server, toys.conv_net(folder / f"{name}.onnx", MEGABYTES, seed=seed), name)
        box = SleepingBox(server, {name: _asked(server, name) for name in names})
        box.restart()
        yield box


def upload(server: Server, path: Path, name: str) -> None:
    """Import a network, to the end."""
    with server.client() as client:
        brought(client, path, name, "tensor", metadata={"precisions": []})


def _asked(server: Server, name: str) -> list[float]:
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    answer = httpx.post(f"{server.url}/v2/models/{name}/infer", json=_REQUEST, headers=headers, timeout=120)
    found: list[float] = answer.raise_for_status().json()["outputs"][0]["data"]
    return found
