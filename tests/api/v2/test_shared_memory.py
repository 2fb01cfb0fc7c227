"""Shared memory inside a running box: who may register, and a region that is unregistered under a request."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.api.auth.callers import CONNECTION, Shown
from appliance.api.regions.region import FOLDER
from appliance.api.v2 import shared_memory
from tests.api.stand import ANSWER_S, Asking, Stand, StandWith
from tests.fakes.waiting import until

pytestmark = pytest.mark.anyio
REGION = "/v2/systemsharedmemory/region/frames"


class LocalConnection:
    """From this very process."""

    def __init__(self, carried_by: socket.socket) -> None:
        self.tenant: str | None = None
        self.shown: Shown | None = None
        self._carried_by = carried_by

    def duplicate(self) -> socket.socket | None:
        return self._carried_by.dup()

    def known(self, tenant: str) -> None:
        self.tenant = tenant


class LocalAsking(Asking):
    """A request over a connection from this process."""

    def scope(self) -> dict[str, Any]:
        self.ends = socket.socketpair()
        return {**super().scope(), CONNECTION: LocalConnection(self.ends[0])}

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        for end in self.ends:
            end.close()


def buffer(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None
    return memory.buf


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory(create=True, size=48)
    np.frombuffer(buffer(made), np.float32, 8)[:] = range(8)
    yield made
    made.close()
    made.unlink()


def post(stand: Stand, path: str, order: Any, who: str = "harbour") -> LocalAsking:
    headers = {"authorization": f"Bearer {stand.keys[who]}", "content-type": "application/json"}
    return LocalAsking(stand.appliance.asgi, "POST", path, headers, iter([json.dumps(order).encode()]))


def open_files(memory: SharedMemory) -> int:
    links = Path(f"/proc/{os.getpid()}/fd").iterdir()
    return sum(os.path.realpath(link) == f"{FOLDER}/{memory.name}" for link in links)


async def test_shared_memory_is_registered_from_the_box_only(stand_with: StandWith, memory: SharedMemory) -> None:
    """Over a connection whose user is unknown, no object is looked at, and no key of any object is told."""
    order = {"key": memory.name, "offset": 0, "byte_size": 48}
    before = open_files(memory)
    async with stand_with(http={"shared_memory": True}) as stand:
        client = stand.client("harbour")
        for key in (memory.name, "nothing", ".."):
            answer = await client.post(f"{REGION}/register", json={**order, "key": key})
            assert answer.status_code == 403
            assert answer.headers["problem-type"] == "/problems/not-on-box"
        async with post(stand, f"{REGION}/register", order, "device") as asking:
            assert await asking.status() == 200
        assert (await client.get(f"{REGION}/status")).json() == [{"name": "frames", **order}]
    assert open_files(memory) == before


async def test_shared_memory_unregistered_under_a_request_serves_that_request(
    stand_with: StandWith, memory: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request reads and writes the region, and then it is closed; a later request finds none."""
    monkeypatch.setattr(shared_memory, "_COPIED_SOON_BYTES", 0)  # copied in a thread, which the test holds up
    before = open_files(memory)
    settings: dict[str, Any] = {"http": {"shared_memory": True}, "queues": {"media_threads": 1}}
    async with stand_with(**settings) as stand:
        async with post(stand, f"{REGION}/register", {"key": memory.name, "byte_size": 48}) as asking:
            assert await asking.status() == 200
        assert open_files(memory) == before + 1
        go = threading.Event()
        media = stand.appliance.running().media
        other = asyncio.create_task(media.run("t/a", "t", None, lambda: go.wait(ANSWER_S)))
        await until(lambda: media.waiting == 1)
        place = {"shared_memory_region": "frames", "shared_memory_byte_size": 16}
        inputs = [
            {"name": "A", "shape": [1, 4], "datatype": "FP32", "parameters": place},
            {"name": "B", "shape": [1, 4], "datatype": "FP32", "parameters": {**place, "shared_memory_offset": 16}},
        ]
        outputs = [{"name": "SUM", "parameters": {**place, "shared_memory_offset": 32}}]
        call = {"inputs": inputs, "outputs": outputs}
        async with post(stand, "/v2/models/adding/infer", call) as infer:
            await until(lambda: media.waiting == 2)  # the request waits for the thread
            client = stand.client("harbour")
            assert (await client.post(f"{REGION}/unregister")).status_code == 200
            assert (await client.get("/v2/systemsharedmemory/status")).json() == []
            assert open_files(memory) == before + 1
            go.set()
            assert await infer.status() == 200
        await other
        assert np.frombuffer(buffer(memory), np.float32, 4, 32).tolist() == [4, 6, 8, 10]
        async with post(stand, "/v2/models/adding/infer", call) as late:
            assert await late.status() == 404
        await until(lambda: open_files(memory) == before)  # a thread closes it
