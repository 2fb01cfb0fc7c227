"""Much JSON is read while the box goes on answering others."""

import asyncio
import json
import threading
from typing import Any

import pytest

from appliance.api.v2 import tensors
from appliance.tasks import tensor
from appliance.tasks.large_json import LARGE_BYTES, scan_json
from tests.api.stand import Stand

PATIENCE_S = 60.0
ORDERS = {
    "/v2/models/adding/infer": {
        "inputs": [{"name": name, "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]} for name in ("A", "B")]
    },
    "/v1/applications/adding/predict": {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 2, 3, 4]]}},
}


@pytest.mark.anyio
@pytest.mark.parametrize("path", ORDERS)
async def test_requests_are_answered_while_large_json_is_read(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The test holds the reader: if it stood on the event loop, nothing else would come."""
    is_read, let_on = threading.Event(), threading.Event()

    def scan(text: Any) -> Any:
        is_read.set()
        assert let_on.wait(PATIENCE_S)
        return scan_json(text)

    small = json.dumps(ORDERS[path]).encode()
    for module in (tensors, tensor):
        monkeypatch.setattr(module, "scan_json", scan)
    large = asyncio.create_task(stand.client("harbour").post(path, content=small + b" " * 2 * LARGE_BYTES))
    try:
        assert await asyncio.to_thread(is_read.wait, PATIENCE_S)
        assert (await stand.client(None).get("/v2/health/ready")).status_code == 200
        assert (await stand.client("museum").post(path, content=small)).status_code == 200
        assert not large.done()
    finally:
        let_on.set()
    assert (await large).status_code == 200
