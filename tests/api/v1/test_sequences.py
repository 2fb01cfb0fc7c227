"""Stateful models over HTTP; what sequences keep is told in `tests/runtime/serving`."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.hand_written_networks import running_sum
from tests.api.stand import FurnishedWith, Stand, imported, refusal, request_end

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def furnished_state(furnished_with: FurnishedWith, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A furnished state folder with the model, of museum's, shared, so that harbour may use it as well."""
    network = running_sum(tmp_path_factory.mktemp("sum") / "sum.onnx").read_bytes()
    metadata = {"precisions": [], "state": [{"input": "S", "output": "SN", "shape": [1, 2]}], "shared": True}

    async def teach(stand: Stand) -> None:
        job = await imported(stand.client("museum"), "sum", network, metadata=metadata)
        assert job["state"] == "done", job

    return furnished_with(teach)


@pytest.fixture
def summing(stand: Stand) -> httpx.AsyncClient:
    """museum's client."""
    return stand.client("museum")


async def ask(client: httpx.AsyncClient, value: float, query: str = "") -> Any:
    answer = await client.post("/v1/applications/sum/predict" + query, json={"inputs": {"X": [[value, -value]]}})
    if answer.status_code != 200:
        return answer.json()["type"]
    data = answer.json()["outputs"]["Y"]["data"]
    return data[0][0] if isinstance(data[0], list) else data[0]


async def test_sequence_keeps_its_state_until_its_end(summing: httpx.AsyncClient) -> None:
    """Sums go on within a sequence; without one each request starts from nothing."""
    assert await ask(summing, 1, "?sequence_id=a&sequence_start=true") == 1
    assert await ask(summing, 2, "?sequence_id=a") == 3
    assert await ask(summing, 5) == 5
    assert await ask(summing, 4, "?sequence_id=a&sequence_end=true") == 7
    assert await ask(summing, 1, "?sequence_id=a") == "/problems/illegal-state"


async def test_sequences_of_other_ids_and_tenants_do_not_mix(stand: Stand, summing: httpx.AsyncClient) -> None:
    harbour = stand.client("harbour")
    assert await ask(summing, 1, "?sequence_id=a&sequence_start=true") == 1
    assert await ask(summing, 10, "?sequence_id=b&sequence_start=true") == 10
    assert await ask(harbour, 100, "?sequence_id=a") == "/problems/illegal-state"
    assert await ask(harbour, 100, "?sequence_id=a&sequence_start=true") == 100
    assert await ask(summing, 1, "?sequence_id=a") == 2
    assert await ask(summing, 1, "?sequence_id=b") == 11


async def test_sequence_is_shared_by_predict_and_infer(summing: httpx.AsyncClient) -> None:
    """A sequence begun by one protocol goes on in the other."""
    assert await ask(summing, 1, "?sequence_id=a&sequence_start=true") == 1
    body = {
        "parameters": {"sequence_id": "a"},
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [2, -2]}],
        "outputs": [{"name": "Y"}],
    }
    answer = await summing.post("/v2/models/sum/infer", json=body)
    assert answer.json()["outputs"][0]["data"] == [3, -3], answer.text
    assert await ask(summing, 4, "?sequence_id=a") == 7


async def test_sequence_requests_without_waiting_keep_their_order(summing: httpx.AsyncClient) -> None:
    """Each sees the sums of those before; a request of a sequence that has ended is refused at once."""
    locations = []
    for step in range(10):
        place = "&sequence_start=true" if step == 0 else "&sequence_end=true" if step == 9 else ""
        path = f"/v1/applications/sum/predict?wait=false&sequence_id=a{place}"
        answer = await summing.post(path, json={"inputs": {"X": [[1, -1]]}})
        assert answer.status_code == 202, answer.text
        locations.append(answer.headers["location"])
    told = [await request_end(summing, location) for location in locations]
    sums = [one["result"]["outputs"]["Y"]["data"][0] for one in told]
    assert [one[0] if isinstance(one, list) else one for one in sums] == list(range(1, 11))
    gone = await summing.post("/v1/applications/sum/predict?wait=false&sequence_id=a", json={"inputs": {"X": [[1, 1]]}})
    assert refusal(gone) == (409, "illegal-state")
