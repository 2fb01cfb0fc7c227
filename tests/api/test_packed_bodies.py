"""Packed bodies (`Content-Encoding`) against a whole box: read by every kind of route, within their bounds."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.api.stand import Asking, Stand

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
        answer = await stand.client("harbour").post(path, content=PACKERS[packing](body), headers=headers)
        assert answer.status_code == 200, answer.text
        assert outputs(path, answer.json()) == SUM
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
    index = await client.post("/v2/repository/index", content=gzip.compress(b"{}"), headers=packed)
    assert index.status_code == 200


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


async def test_damaged_packed_body_is_refused_with_its_encoding(stand: Stand) -> None:
    for path in (INFER, PREDICT):
        headers = {"Content-Encoding": "gzip"}
        answer = await stand.client("harbour").post(path, content=BODY, headers=headers)
        assert answer.status_code == 422
        assert "no gzip" in answer.text


async def test_gzip_body_of_several_members_is_read_whole(stand: Stand) -> None:
    """Also where a member begins in the middle of a piece, or its first byte ends one; what is no member is refused, as
    are members without end.
    """
    client = stand.client("harbour")
    upload = (await client.post("/v1/uploads", json={})).json()["id"]
    body = b"".join(gzip.compress(part) for part in (b"one", b"", bytes(MB), b"four"))
    at = len(gzip.compress(b"one")) + 1

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:at]
        yield body[at:]

    packed = {"Content-Encoding": "gzip", "Upload-Offset": "0"}
    answer = await client.patch(f"/v1/uploads/{upload}", content=pieces(), headers=packed)
    assert answer.status_code == 200, answer.text
    assert (stand.state_dir / "uploads" / upload).read_bytes() == b"one" + bytes(MB) + b"four"
    for more, words in ((b"behind", "something stands behind"), (gzip.compress(b"") * 5000, "more than 4096 members")):
        refused = await client.patch(
            f"/v1/uploads/{upload}",
            content=gzip.compress(b"five") + more,
            headers={"Content-Encoding": "gzip", "Upload-Offset": str(MB + 7)},
        )
        assert (refused.status_code, words in refused.text) == (422, True)
        await client.delete(f"/v1/uploads/{upload}")
        upload = (await client.post("/v1/uploads", json={})).json()["id"]
        await client.patch(f"/v1/uploads/{upload}", content=bytes(MB + 7), headers={"Upload-Offset": "0"})
