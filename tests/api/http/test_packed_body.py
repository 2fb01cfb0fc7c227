"""Bodies that come packed: read as what they were, refused where that is too much or nothing."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.http.packed_body import FREE_BYTES, RATIO_MAX, PackedBody, packing_of
from appliance.domain.errors import BadEncoding, BadInput, TooLarge

pytestmark = pytest.mark.anyio


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return b"".join((packer.compress(data), packer.flush()))


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


class Line:
    """Gives pieces as a server does, and counts how many were asked for."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._left = len(pieces)
        self.asked = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        self._left -= 1
        return {"type": "http.request", "body": next(self._pieces), "more_body": self._left > 0}


async def read(packing: str, pieces: list[bytes]) -> bytes:
    body = PackedBody(Line(pieces).receive, packing)
    whole: bytes = b""
    while True:
        message = await body.receive()
        whole += message["body"]
        if not message["more_body"]:
            return whole


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)] or [b""]


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
async def test_packed_body_in_pieces_is_read_whole(packing: str, size: int) -> None:
    """Whatever the pieces, also where there is nothing in it, or much behind a little."""
    texts = [b"", b"x", b'{"a": 1}' * 1000, b"\0" * 3_000_000]
    for text in texts if size > 1 else texts[:2]:
        assert await read(packing, cut(PACKERS[packing](text), size)) == text


@given(text=st.binary(max_size=2000), size=st.integers(1, 100))
async def test_deflate_body_without_zlib_header_is_read(text: bytes, size: int) -> None:
    """As some clients send it."""
    assert await read("deflate", cut(raw_deflate(text), size)) == text


@pytest.mark.parametrize("packing", PACKERS)
async def test_damaged_packed_body_is_refused(packing: str) -> None:
    """Cut off, of another kind, with something behind it (another gzip member may be), or empty."""
    good = PACKERS[packing](b"some text" * 100)
    behind = b"x" if packing == "gzip" else good
    broken = good[:20] + bytes([good[20] ^ 255]) + good[21:]
    for data in (good[:-1], b"{}", good + b"x", good + behind, broken, b""):
        for size in (5, 10**9):
            with pytest.raises(BadInput):
                await read(packing, cut(data, size))
    with pytest.raises(BadInput, match="no gzip"):
        await read("gzip", [b"{}"])


@pytest.mark.parametrize("size", [1, 30, 10**9])
async def test_gzip_body_of_several_members_is_read_whole(size: int) -> None:
    """Also where a member begins in the middle of a piece, or its first byte ends one; not members without end."""
    parts = (b"one", b"", bytes(10_000), b"four")
    assert await read("gzip", cut(b"".join(map(gzip.compress, parts)), size)) == b"".join(parts)
    with pytest.raises(BadInput, match="more than 4096 members"):
        await read("gzip", [gzip.compress(b"five") + gzip.compress(b"") * 5000])


@pytest.mark.parametrize("packing", PACKERS)
async def test_packed_bomb_is_refused_once_unpacked_to_the_bound(packing: str) -> None:
    """Not only when the whole body has come: a gigabyte of zeros is a megabyte packed."""
    packed = PACKERS[packing](bytes(16 * FREE_BYTES))
    line = Line(cut(packed, 1000))
    body = PackedBody(line.receive, packing)
    seen = 0

    async def read_on() -> None:
        nonlocal seen
        while True:
            seen += len((await body.receive())["body"])

    with pytest.raises(TooLarge):
        await read_on()
    assert seen <= max(FREE_BYTES, RATIO_MAX * line.asked * 1000)
    assert line.asked < len(packed) / 1000


async def test_packed_body_of_a_caller_that_leaves_gives_a_disconnect() -> None:
    """As a body that is not packed does."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    assert (await PackedBody(receive, "gzip").receive())["type"] == "http.disconnect"


@pytest.mark.parametrize(
    ("said", "packing"),
    [
        (b"gzip", "gzip"),
        (b" GZip ", "gzip"),
        (b"x-gzip", "gzip"),
        (b"deflate", "deflate"),
        (b"identity", None),
        (b"", None),
    ],
)
def test_content_encodings_are_known_by_their_names(said: bytes, packing: str | None) -> None:
    assert packing_of({b"content-encoding": said}) == packing


@pytest.mark.parametrize("said", [b"br", b"zstd", b"gzip, gzip", b"compress", b"\xff" * 200])
def test_unknown_content_encoding_is_refused_with_the_known_ones(said: bytes) -> None:
    """Two encodings, one after the other, are an unknown one."""
    with pytest.raises(BadEncoding, match="gzip or deflate"):
        packing_of({b"content-encoding": said})
