"""WAV bytes → mono samples in −1..1.

Not `wave` of the standard library: before Python 3.12 it refuses WAVE_FORMAT_EXTENSIBLE, which common tools write for
24 and 32 bits, and it takes neither floating-point samples nor the open-ended lengths of a pipe, and does not notice a
cut.
"""

import re
import struct

import numpy as np

from appliance.domain.errors import BadMedia

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNREAD: tuple[tuple[bytes, str], ...] = (
    (rb"ID3|\xff[\xe2-\xe7\xf2-\xf7\xfa-\xff]", "an MP3 file"),
    (rb"OggS", "an Ogg file"),
    (rb"fLaC", "a FLAC file"),
    (rb".{4}ftyp", "an M4A or MP4 file"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "an AAC file"),
    (rb"FORM.{4}AIF[FC]", "an AIFF file"),
    (rb"\x1a\x45\xdf\xa3", "a WebM or Matroska file"),
    (rb"#!AMR", "an AMR file"),
    (rb"RIFX", "a WAV file of big-endian numbers (RIFX)"),
)
"""Signatures (first bytes) of sound formats other than WAV, with a name for error messages."""
_CHUNKS_MAX = 4096
"""Before the sound; usual are two or three."""
_OPEN_ENDED = 0x7FFF0000
"""Writers into a pipe leave lengths from here on in the header: the data goes to the end. So it does where a recorder
was stopped before it wrote the lengths: that of the data is 0, and that of the file ends no later."""


def read_wav(body: bytes, seconds_max: float = 3600.0) -> tuple[np.ndarray, int]:
    """(float32[n] mono, sample rate in Hz). PCM of 8, 16, 24, 32 bits and floats of 32, 64; channels are averaged.

    Raises: BadMedia.
    """
    if body[:4] not in (b"RIFF", b"RF64") or body[8:12] != b"WAVE":
        found = next((name for begin, name in _UNREAD if re.match(begin, body[:12], re.DOTALL)), "")
        what = f"this is {found}, which the box does not read" if found else "this is no sound the box can read"
        raise BadMedia(reason=f"{what}: send a WAV file")
    layout: tuple[int, int, int, int] | None = None
    at = 12
    for _ in range(_CHUNKS_MAX):
        if at + 8 > len(body):
            raise BadMedia(reason="the WAV is cut off: it has no data")
        (length,) = struct.unpack_from("<I", body, at + 4)
        kind = body[at : at + 4]
        if kind == b"fmt ":
            layout = _read_format(body[at + 8 : at + 8 + length])
        if kind == b"data":
            if layout is None:
                raise BadMedia(reason="the WAV has data before its format")
            is_unwritten = length == 0 and struct.unpack_from("<I", body, 4)[0] <= at
            data = body[at + 8 :] if is_unwritten else _data(body, at + 8, length)
            _check_length(len(data), layout, seconds_max)
            return _samples(data, layout), layout[2]
        at += 8 + length + (length & 1)
    raise BadMedia(reason=f"the WAV has more than {_CHUNKS_MAX} chunks before its sound")


def _read_format(chunk: bytes) -> tuple[int, int, int, int]:
    """(coding, channels, rate, bits)."""
    if len(chunk) < 16:
        raise BadMedia(reason="the WAV is cut off inside its format")
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if coding == _EXTENSIBLE and len(chunk) >= 26:
        (coding,) = struct.unpack_from("<H", chunk, 24)
    if not 1 <= channels <= 32 or not 1000 <= rate <= 768_000:
        raise BadMedia(reason=f"the WAV says {channels} channels at {rate} Hz")
    if (coding, bits) not in {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)}:
        raise BadMedia(
            reason=f"the WAV has coding {coding} with {bits} bits; send PCM of 8, 16, 24 or 32 bits or 32-bit floats"
        )
    return coding, channels, rate, bits


def _data(body: bytes, at: int, length: int) -> bytes:
    if at + length > len(body):
        if length < _OPEN_ENDED:
            raise BadMedia(reason="the WAV is cut off inside its data")
        length = len(body) - at
    return body[at : at + length]


def _check_length(data_bytes: int, layout: tuple[int, int, int, int], seconds_max: float) -> None:
    _, channels, rate, bits = layout
    if data_bytes > seconds_max * rate * channels * bits // 8:
        raise BadMedia(reason=f"the sound is longer than {seconds_max:g} s: send it in pieces of one sequence")


def _samples(data: bytes, layout: tuple[int, int, int, int]) -> np.ndarray:
    coding, channels, _, bits = layout
    values: np.ndarray
    data = data[: len(data) // (channels * bits // 8) * (channels * bits // 8)]
    if coding == _FLOAT:
        values = np.frombuffer(data, f"<f{bits // 8}").astype(np.float32)
        if not np.isfinite(values).all():
            raise BadMedia(reason="the WAV has samples that are no numbers (NaN or infinite)")
    elif bits == 8:
        values = np.frombuffer(data, np.uint8).astype(np.float32) / 128 - 1
    elif bits == 24:
        # The three bytes become the upper ones of a 32-bit number, which keeps the sign.
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = wide.view("<i4").ravel().astype(np.float32) / 2**31
    else:
        values = np.frombuffer(data, f"<i{bits // 8}").astype(np.float32) / 2 ** (bits - 1)
    return values if channels == 1 else np.asarray(values.reshape(-1, channels).mean(axis=1))
