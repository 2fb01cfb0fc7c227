"""Outputs of runs that wait to be written: they count with the bodies in memory."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.domain.states import JobState
from tests.api.stand import Stand, StandWith, imported
from tests.fakes.waiting import until
from tests.modelstore import networks

pytestmark = pytest.mark.anyio

MB = 2**20
ROW = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}
ASKED = {
    "/v2/models/wide/infer": {"inputs": [ROW]},
    "/v1/applications/wide/predict": {"inputs": {"X": [[1]]}},
}
"""A request of a few bytes whose output has a MiB, by the path that takes it."""


@pytest.fixture
async def narrow(stand_with: StandWith) -> AsyncIterator[Stand]:
    """A box that keeps two MiB of bodies in memory, with a model that answers a number by a MiB."""
    settings: dict[str, Any] = {"inflight_bytes_max": 2 * MB, "body_bytes_max": MB}
    model = networks.parsed("float[N,1] X", "Y = Tile(X, t)", f"int64[2] t = {{1,{MB // 4}}}", "float[N,M] Y")
    async with stand_with(http=settings, queues={"media_threads": 1}) as made:
        content = model.SerializeToString()
        job = await imported(made.client("harbour"), "wide", content, metadata={"precisions": []})
        assert job["state"] == JobState.DONE, job
        yield made


@pytest.mark.parametrize("path", ASKED)
async def test_outputs_without_room_in_memory_while_they_wait_are_refused(narrow: Stand, path: str) -> None:
    """Three answers wait for the thread that writes them, and there is room for one; then there is room again."""
    client, media = narrow.client("harbour"), narrow.appliance.running().media
    decoding, writing = threading.Event(), threading.Event()
    held_up = [asyncio.create_task(media.run("harbour/wide", "harbour", None, decoding.wait))]
    asking = [asyncio.create_task(client.post(path, json=ASKED[path])) for _ in range(3)]
    try:
        decodes = 3 if path.endswith("predict") else 0
        await until(lambda: media.waiting == 1 + decodes or any(one.done() for one in asking))
        held_up.append(asyncio.create_task(media.run("harbour/wide", "harbour", None, writing.wait)))
        decoding.set()
        await until(lambda: sum(one.done() for one in asking) == 2 or media.waiting == 4)
    finally:
        decoding.set()
        writing.set()
        await asyncio.gather(*held_up)
    answers = [await one for one in asking]
    assert sorted(answer.status_code for answer in answers) == [200, 503, 503]
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)
    assert narrow.appliance.in_flight.bytes == 0
    assert (await client.post(path, json=ASKED[path])).status_code == 200
