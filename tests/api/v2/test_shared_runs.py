"""Requests of several callers share a run only where rows do not influence one another."""

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.api.hand_written_networks import quiet_rows
from tests.api.stand import Stand, imported

pytestmark = pytest.mark.anyio


async def test_request_does_not_influence_others_of_its_shared_run(stand: Stand, tmp_path: Path) -> None:
    """The network looks at the other rows only where a value is above 60, which trial inputs never are."""
    museum = stand.client("museum")
    network = quiet_rows(tmp_path / "rows.onnx").read_bytes()
    assert (await imported(museum, "rows", network))["state"] == "done"
    shown = (await museum.get("/v1/models/rows")).json()["variants"]
    assert {one["profile"]["shared_rows_max"] for one in shown if one["profile"]} == {1}

    async def ask(number: int) -> httpx.Response:
        inputs = np.full(256, 100.0 if number % 8 == 0 else 1.0)
        tensor = {"name": "X", "datatype": "FP32", "shape": [1, 256], "data": inputs.tolist()}
        return await museum.post("/v2/models/rows/infer", json={"inputs": [tensor]})

    for _ in range(3):
        answers = await asyncio.gather(*(ask(number) for number in range(32)))
        silent = [number for number, one in enumerate(answers) if not np.any(one.json()["outputs"][0]["data"])]
        assert silent == [0, 8, 16, 24]
