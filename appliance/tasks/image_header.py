"""What a picture file says of itself before anything is decoded: format, size, alpha, depth, orientation, and whether
its end is there.

Hostile files are refused here, by arithmetic on headers: the decoder never sees a picture that it could not finish
within bounds.
"""

import re
import struct
from dataclasses import dataclass

from appliance.domain.errors import BadMedia

JPEG = "jpeg"
PNG = "png"
WEBP = "webp"
BMP = "bmp"
GIF = "gif"
TIFF = "tiff"
READ = "JPEG, PNG, WebP, BMP, GIF or TIFF"
_UNREAD: tuple[tuple[bytes, str], ...] = (
    (rb".{4}ftyp(hei|hev|mif|msf)", "a HEIC picture"),
    (rb".{4}ftypavi", "an AVIF picture"),
    (rb".{4}ftyp|\x1a\x45\xdf\xa3|RIFF.{4}AVI ", "a video"),
    (rb"\xff\x0a|\x00{3}\x0cJXL ", "a JPEG XL picture"),
    (rb"\x00{3}\x0cjP  |\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (rb"(II\x2b\x00|MM\x00\x2b)", "a BigTIFF picture"),
    (rb"%PDF", "a PDF document"),
    (rb"8BPS", "a Photoshop document"),
    (rb"\x00\x00\x01\x00", "an icon"),
    (rb"\x76\x2f\x31\x01", "an OpenEXR picture"),
    (rb".{128}DICM", "a DICOM file"),
    (rb"\s*<(\?xml|svg)", "an SVG drawing"),
)
"""How other pictures begin, and what they are."""

_JPEG_SCANS_MAX = 100
"""A progressive file has about ten; thousands of them are an attack on the processor's time."""
_SEGMENTS_MAX = 1024
"""Markers before the picture of a JPEG, fields of a TIFF; cameras write some twenty."""
_FILL_BYTES_MAX = 4096
"""Between two of them."""
_CHUNKS_MAX = 65_536
"""Of a PNG, WebP or GIF; a PNG of 64 MB in the smallest chunks that are usual has 16,000."""
_STEP_BYTES = 2**20
"""Looked through at once, so that other threads get their turn."""
_STANDALONE_MARKERS = {0x01, *range(0xD0, 0xD9)}
_FRAME_MARKERS = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EXIF_ORIENTATION = 0x0112
_WIDTH, _HEIGHT, _DEPTH, _COLOURS, _ORIENTATION, _SAMPLES = 256, 257, 258, 262, 274, 277
_TILE_WIDTH, _TILE_HEIGHT, _SAMPLE_FORMAT = 322, 323, 339
"""Fields of a TIFF."""
_TILE_PIXELS_MAX = 4096 * 4096
_PNG_ESSENTIAL = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Facts of the file; `width` and `height` are as stored, before the orientation (1..8, as EXIF counts) is
    applied. Of a TIFF, whose decoder applies it, they are those of the upright picture.
    """

    format: str
    width: int
    height: int
    has_alpha: bool = False
    bit_depth: int = 8
    orientation: int = 1
    data_at: int | None = None
    """Where the data of a JPEG begin that has them from the top down; None: they refine the whole, or it is another."""


def read_header(body: bytes) -> ImageHeader:
    """Look at the first bytes and the structure of a picture.

    Raises: BadMedia for another format, a damaged structure or a file that was cut off.
    """
    try:
        if body[:3] == b"\xff\xd8\xff":
            header = _read_jpeg(body)
        elif body[:8] == b"\x89PNG\r\n\x1a\n":
            header = _read_png(body)
        elif body[:4] == b"RIFF" and body[8:12] == b"WEBP":
            header = _read_webp(body)
        elif body[:2] == b"BM":
            header = _read_bmp(body)
        elif body[:6] in (b"GIF87a", b"GIF89a"):
            header = _read_gif(body)
        elif body[:4] in (b"II*\0", b"MM\0*"):
            header = _read_tiff(body)
        else:
            kind = next((what for begin, what in _UNREAD if re.match(begin, body[:200], re.DOTALL)), "")
            if kind:
                raise BadMedia(reason=f"this is {kind}, which the box does not read: send JPEG or PNG pictures")
            raise BadMedia(reason=f"this is no picture the box can read: send a {READ}")
    except (struct.error, IndexError):
        raise BadMedia(reason="the picture is cut off") from None
    if header.width < 1 or header.height < 1:
        raise BadMedia(reason=f"the {header.format} says it is {header.width} x {header.height} pixels")
    return header


def longer_side(body: bytes) -> int | None:
    """Pixels of the longer side of a JPEG, PNG or WebP, by its first bytes alone; None: it is none, or damaged."""
    try:
        if body[:3] == b"\xff\xd8\xff":
            _, size, *_ = _jpeg_until_scan(body)
        elif body[:8] == b"\x89PNG\r\n\x1a\n":
            size = struct.unpack_from(">II", body, 16)
        elif body[:4] == b"RIFF" and body[8:12] == b"WEBP":
            size = _webp_size(body)
        else:
            return None
    except (struct.error, IndexError, BadMedia):
        return None
    return max(size) or None


def _read_jpeg(body: bytes) -> ImageHeader:
    at, (height, width), orientation, is_refined = _jpeg_until_scan(body)
    _check_jpeg_scans(body, at)
    return ImageHeader(JPEG, width, height, orientation=orientation, data_at=None if is_refined else at)


def _jpeg_until_scan(body: bytes) -> tuple[int, tuple[int, int], int, bool]:
    """Where the first scan begins, height and width, orientation, and whether later scans refine the picture.

    Raises: struct.error, IndexError, BadMedia.
    """
    at = 2
    orientation: int | None = None
    size, is_refined = (0, 0), False
    for _ in range(_SEGMENTS_MAX):
        at = _next_marker(body, at)
        marker = body[at]
        if marker in _STANDALONE_MARKERS:
            at += 1
            continue
        if marker == 0xD9:
            raise BadMedia(reason="the JPEG holds no picture")
        (length,) = struct.unpack_from(">H", body, at + 1)
        if marker in _FRAME_MARKERS:
            size, is_refined = struct.unpack_from(">HH", body, at + 4), marker == 0xC2
        elif marker == 0xE1 and body[at + 3 : at + 9] == b"Exif\0\0" and orientation is None:
            orientation = _exif_orientation(body[at + 9 : at + 1 + length])
        elif marker == 0xDA:
            break
        at += 1 + max(length, 2)
    else:
        raise BadMedia(reason=f"the JPEG has more than {_SEGMENTS_MAX} markers before its picture")
    return at, size, orientation or 1, is_refined


def _next_marker(body: bytes, at: int) -> int:
    """Position of the next marker's second byte; fill bytes are skipped."""
    at = body.index(b"\xff", at) if body.find(b"\xff", at) >= 0 else len(body)
    fill = body[at : at + _FILL_BYTES_MAX]
    count = len(fill) - len(fill.lstrip(b"\xff"))
    if count == _FILL_BYTES_MAX:
        raise BadMedia(reason="the JPEG has nothing but fill bytes where a marker should be")
    return at + count


def _check_jpeg_scans(body: bytes, scan: int) -> None:
    # Inside entropy-coded data 0xFF is always followed by 0, so an end marker behind the first scan is a real one.
    # Decoders
    # merely warn when it is missing and leave the rest of the picture grey: that would be a wrong answer, not a
    # picture.
    steps = range(scan, len(body), _STEP_BYTES)
    if not any(body.find(b"\xff\xd9", at, at + _STEP_BYTES + 1) >= 0 for at in steps):
        raise BadMedia(reason="the JPEG is cut off: its end is missing")
    if sum(body.count(b"\xff\xda", at, at + _STEP_BYTES + 1) for at in steps) > _JPEG_SCANS_MAX:
        raise BadMedia(reason=f"the JPEG has more than {_JPEG_SCANS_MAX} scans")


def _read_png(body: bytes) -> ImageHeader:
    width, height, depth, colour = struct.unpack_from(">IIBB", body, 16)
    if body[12:16] != b"IHDR":
        raise BadMedia(reason="the PNG does not start with its header")
    has_alpha = colour in (4, 6)
    orientation: int | None = None
    at = 8
    for _ in range(_CHUNKS_MAX):
        if body[at + 4 : at + 8] == b"IEND":
            break
        (length,) = struct.unpack_from(">I", body, at)
        kind = body[at + 4 : at + 8]
        if at + 12 + length > len(body):
            raise BadMedia(reason="the PNG is cut off")
        has_alpha = has_alpha or kind == b"tRNS"
        if kind == b"eXIf" and orientation is None:
            orientation = _exif_orientation(body[at + 8 : at + 8 + length])
        at += 12 + length
    else:
        raise BadMedia(reason=f"the PNG has more than {_CHUNKS_MAX} chunks")
    if len(body) < at + 12:
        raise BadMedia(reason="the PNG is cut off")
    return ImageHeader(PNG, width, height, has_alpha, depth, orientation or 1)


def _read_webp(body: bytes) -> ImageHeader:
    (riff_length,) = struct.unpack_from("<I", body, 4)
    if riff_length + 8 > len(body):
        raise BadMedia(reason="the WebP is cut off")
    width, height = _webp_size(body)
    if body[12:16] != b"VP8X":
        return ImageHeader(WEBP, width, height, body[12:16] == b"VP8L" and bool(body[24] & 0x10))
    orientation = _webp_orientation(body) if body[20] & 0x08 else 1
    return ImageHeader(WEBP, width, height, bool(body[20] & 0x10), orientation=orientation)


def _webp_size(body: bytes) -> tuple[int, int]:
    """Width and height. Raises: struct.error, BadMedia."""
    kind = body[12:16]
    if kind == b"VP8X":
        width, more_width, height, more_height = struct.unpack_from("<HBHB", body, 24)
        return 1 + width + (more_width << 16), 1 + height + (more_height << 16)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", body, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", body, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise BadMedia(reason="the WebP has no picture chunk")


def _read_bmp(body: bytes) -> ImageHeader:
    """Its decoder is told of no alpha: most files have nothing sensible there."""
    (pixels_at, size) = struct.unpack_from("<II", body, 10)
    if size < 40:
        width, height, _, depth = struct.unpack_from("<HHHH", body, 18)
        packing = 0
    else:
        width, height, _, depth, packing = struct.unpack_from("<iiHHI", body, 18)
        height = abs(height)  # below 0: from the top down
    if packing in (0, 3) and pixels_at + (width * depth + 31) // 32 * 4 * height > len(body):
        raise BadMedia(reason="the BMP is cut off")
    return ImageHeader(BMP, width, height)


def _read_gif(body: bytes) -> ImageHeader:
    """Of an animation the first picture counts."""
    width, height = struct.unpack_from("<HH", body, 6)
    _, has_alpha = _first_of_gif(body)
    return ImageHeader(GIF, width, height, has_alpha)


def essential_gif(body: bytes) -> bytes:
    """A checked GIF with its first picture alone."""
    end, _ = _first_of_gif(body)
    return body[:end] + b";"


def _first_of_gif(body: bytes) -> tuple[int, bool]:
    """Where the first picture ends, and whether it is transparent somewhere. Raises: BadMedia."""
    at, has_alpha = 13 + _colours_bytes(body[10]), False
    for _ in range(_CHUNKS_MAX):
        if body[at] == 0x21:  # an extension
            has_alpha = has_alpha or (body[at + 1] == 0xF9 and bool(body[at + 3] & 1))
            at = _behind_blocks(body, at + 2)
        elif body[at] == 0x2C:
            return _behind_blocks(body, at + 11 + _colours_bytes(body[at + 9])), has_alpha
        else:
            break
    raise BadMedia(reason="the GIF holds no picture")


def _colours_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(body: bytes, at: int) -> int:
    """Where blocks that begin with their length end; the last one is empty. Raises: IndexError where they do not."""
    while body[at]:
        at += body[at] + 1
    return at + 1


def _read_tiff(body: bytes) -> ImageHeader:
    """Of several pages the first counts."""
    order = "<" if body[:2] == b"II" else ">"
    (directory,) = struct.unpack_from(order + "I", body, 4)
    (count,) = struct.unpack_from(order + "H", body, directory)
    found: dict[int, int] = {}
    for entry in range(min(count, _SEGMENTS_MAX)):
        tag, kind, number, value = struct.unpack_from(order + "HHII", body, directory + 2 + 12 * entry)
        if tag in found:
            raise BadMedia(reason=f"the TIFF says twice what its field {tag} is")
        if kind == 3 and number * 2 > 4:
            (value,) = struct.unpack_from(order + "H", body, value)
        elif kind == 3:
            value = value & 0xFFFF if order == "<" else value >> 16
        found[tag] = value
    width, height, depth = found.get(_WIDTH, 0), found.get(_HEIGHT, 0), found.get(_DEPTH, 1)
    if depth not in (1, 2, 4, 8, 16) or found.get(_SAMPLE_FORMAT, 1) != 1:
        raise BadMedia(reason=f"the TIFF has samples of {depth} bits or no whole numbers: save it with 8 or 16 bits")
    if found.get(_COLOURS, 1) not in (0, 1, 2, 3, 6):
        raise BadMedia(reason="the TIFF is neither grey nor RGB: convert it to RGB")
    if found.get(_TILE_WIDTH, 0) * found.get(_TILE_HEIGHT, 0) > _TILE_PIXELS_MAX:
        raise BadMedia(reason="the tiles of the TIFF are too large: save it in strips")
    if found.get(_ORIENTATION, 1) >= 5:
        width, height = height, width
    return ImageHeader(TIFF, width, height, found.get(_SAMPLES, 1) == 4, depth)


def essential_png(body: bytes) -> bytes:
    """A checked PNG without the chunks that its pixels do not need: profiles and texts (that may unpack to
    anything), animations.
    """
    parts = [body[:8]]
    at = 8
    kind = b""
    while kind != b"IEND":
        (length,) = struct.unpack_from(">I", body, at)
        kind = body[at + 4 : at + 8]
        if kind in _PNG_ESSENTIAL:
            parts.append(body[at : at + 12 + length])
        at += 12 + length
    return b"".join(parts)


def _webp_orientation(body: bytes) -> int:
    at = 12
    for _ in range(_CHUNKS_MAX):
        if at + 8 > len(body):
            break
        (length,) = struct.unpack_from("<I", body, at + 4)
        if body[at : at + 4] == b"EXIF":
            chunk = body[at + 8 : at + 8 + length]
            return _exif_orientation(chunk.removeprefix(b"Exif\0\0"))
        at += 8 + length + (length & 1)
    return 1


def _exif_orientation(tiff: bytes) -> int:
    """Tag 0x0112 of the first directory; 1 (upright) for anything damaged, because EXIF is often damaged and seldom
    matters.
    """
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or not re.match(rb"(\x2a\x00|\x00\x2a)", tiff[2:4]):
        return 1
    try:
        (directory,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(entries):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, directory + 2 + 12 * entry)
            if tag == _EXIF_ORIENTATION and kind == 3:
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1
