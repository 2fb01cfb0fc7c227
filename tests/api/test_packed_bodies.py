"""Packed bodies (`Content-Encoding`) against a whole box: read by every kind of route, within their bounds."""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.stand import Asking, Stand, good

pytestmark = pytest.mark.anyio

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
MB = 2**20
SUM = [2, 3, 4, 5]
INPUTS = [
    {"name": "A", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]},
    {"name": "B", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]},
]
BODY = json.dumps({"inputs": INPUTS}).encode()
INFER, PREDICT = "/v2/models/adding/infer", "/v1/applications/adding/predict"


def outputs(path: str, answer: Any) -> list[float]:
    found = answer["outputs"]
    data: list[float] = found[0]["data"] if path == INFER else found["SUM"]["data"]
    return data


@pytest.mark.parametrize("path", [INFER, PREDICT])
@pytest.mark.parametrize("packing", PACKERS)
async def test_packed_tensors_are_computed(stand: Stand, path: str, packing: str) -> None:
    """Small ones, and large ones whose blanks take nothing."""
    for body in (BODY, BODY + b" " * 600_000):
        headers = {"Content-Encoding": packing}
        answer = await good(stand.client("harbour").post(path, content=PACKERS[packing](body), headers=headers))
        assert outputs(path, answer) == SUM
    assert stand.appliance.in_flight.bytes == 0


async def test_packed_orders_and_pieces_of_uploads_are_read(stand: Stand) -> None:
    """The offset counts what was unpacked."""
    client = stand.client("harbour")
    packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    order = json.dumps({"length": 3 * MB}).encode()
    upload = (await client.post("/v1/uploads", content=gzip.compress(order), headers=packed)).json()
    assert upload["length"] == 3 * MB
    piece = gzip.compress(bytes(3 * MB))
    headers = {"Content-Encoding": "gzip", "Upload-Offset": "0"}
    answer = await client.patch(f"/v1/uploads/{upload['id']}", content=piece, headers=headers)
    assert (answer.status_code, answer.json()["offset"]) == (200, 3 * MB)
    assert (await client.post("/v2/repository/index", content=gzip.compress(b"{}"), headers=packed)).status_code == 200


@pytest.mark.parametrize("path", [INFER, PREDICT, "/v1/uploads", "/v2/repository/index", "/v1/sign-in"])
async def test_unknown_content_encoding_is_415_with_the_known_encodings(stand: Stand, path: str) -> None:
    headers = {"Content-Encoding": "br", "Content-Type": "application/json"}
    answer = await stand.client("harbour").post(path, content=BODY, headers=headers)
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "gzip, deflate"
    assert "gzip or deflate" in answer.text


def gigabyte() -> bytes:
    """Return a gigabyte of zeros, packed into a megabyte: a packed block of zeros, many times. Its end is left out."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    first, again = (packer.compress(bytes(MB)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * 1023


@pytest.mark.parametrize("path", [INFER, PREDICT])
async def test_packed_bombs_are_refused_as_too_large(stand: Stand, path: str) -> None:
    """By what they unpack to, and by how many times as much that is; the bomb has a gigabyte in a megabyte."""
    bomb = gigabyte()
    headers = {"Authorization": f"Bearer {stand.keys['harbour']}", "Content-Encoding": "gzip"}
    pieces = iter([bomb[at : at + 1000] for at in range(0, len(bomb), 1000)])
    async with Asking(stand.appliance.asgi, "POST", path, headers | {"Content-Length": str(len(bomb))}, pieces) as one:
        assert await one.status() == 413
        await one.ended()
        assert next(pieces, None) is not None
    assert stand.appliance.in_flight.bytes == 0
