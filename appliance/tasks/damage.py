"""Whether a JPEG that was decoded lacks its rest: cameras and links lose it, and the decoder paints on in the last
colour.

A picture may end in one colour, too. Its data then repeats itself, block after block; data that was cut off does not.
"""

import re

import numpy as np

_DATA_BYTES = 48
"""At the end of the data that are looked at."""
_REPEATS_BITS_MAX = 128
"""A block of the picture in one colour takes less."""
_ROWS_MIN, _PIXELS_MIN = 32, 16_384
"""Of the end of the picture that must be of one colour: so many take `_DATA_BYTES`, however well they are packed."""


def lacks_its_rest(body: bytes, data_at: int, pixels: np.ndarray, reduced: int) -> bool:
    """Whether the lower part of a picture is missing. `data_at`: where its data begin, from the top down. `pixels`:
    uint8[H, W, C] as decoded, `reduced` times smaller than the original.
    """
    height, width = pixels.shape[:2]
    rows = max(_ROWS_MIN, _PIXELS_MIN // (width * reduced)) // reduced
    last = pixels[-1, -1]
    if rows >= height or (pixels[-1, 0] != last).any() or (pixels[-rows:] != last).any():
        return False
    end = body.find(b"\xff\xd9", data_at)
    data = body[max(data_at, end - 2 * _DATA_BYTES) : end].rstrip(b"\xff")
    data = re.split(rb"\xff[\xd0-\xd7]", data)[-1].replace(b"\xff\0", b"\xff")[:-1]  # the last byte is filled up
    bits = np.unpackbits(np.frombuffer(data[-_DATA_BYTES:], np.uint8))
    if len(bits) < 2 * _REPEATS_BITS_MAX:
        return False
    return not any(np.array_equal(bits[by:], bits[:-by]) for by in range(1, _REPEATS_BITS_MAX))
