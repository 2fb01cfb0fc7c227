"""A real network that a real kind of processor does not run whole runs in parts on both kinds: over REST, and in the
middle of what may happen to it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import onnxruntime
import pytest

from appliance.app import Appliance
from appliance.domain.states import ProcessorState
from appliance.machine import Machine
from appliance.runtime.processors.member import Member
from tests.api.stand import Stand, copied, imported, stand_on
from tests.modelstore.networks import normalised, write

pytestmark = [pytest.mark.nightly("imports that cut networks for two kinds"), pytest.mark.timeout(300)]
SETTINGS: dict[str, Any] = {
    "processors": [{"kind": "cpu", "workers": 2}, {"kind": "openvino", "workers": 2}],
    "imports": {"part_ops_min": 1},
}
CLOSE = 0.01
"""An average that falls on the border of two steps of 8 bits may be either."""


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, 64, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return Path(write(normalised(), tmp_path_factory.mktemp("network"))).read_bytes()


@pytest.fixture(scope="module")
def whole(source: bytes) -> onnxruntime.InferenceSession:
    """What every answer has to be."""
    return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])


async def upload(client: httpx.AsyncClient, source: bytes) -> None:
    job = await imported(client, "net", source, shared="true", metadata={"precisions": []})
    assert job["state"] == "done"


async def until_in_parts(client: httpx.AsyncClient) -> dict[str, Any]:
    """The variant once it serves in parts."""
    async with asyncio.timeout(200):
        while True:
            shown = await client.get("/v1/models/net")
            (variant,) = shown.json()["variants"]
            if variant["serves_on"] == "cpu+openvino":
                return cast(dict[str, Any], variant)
            await asyncio.sleep(0.2)  # noqa: TID251 - children of the import work, in real time


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory, source: bytes, processes: None) -> Path:
    """A state folder with the network, cut."""
    state_dir = tmp_path_factory.mktemp("furnished") / "state"

    async def furnish() -> None:
        async with stand_on(state_dir, **SETTINGS) as stand:
            admin = stand.client()
            await upload(admin, source)
            await until_in_parts(admin)

    asyncio.run(furnish())
    return state_dir


@asynccontextmanager
async def box(furnished: Path, tmp_path: Path) -> AsyncIterator[Stand]:
    """A box of one's own with the network, in parts."""
    state_dir = copied(furnished, tmp_path / "state")
    async with stand_on(state_dir, **SETTINGS) as stand:
        await until_in_parts(stand.client())
        yield stand


def openvino_of(appliance: Appliance) -> Member:
    """The kind that may be lost."""
    statuses = cast(partial[Any], appliance.running().processor_statuses)
    machine: Machine = cast(Any, statuses.func).__self__
    (member,) = machine.members
    return member


async def infer(client: httpx.AsyncClient, seed: int) -> httpx.Response:
    x = rows(seed)
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    body = {"inputs": [tensor], "parameters": {"binary_data_output": False}}
    return await client.post("/v2/models/net/infer", json=body)


def check(whole: onnxruntime.InferenceSession, seed: int, answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    (wanted,) = whole.run(["y"], {"x": rows(seed)})
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), wanted, atol=CLOSE)


def in_parts(answer: httpx.Response) -> bool:
    return "part-0" in answer.headers["server-timing"]


@pytest.mark.anyio
async def test_model_in_parts_answers_as_the_whole_model(
    furnished: Path, tmp_path: Path, whole: onnxruntime.InferenceSession
) -> None:
    """Over both APIs; the answer, the model, the memory and the metrics say which part ran where."""
    async with box(furnished, tmp_path) as stand:
        admin = stand.client()
        for seed in range(4):
            answer = await infer(admin, seed)
            check(whole, seed, answer)
            assert in_parts(answer)
        answers = await asyncio.gather(*(infer(admin, seed) for seed in range(30)))
        for seed, answer in enumerate(answers):
            check(whole, seed, answer)
        body = {"inputs": {"x": rows(1).tolist()}}
        told = (await admin.post("/v1/applications/net/predict", json=body)).json()
        assert [(one["part"], one["kind"]) for one in told["parts"]][:2] == [(0, "openvino"), (1, "cpu")]
        assert told["timings_ms"]["compute"] == pytest.approx(sum(one["ms"] for one in told["parts"]), abs=0.01)
        (variant,) = (await admin.get("/v1/models/net")).json()["variants"]
        assert variant["residency"] == "resident"
        served = [part["serves_on"] for part in variant["cut"]["parts"]]
        assert served[:2] == [["openvino"], ["cpu"]]
        assert all(len(kinds) == 1 for kinds in served)
        builds = [one for one in (await admin.get("/v1/memory")).json()["builds"] if one["bytes"]]
        (build,) = [one for one in builds if one["build"].endswith("@cpu+openvino")]
        assert build["bytes"] == sum(
            profile["resident_bytes"]
            for part in variant["cut"]["parts"]
            for profile in part["profiles"]
            if profile["kind"] in part["serves_on"]
        )
        text = (await admin.get("/metrics")).text
        assert 'appliance_part_runs_total{application="default/net",group="cpu",kind="openvino",number="0"' in text
        statuses = {one["kind"]: one for one in (await admin.get("/v1/processors")).json()}
        assert statuses["openvino"]["runs"] >= 6, "of those that were asked one by one, and of those that shared runs"


@pytest.mark.anyio
async def test_lost_processor_kind_leaves_a_model_in_parts_served_whole(
    furnished: Path, tmp_path: Path, whole: onnxruntime.InferenceSession
) -> None:
    """Each of the requests under way is answered once, on what is left; later ones by the whole; when the kind is back,
    in parts again.
    """
    async with box(furnished, tmp_path) as stand:
        admin, member = stand.client(), openvino_of(stand.appliance)
        check(whole, 0, await infer(admin, 0))
        asked = [asyncio.create_task(infer(admin, seed)) for seed in range(40)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        member.lose("a test has taken it away")
        for seed, one in enumerate(asked):
            check(whole, seed, await one)
        answer = await infer(admin, 41)
        check(whole, 41, answer)
        assert not in_parts(answer)
        assert member.state is ProcessorState.LOST
        member.serve()
        async with asyncio.timeout(200):
            while not in_parts(answer):
                answer = await infer(admin, 42)
                check(whole, 42, answer)
                await asyncio.sleep(0.05)  # noqa: TID251 - it is loaded again, in real time
        assert stand.appliance.running().engine.status()["running"] == 0
