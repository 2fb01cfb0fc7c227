"""Pictures for the tests, made by OpenCV and, where it cannot, by hand."""

import struct
import zlib
from collections.abc import Callable, Mapping

import cv2
import numpy as np

WITH_EXIF = (".jpg", ".png", ".webp")
FORMATS = (*WITH_EXIF, ".bmp", ".tiff")


def scene(width: int = 64, height: int = 48) -> np.ndarray:
    """BGR with four corners that differ, in blocks large enough to survive JPEG: red, green / blue, white."""
    image = np.zeros((height, width, 3), np.uint8)
    image[: height // 2, : width // 2] = (0, 0, 255)
    image[: height // 2, width // 2 :] = (0, 255, 0)
    image[height // 2 :, : width // 2] = (255, 0, 0)
    image[height // 2 :, width // 2 :] = (255, 255, 255)
    return image


def encoded(image: np.ndarray, extension: str = ".png") -> bytes:
    """The file of an image; JPEG and WebP at a quality that keeps the colours."""
    options = {".jpg": [cv2.IMWRITE_JPEG_QUALITY, 98], ".webp": [cv2.IMWRITE_WEBP_QUALITY, 101]}.get(extension, [])
    is_written, data = cv2.imencode(extension, image, options)
    assert is_written
    return bytes(data.tobytes())


def exif(orientation: int, order: str = "<") -> bytes:
    """A TIFF block with nothing but an orientation."""
    magic = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return magic + struct.pack(order + "I", 8) + struct.pack(order + "H", 1) + entry + struct.pack(order + "I", 0)


def jpeg_with_exif(jpeg: bytes, block: bytes) -> bytes:
    """A JPEG with an EXIF segment right behind its start."""
    payload = b"Exif\0\0" + block
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + jpeg[2:]


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk with its length and checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_with_chunk(png: bytes, kind: bytes, data: bytes) -> bytes:
    """A PNG with a further chunk behind its header."""
    return png[:33] + png_chunk(kind, data) + png[33:]


def webp_with_exif(webp: bytes, width: int, height: int, block: bytes) -> bytes:
    """A simple WebP in the extended form, with EXIF."""
    header = (
        b"VP8X"
        + struct.pack("<IB3x", 10, 0x08)
        + (width - 1).to_bytes(3, "little")
        + (height - 1).to_bytes(3, "little")
    )
    metadata = b"EXIF" + struct.pack("<I", len(block)) + block + b"\0" * (len(block) & 1)
    body = b"WEBP" + header + webp[12:] + metadata
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tiff(upright: np.ndarray, fields: Mapping[int, int] | None = None, order: str = "<") -> bytes:
    """An RGB picture of 8 bits in one strip; `fields`: others than usual, or more."""
    height, width = upright.shape[:2]
    data = cv2.cvtColor(upright, cv2.COLOR_BGR2RGB).tobytes()
    known = {256: width, 257: height, 259: 1, 262: 2, 273: 8, 277: 3, 278: height, 279: len(data)}
    known |= {258: 0} | dict(fields or {})
    at = 8 + len(data)
    depths_at = at + 2 + 12 * len(known) + 4
    directory = struct.pack(order + "H", len(known))
    for tag, value in sorted(known.items()):
        if tag == 258 and not value:
            directory += struct.pack(order + "HHII", tag, 3, 3, depths_at)
        else:
            directory += struct.pack(order + "HHII", tag, 4, 1, value)
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "I", at) + data + directory + bytes(4) + struct.pack(order + "3H", 8, 8, 8)


def gif(image: np.ndarray) -> bytes:
    """With a table of 8 colours, one for each corner of the cube; every pixel its own code, so nothing is packed."""
    height, width = image.shape[:2]
    table = b"".join(bytes([255 * (n >> 2 & 1), 255 * (n >> 1 & 1), 255 * (n & 1)]) for n in range(8))
    places = (image[..., 2] > 127) * 4 + (image[..., 1] > 127) * 2 + (image[..., 0] > 127)
    codes: list[int] = []
    for number, place in enumerate(places.ravel()):
        codes += [8, int(place)] if number % 6 == 0 else [int(place)]  # 8 clears the table, before codes grow
    bits = sum(code << 4 * n for n, code in enumerate([*codes, 9]))
    data = bits.to_bytes((4 * len(codes) + 11) // 8, "little")
    blocks = b"".join(bytes([len(part)]) + part for part in (data[n : n + 255] for n in range(0, len(data), 255)))
    size = struct.pack("<HH", width, height)
    return b"GIF89a" + size + b"\x82\0\0" + table + b"\x2c" + bytes(4) + size + b"\0\3" + blocks + b"\0;"


def disoriented(upright: np.ndarray, orientation: int) -> np.ndarray:
    """What a camera stores so that EXIF `orientation` makes it `upright` again (the EXIF table, read as rotations)."""
    turn: dict[int, Callable[[np.ndarray], np.ndarray]] = {
        1: lambda image: image,
        2: lambda image: cv2.flip(image, 1),
        3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
        4: lambda image: cv2.flip(image, 0),
        5: lambda image: cv2.transpose(image),
        6: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
        7: lambda image: cv2.rotate(cv2.transpose(image), cv2.ROTATE_180),
        8: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    }
    return turn[orientation](upright)
