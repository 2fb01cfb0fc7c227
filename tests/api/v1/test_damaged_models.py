"""Models whose files the disk has changed: what is said of them, and how the same file brings them back."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.api.hand_written_networks import quiet_rows, sensor_counts, sensor_level
from tests.api.stand import copied, good, imported, job_end, refusal, stand_on

pytestmark = pytest.mark.anyio
PLAIN: dict[str, Any] = {"precisions": []}


async def predicted(client: httpx.AsyncClient, name: str) -> httpx.Response:
    return await client.post(f"/v1/applications/{name}/predict", json={"inputs": {"X": sensor_counts(1).tolist()}})


def flip(state_dir: Path, known: set[str]) -> None:
    """Change contents that are not among the known ones, and take what serves in their place."""
    for blob in state_dir.glob("blobs/??/*"):
        if blob.name not in known:
            blob.write_bytes(bytes(blob.stat().st_size))
    shutil.rmtree(state_dir / "prepared")


@pytest.mark.parametrize("name", ["level", "again"])
async def test_damaged_model_serves_again_once_the_same_file_is_uploaded(
    furnished: tuple[Path, dict[str, str]], tmp_path: Path, name: str
) -> None:
    """Under its own name, or under any other; found at a start. Requests are told what to do, once and for all, and
    what was set of the application stays.
    """
    folder = copied(furnished[0], tmp_path / "state")
    model = sensor_level(tmp_path / "level.onnx").read_bytes()
    before = {blob.name for blob in folder.glob("blobs/??/*")}
    async with stand_on(folder, furnished[1]) as stand:
        museum = stand.client("museum")
        assert (await imported(museum, "level", model, metadata=PLAIN))["state"] == "done"
        await museum.patch("/v1/applications/level", json={"weight": 3.0})
        answer = (await predicted(museum, "level")).json()["outputs"]
    flip(folder, before)
    async with stand_on(folder, furnished[1]) as stand:
        museum = stand.client("museum")
        refused = [await predicted(museum, "level"), await museum.post("/v1/applications/level/load", json={})]
        for one in refused:
            assert refusal(one) == (503, "content-damaged")
            assert "upload the same model again under the same name" in one.json()["detail"]
            assert "retry-after" not in one.headers
        other = await imported(museum, "level", quiet_rows(tmp_path / "other.onnx").read_bytes(), metadata=PLAIN)
        assert (other["state"], "this is not the file that it was made of" in other["error"]) == ("failed", True)
        ended = await imported(museum, name, model, metadata=PLAIN)
        assert ended["state"] == "done", ended
        healed = await predicted(museum, "level")
        assert (healed.status_code, healed.json()["outputs"]) == (200, answer)
        assert (await museum.get("/v1/applications/level")).json()["weight"] == 3.0
        health = (await museum.get("/v1/health")).json()["checks"]
        assert [one["status"] for one in health if one["name"] == "files of models"] == ["good"]
        twice = await museum.post("/v1/models", data={"name": "level", "task": "tensor"}, files={"file": model})
        assert refusal(twice) == (409, "already-exists")


async def test_made_and_own_variants_of_damaged_model_serve_again_after_repair(
    furnished: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Those that the box makes come back with the model's file, with their numbers; a tenant's own one with its own."""
    folder = copied(furnished[0], tmp_path / "state")
    model = sensor_level(tmp_path / "level.onnx").read_bytes()
    other = onnx.load_from_string(model)
    scaled = numpy_helper.to_array(other.graph.initializer[2]) * np.float32(0.999)
    other.graph.initializer[2].CopyFrom(numpy_helper.from_array(scaled, other.graph.initializer[2].name))
    own = other.SerializeToString()
    data = {"name": "level", "task": "tensor", "metadata": json.dumps({"precisions": ["int8"]})}
    before = {blob.name for blob in folder.glob("blobs/??/*")}

    async def bring(museum: httpx.AsyncClient) -> dict[str, tuple[str, str]]:
        """Upload the model and a variant; returns the state and reason of each variant."""
        for path, form, file in (("/v1/models", data, model), ("/v1/models/level/variants", {"name": "own"}, own)):
            accepted = await good(museum.post(path, data=form, files={"file": file}))
            assert (await job_end(museum, accepted["id"]))["state"] == "done"
        variants = (await museum.get("/v1/models/level")).json()["variants"]
        return {one["name"]: (one["state"], one["reason"]) for one in variants}

    async with stand_on(folder, furnished[1]) as stand:
        whole = await bring(stand.client("museum"))
    flip(folder, before)
    async with stand_on(folder, furnished[1]) as stand:
        museum = stand.client("museum")
        lost = (await museum.get("/v1/models/level")).json()["variants"]
        assert {one["state"] for one in lost} == {"failed"}
        assert await bring(museum) == whole
        for variant in ("fp32", "int8", "own"):
            await good(
                museum.post(
                    f"/v1/applications/level/predict?variant={variant}",
                    json={"inputs": {"X": sensor_counts(1).tolist()}},
                )
            )
