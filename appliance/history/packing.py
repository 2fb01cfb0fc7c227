"""Samples as they lie in the file: floats of 12 bits after the point, a plane for each byte, compressed.

A sample that is missing is not a number. The rounding is below one in 8,000.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
_DROPPED_BITS = 11
_LEVEL = 3
_RAW = -zlib.MAX_WBITS


def packed(samples: Samples) -> bytes:
    """The bytes of samples of any shape; who unpacks them knows how many there are."""
    flat = np.ascontiguousarray(samples, "<f4").ravel()
    bits = flat.view("<u4")
    half = np.uint32(1 << (_DROPPED_BITS - 1))
    mask = np.uint32(0xFFFFFFFF >> _DROPPED_BITS << _DROPPED_BITS)
    rounded = np.where(np.isfinite(flat), (bits + half) & mask, np.uint32(0x7FC00000)).astype("<u4")
    return b"".join(_deflated(plane.tobytes()) for plane in rounded.view(np.uint8).reshape(-1, 4).T)


def unpacked(body: bytes, count: int) -> Samples:
    """`count` samples. Raises: ValueError where the bytes are not theirs."""
    planes = np.empty((count, 4), np.uint8)
    for place in range(4):
        inflating = zlib.decompressobj(_RAW)
        try:
            plain = inflating.decompress(body, count + 1)
        except zlib.error as error:
            raise ValueError(f"not compressed: {error}") from None
        if len(plain) != count or not inflating.eof:
            raise ValueError(f"not {count} samples")
        planes[:, place] = np.frombuffer(plain, np.uint8)
        body = inflating.unused_data
    return planes.view("<f4").ravel().astype(np.float32)


def _deflated(plane: bytes) -> bytes:
    """Each plane has symbols of its own, and a code of its own."""
    deflating = zlib.compressobj(_LEVEL, wbits=_RAW)
    return deflating.compress(plane) + deflating.flush()


def packed_rows(ids: NDArray[np.uint32], rows: Samples) -> bytes:
    """A row of samples for each id."""
    head = np.array([len(ids), rows.shape[1]], "<u4").tobytes()
    return head + np.ascontiguousarray(ids, "<u4").tobytes() + packed(rows)


def unpacked_rows(body: bytes) -> tuple[NDArray[np.uint32], Samples]:
    """The ids and their rows. Raises: ValueError."""
    if len(body) < 8:
        raise ValueError("too short")
    count, width = (int(one) for one in np.frombuffer(body[:8], "<u4"))
    end = 8 + 4 * count
    if count > 1 << 20 or width > 1 << 10 or len(body) < end:
        raise ValueError("too short")
    ids = np.frombuffer(body[8:end], "<u4").astype(np.uint32)
    return ids, unpacked(body[end:], count * width).reshape(count, width)
