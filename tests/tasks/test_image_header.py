"""Headers: sizes, orientation and alpha are read, and whatever was cut off or is absurd is refused before it is
decoded.
"""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.errors import BadMedia
from appliance.tasks.image_header import essential_gif, essential_png, longer_side, read_header
from tests.tasks import pictures


@pytest.mark.parametrize("extension", pictures.FORMATS)
@pytest.mark.parametrize("size", [(64, 48), (1, 33), (33, 1), (257, 3)])
def test_picture_header_gives_the_stored_size(extension: str, size: tuple[int, int]) -> None:
    header = read_header(pictures.encoded(pictures.scene(*size), extension))
    assert (header.width, header.height, header.orientation, header.has_alpha) == (*size, 1, False)


@pytest.mark.parametrize("extension", pictures.WITH_EXIF)
@pytest.mark.parametrize("size", [(64, 48), (33, 57)])
def test_picture_longer_side_is_known_from_the_first_bytes(extension: str, size: tuple[int, int]) -> None:
    """Also of a picture that is cut off behind them."""
    body = pictures.encoded(pictures.scene(*size), extension)
    assert longer_side(body) == longer_side(body[: len(body) - 8]) == max(size)
    assert longer_side(body[:9]) is None
    assert longer_side(b'{"inputs": {}}') is None


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_picture_header_gives_the_orientation(order: str, orientation: int) -> None:
    """All eight orientations, in both byte orders and all three formats."""
    image, block = pictures.scene(), pictures.exif(orientation, order)
    jpeg = pictures.jpeg_with_exif(pictures.encoded(image, ".jpg"), block)
    png = pictures.png_with_chunk(pictures.encoded(image), b"eXIf", block)
    webp = pictures.webp_with_exif(pictures.encoded(image, ".webp"), 64, 48, block)
    assert [read_header(body).orientation for body in (jpeg, png, webp)] == [orientation] * 3


@pytest.mark.parametrize(
    "block", [b"", b"II*\0", b"XX*\0\0\0\0\x08", pictures.exif(9), pictures.exif(0), pictures.exif(6)[:16]]
)
def test_damaged_exif_means_upright(block: bytes) -> None:
    """EXIF that makes no sense is no reason to refuse a picture."""
    assert read_header(pictures.jpeg_with_exif(pictures.encoded(pictures.scene(), ".jpg"), block)).orientation == 1


@pytest.mark.parametrize("extension", pictures.FORMATS)
@pytest.mark.parametrize("percent", [*range(0, 100, 10), 99])
def test_truncated_picture_is_refused(extension: str, percent: int) -> None:
    """Cut at every tenth: decoders would return a half-grey picture for some of these."""
    noise = np.random.default_rng(1).integers(0, 255, (60, 80, 3), np.uint8)
    body = pictures.encoded(noise, extension)
    with pytest.raises(BadMedia):
        read_header(body[: len(body) * percent // 100])


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8X", b"RIFF\0\0\0\0WEBPVP8L"]),
)
def test_random_bytes_give_a_picture_header_or_bad_media(tail: bytes, start: bytes) -> None:
    assert longer_side(start + tail) != 0
    try:
        header = read_header(start + tail)
    except BadMedia:
        return
    assert header.width > 0
    assert header.height > 0


@pytest.mark.parametrize("body", [b"", b'{"text": "no picture"}', b"RIFF\0\0\0\0WAVE"])
def test_body_that_is_no_picture_is_refused_with_advice(body: bytes) -> None:
    """The message says what can be sent."""
    with pytest.raises(BadMedia, match="send a JPEG, PNG, WebP, BMP, GIF or TIFF"):
        read_header(body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\0\0\0\x18ftypheic" + bytes(40), "a HEIC picture"),
        (b"\0\0\0\x18ftypmif1" + bytes(40), "a HEIC picture"),
        (b"\0\0\0\x20ftypavif" + bytes(40), "an AVIF picture"),
        (b"\0\0\0\x18ftypisom" + bytes(40), "a video"),
        (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(40), "a JPEG 2000 picture"),
        (b"\xff\x0a" + bytes(40), "a JPEG XL picture"),
        (b"II+\0" + bytes(40), "a BigTIFF picture"),
        (b"%PDF-1.7", "a PDF document"),
        (b'<?xml version="1.0"?><svg', "an SVG drawing"),
    ],
)
def test_picture_of_unsupported_format_is_refused_by_name(body: bytes, kind: str) -> None:
    """The message names the format, and a format to convert to."""
    with pytest.raises(BadMedia, match=f"this is {kind}.*send JPEG or PNG pictures"):
        read_header(body)


def test_gif_is_read_as_its_first_picture() -> None:
    """However many pictures follow, whole or not; and only the needed part reaches the decoder."""
    first = pictures.gif(pictures.scene())
    header = read_header(first)
    assert (header.width, header.height, header.has_alpha) == (64, 48, False)
    more = first[:-1] + b"\x2c" + bytes(4) + first[6:10] + b"\0\2\xff"
    assert read_header(more) == header
    assert essential_gif(more) == first
    for cut in range(len(first) - 2):
        with pytest.raises(BadMedia):
            read_header(first[:cut])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({258: 32, 339: 3}, "8 or 16 bits"),
        ({262: 5}, "convert it to RGB"),
        ({322: 60_000, 323: 60_000}, "save it in strips"),
        ({256: 0}, "0 x 48 pixels"),
    ],
)
@pytest.mark.parametrize("order", "<>")
def test_tiff_of_unsupported_form_is_refused(fields: dict[int, int], words: str, order: str) -> None:
    with pytest.raises(BadMedia, match=words):
        read_header(pictures.tiff(pictures.scene(), fields, order))


def test_jpeg_of_endless_scans_is_refused() -> None:
    """A progressive JPEG that would be decoded thousands of times over."""
    body = pictures.encoded(pictures.scene(), ".jpg")
    scan = b"\xff\xda" + struct.pack(">H", 8) + b"\x01\x01\x00\x00\x3f\x00"
    with pytest.raises(BadMedia, match="scans"):
        read_header(body[:-2] + scan * 500 + body[-2:])


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"\xff\xd8\xff" + b"\xff\x01" * 4_000_000, "markers"),
        (b"\xff\xd8\xff" + b"\xff\xe1\x00\x02" * 2_000_000, "markers"),
        (b"\xff\xd8" + b"\xff" * 8_000_000, "fill"),
        (
            b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 8, 8, 8, 2, 0, 0, 0, 0) + bytes(9_000_000),
            "chunks",
        ),
    ],
)
def test_picture_header_without_end_is_refused(body: bytes, word: str) -> None:
    """Markers, fill bytes or chunks by the million are read no further than any camera writes."""
    with pytest.raises(BadMedia, match=word):
        read_header(body)


def test_webp_orientation_behind_a_million_chunks_is_ignored() -> None:
    chunks = b"VP8X" + struct.pack("<I", 10) + bytes([8, 0, 0, 0, 7, 0, 0, 7, 0, 0]) + bytes(8) * 1_000_000
    exif = b"II*\0" + struct.pack("<IHHHIHH", 8, 1, 0x0112, 3, 1, 6, 0)
    chunks += b"EXIF" + struct.pack("<I", len(exif)) + exif
    body = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks
    assert read_header(body).orientation == 1


def test_png_decoder_gets_only_the_chunks_that_pixels_need() -> None:
    """Profiles, texts and animation frames are left out; the rest is untouched."""
    plain = pictures.encoded(pictures.scene())
    bomb = zlib.compress(bytes(50_000_000), 9)
    decorated = plain
    for kind, data in ((b"iCCP", b"p\0\0" + bomb), (b"zTXt", b"t\0\0" + bomb), (b"acTL", bytes(8))):
        decorated = pictures.png_with_chunk(decorated, kind, data)
    assert essential_png(decorated + b"behind the end") == essential_png(plain)
    assert len(essential_png(decorated)) <= len(plain)
