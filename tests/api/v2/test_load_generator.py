"""What the field's load generator, `perf_analyzer`, asks of a server in one run, and the checks that it stops at.

Read from its sources (`model_parser.cc`, `data_loader.cc`, `infer_data_manager.cc`, `inference_profiler.cc`,
`triton_client_backend.cc`).
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.api.hand_written_networks import running_sum, table_sums
from tests.api.stand import FurnishedWith, Stand, good, imported

pytestmark = [
    pytest.mark.nightly("what one load generator asks, with networks of its own; the reference client is in the gate"),
    pytest.mark.anyio,
]
ITEM_BYTES = {"FP32": 4, "FP16": 2, "INT64": 8, "INT8": 1, "UINT8": 1}
REQUESTS = 5


Document = Mapping[str, Any]
Stats = Mapping[tuple[str, str], Mapping[str, int]]


def check_parsed(metadata: Document, config: Document) -> None:
    """What `ModelParser::InitTriton` stops at."""
    assert type(config["max_batch_size"]) is int
    for side in ("input", "output"):
        assert {tensor["name"] for tensor in config[side]} == {tensor["name"] for tensor in metadata[f"{side}s"]}
        assert all(type(tensor.get("optional", False)) is bool for tensor in config[side])
        assert all(type(dim) is int for tensor in metadata[f"{side}s"] for dim in tensor["shape"])


def infer_body(metadata: Document, config: Document, batch: int = 1, **parameters: Any) -> tuple[bytes, dict[str, str]]:
    """`InferDataManager`: random bytes in shapes of the metadata, whose first axis is the batch where there is a
    largest batch; outputs as binary. Returns body and headers.
    """
    described, chunks = [], []
    rng = np.random.default_rng(0)
    for tensor in metadata["inputs"]:
        item = tensor["shape"][1 if config["max_batch_size"] else 0 :]
        assert item, "unable to set shape for the input"
        assert all(dim >= 0 for dim in item), f"input {tensor['name']} contains dynamic shape, provide shapes"
        shape = [batch, *item] if config["max_batch_size"] else item
        chunks.append(rng.bytes(prod(shape) * ITEM_BYTES[tensor["datatype"]]))
        described.append({**tensor, "shape": shape, "parameters": {"binary_data_size": len(chunks[-1])}})
    outputs = [{"name": tensor["name"], "parameters": {"binary_data": True}} for tensor in metadata["outputs"]]
    header = {"id": "0", "inputs": described, "outputs": outputs} | ({"parameters": parameters} if parameters else {})
    text = json.dumps(header).encode()
    sizes = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}
    return b"".join([text, *chunks]), sizes


def header_of(answer: httpx.Response) -> Document:
    assert answer.status_code == 200, answer.text
    header: Document = json.loads(answer.content[: int(answer.headers["inference-header-content-length"])])
    return header


def read_statistics(answer: Document) -> Stats:
    """`TritonClientBackend::ParseStatistics`: every field it takes must be there, and unsigned."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for row in answer["model_stats"]:
        parts = ("success", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
        figures = {f"{part}.{unit}": row["inference_stats"][part][unit] for part in parts for unit in ("count", "ns")}
        figures |= {name: row[name] for name in ("inference_count", "execution_count")}
        assert all(type(value) is int and value >= 0 for value in figures.values())
        rows[row["name"], row["version"]] = figures
    return rows


def measured_version(name: str, version: str, start: Stats, end: Stats) -> str:
    """`DetermineStatsModelVersion`: the asked one, else the highest whose queue count grew."""
    before = {id: row["queue.count"] for id, row in start.items()}
    grown = [id[1] for id, row in end.items() if id[0] == name and row["queue.count"] > before.get(id, 0)]
    found = version or max(grown, key=int, default="")
    assert (name, found) in end, "failed to find the requested model version"
    return found


async def measure(client: httpx.AsyncClient, name: str, *, version: str = "", batch: int = 1) -> Mapping[str, int]:
    """One run of the load generator; returns what the server's statistics grew by."""

    async def asked(path: str) -> Any:
        return await good(client.get(path))

    assert "statistics" in (await asked("/v2"))["extensions"]
    path = f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
    metadata, config = await asked(path), await asked(f"{path}/config")
    check_parsed(metadata, config)
    assert batch == 1 or config["max_batch_size"], "batch size > 1 is given, but the model does not support batching"
    start = read_statistics(await asked(f"{path}/stats"))
    for number in range(REQUESTS):
        ends = {"sequence_id": 7, "sequence_start": number == 0, "sequence_end": number == REQUESTS - 1}
        body, headers = infer_body(metadata, config, batch, **(ends if "sequence_batching" in config else {}))
        header = header_of(await client.post(f"{path}/infer", content=body, headers=headers))
        assert header["model_name"] == name
        assert {one["name"] for one in header["outputs"]} == {one["name"] for one in metadata["outputs"]}
    end = read_statistics(await asked(f"{path}/stats"))
    id = (name, measured_version(name, version, start, end))
    grown = {figure: value - start.get(id, {}).get(figure, 0) for figure, value in end[id].items()}
    counts = [grown[f"compute_{part}.count"] for part in ("input", "infer", "output")]
    assert len(set(counts)) == 1, "Server side statistics compute counts must be the same."
    return grown


@pytest.fixture(scope="module")
def furnished_state(furnished_with: FurnishedWith, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two models of harbour's whose first axis is no batch."""
    folder = tmp_path_factory.mktemp("fixed")
    state = {"state": [{"input": "S", "output": "SN", "shape": [1, 2]}]}
    models = {
        "table": (table_sums(folder / "table.onnx"), {"precisions": []}),
        "sum": (running_sum(folder / "sum.onnx"), {"precisions": [], **state}),
    }

    async def teach(stand: Stand) -> None:
        for name, (path, metadata) in models.items():
            job = await imported(stand.client("harbour"), name, path.read_bytes(), metadata=metadata)
            assert job["state"] == "done", job

    return furnished_with(teach)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("version", ["", "1"])
async def test_load_generator_run_is_answered_with_figures_that_add_up(stand: Stand, version: str, batch: int) -> None:
    """Without a flag, and with those for batch and version."""
    grown = await measure(stand.client("harbour"), "digits", version=version, batch=batch)
    assert grown["success.count"] == grown["execution_count"] == grown["compute_input.count"] == REQUESTS
    assert grown["inference_count"] == REQUESTS * batch
    spent = grown["queue.ns"] + sum(grown[f"compute_{part}.ns"] for part in ("input", "infer", "output"))
    assert 0 < grown["compute_infer.ns"] <= spent <= grown["success.ns"]


async def test_config_gives_the_largest_measured_batch(stand: Stand) -> None:
    """A free first axis is the batch: it stands in the metadata and not in `dims`; what was profiled says how far it
    goes.
    """
    client = stand.client("harbour")
    config = (await client.get("/v2/models/digits/config")).json()
    assert config["input"] == [{"name": "image", "data_type": "TYPE_FP32", "dims": [1, 8, 8]}]
    assert config["output"] == [{"name": "probabilities", "data_type": "TYPE_FP32", "dims": [10]}]
    metadata = (await client.get("/v2/models/digits")).json()
    assert metadata["inputs"][0]["shape"] == [-1, *config["input"][0]["dims"]]
    profile = (await client.get("/v1/models/digits/variants/fp32")).json()["profile"]
    assert config["max_batch_size"] == max(row["batch"] for row in profile["latencies"]) == 8


async def test_model_versions_are_numbers_in_all_documents_and_paths(stand: Stand) -> None:
    """Metadata, index, statistics and answers say the same number; paths take the number as well as the name, and
    nothing else.
    """
    client = stand.client("harbour")
    metadata = (await client.get("/v2/models/digits")).json()
    assert (metadata["versions"], metadata["variants"]) == (["1"], {"1": "fp32"})
    index = (await client.post("/v2/repository/index", json={})).json()
    row = next(row for row in index if row["name"] == "digits")
    assert (row["version"], row["variant"], row["state"]) == ("1", "fp32", "READY")
    body, headers = infer_body(metadata, (await client.get("/v2/models/digits/config")).json())
    for version in ("1", "fp32"):
        path = f"/v2/models/digits/versions/{version}"
        header = header_of(await client.post(f"{path}/infer", content=body, headers=headers))
        assert (header["model_version"], header["parameters"]) == ("1", {"variant": "fp32", "evidence": "original"})
        (row,) = (await client.get(f"{path}/stats")).json()["model_stats"]
        assert (row["version"], row["variant"]) == ("1", "fp32")
        for end in ("", "/ready", "/config"):
            assert (await client.get(path + end)).status_code == 200
    for version in ("2", "01", "0", "int8"):
        path = f"/v2/models/digits/versions/{version}"
        assert (await client.get(path)).status_code == 404
        assert (await client.post(f"{path}/infer", content=body, headers=headers)).status_code == 404
    shown = (await client.get("/v1/models/digits/variants/fp32")).json()
    assert shown["number"] == 1


async def test_statistics_leave_out_a_deleted_variant(stand: Stand) -> None:
    client = stand.client("harbour")
    await measure(client, "digits")
    assert (await client.delete("/v1/models/digits/variants/fp32")).status_code == 200
    assert (await client.get("/v2/models/digits/stats")).json() == {"model_stats": []}
    everything = (await client.get("/v2/models/stats")).json()["model_stats"]
    names = {row["name"] for row in everything}
    assert ("adding" in names, "digits" in names) == (True, False)


@pytest.mark.nightly("the program of another maker, once more")
async def test_model_with_a_fixed_first_axis_has_no_batch(stand: Stand) -> None:
    """Shapes are whole and sent as they are; four rows of one table are one inference, not four."""
    client = stand.client("harbour")
    config = (await client.get("/v2/models/table/config")).json()
    assert (config["max_batch_size"], config["input"][0]["dims"], config["output"][0]["dims"]) == (0, [4, 3], [3])
    grown = await measure(client, "table")
    assert grown["inference_count"] == grown["execution_count"] == REQUESTS


@pytest.mark.nightly("the program of another maker, once more")
async def test_config_of_a_model_with_state_asks_for_sequences(stand: Stand) -> None:
    """And says that the box supplies the state itself."""
    client = stand.client("harbour")
    config = (await client.get("/v2/models/sum/config")).json()
    assert config["sequence_batching"] == {"max_sequence_idle_microseconds": 60_000_000}
    assert [tensor.get("optional", False) for tensor in config["input"]] == [False, True]
    grown = await measure(client, "sum")
    assert grown["inference_count"] == REQUESTS


async def test_models_named_like_path_parts_are_served(stand: Stand) -> None:
    """An application of the name `config` or `ready` has metadata like any other."""
    client = stand.client("harbour")
    for name in ("config", "ready"):
        assert (await client.post("/v1/applications", json={"name": name, "model": "table"})).status_code == 201
        assert (await client.get(f"/v2/models/{name}")).json()["name"] == name
        assert (await client.get(f"/v2/models/{name}/ready")).status_code == 200
        await measure(client, name)
    assert (await client.get("/v2/models/table/nothing")).status_code == 404
