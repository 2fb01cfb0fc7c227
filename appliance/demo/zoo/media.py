"""Pictures, frames, sound and text as the files that a device sends: JPEG, PNG, WAV, text, NPZ."""

import io
import json
import wave
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
"""uint8[H, W, 3], BGR as OpenCV reads it."""
Sound = npt.NDArray[np.int16]
"""Mono, at `RATE_HZ`."""
Point = tuple[int, int]

RATE_HZ = 16_000


def write(folder: Path, things: Iterable[Any], suffix: str) -> list[Path]:
    """Numbered files of one kind below `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, thing in enumerate(things):
        written.append(folder / f"{number:04}{suffix}")
        written[-1].write_bytes(_encoded(thing, suffix))  # not imwrite, which keeps silent about a full disk
    return written


def write_labelled(folder: Path, samples: Sequence[tuple[Any, Mapping[str, Any]]], suffix: str) -> None:
    """Numbered files, and what is to be recognised in each as `truth.json`."""
    files = write(folder, (thing for thing, _ in samples), suffix)
    truths = [{"file": path.name, **truth} for path, (_, truth) in zip(files, samples, strict=True)]
    (folder / "truth.json").write_text(json.dumps({"samples": truths}, ensure_ascii=False, indent=1), encoding="utf-8")


def _encoded(thing: Any, suffix: str) -> bytes:
    if suffix == ".txt":
        return str(thing).encode()
    if suffix in (".jpg", ".png"):
        is_encoded, data = cv2.imencode(suffix, thing, [cv2.IMWRITE_JPEG_QUALITY, 92] if suffix == ".jpg" else [])
        assert is_encoded
        return data.tobytes()
    buffer = io.BytesIO()
    if suffix == ".npz":
        np.savez(buffer, **thing)
    else:
        with wave.open(buffer, "wb") as file:
            file.setparams((1, 2, RATE_HZ, 0, "NONE", "not compressed"))
            file.writeframes(thing.tobytes())
    return buffer.getvalue()


def picture(path: Path) -> Picture:
    """A picture file as it is, in colour."""
    # Through memory: OpenCV's own reader prints warnings about colour profiles for files.
    image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert image is not None, path
    return np.asarray(image, np.uint8)


def frames(video: Path, numbers: Iterable[int]) -> list[Picture]:
    """The frames of those ascending numbers; decodes from the start, because not every container can seek."""
    wanted, found = set(numbers), []
    capture = cv2.VideoCapture(str(video))
    for number in range(max(wanted) + 1):
        is_read, frame = capture.read()
        if is_read and number in wanted:
            found.append(np.asarray(frame, np.uint8))
    capture.release()
    return found


def spread(count: int, total: int, start: int = 0) -> list[int]:
    """`count` frame numbers evenly over `total` frames from `start`."""
    return [start + int(index) for index in np.linspace(0, total - 1, count)]


def cut_line(image: Picture, quad: Sequence[Sequence[float]]) -> Picture:
    """The four-cornered piece of a picture, straightened: a line of text as a recogniser wants it."""
    corners = np.array(quad, np.float32)
    width = round(max(np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[2] - corners[3])))
    height = round(max(np.linalg.norm(corners[3] - corners[0]), np.linalg.norm(corners[2] - corners[1])))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    warp = cv2.getPerspectiveTransform(corners, target)
    straight = cv2.warpPerspective(image, warp, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(straight, np.uint8)


def cut_square(image: Picture, box: Sequence[float], margin: float) -> Picture:
    """A square around a box, `margin` (share of its longer side) wider on every side, within the picture."""
    left, top, right, bottom = box
    half = max(right - left, bottom - top) * (0.5 + margin)
    across, down = (left + right) / 2, (top + bottom) / 2
    rows = slice(max(0, round(down - half)), min(image.shape[0], round(down + half)))
    columns = slice(max(0, round(across - half)), min(image.shape[1], round(across + half)))
    return image[rows, columns]


def with_sign(
    image: Picture, text: str, corner: Point, height: int, white_on_blue: bool
) -> tuple[Picture, list[Point]]:
    """A copy of a real picture with a drawn sign on it, slightly turned as signs are, and the corners of its line."""
    font, thickness = cv2.FONT_HERSHEY_DUPLEX, max(1, height // 16)
    scale = height / cv2.getTextSize("H", font, 1.0, 1)[0][1]
    (width, _), below = cv2.getTextSize(text, font, scale, thickness)
    pad = height // 2
    back, front = ((150, 60, 20), (245, 245, 245)) if white_on_blue else ((225, 235, 235), (30, 30, 30))
    sign = np.full((height + below + 2 * pad, width + 2 * pad, 3), back, np.uint8)
    cv2.putText(sign, text, (pad, pad + height), font, scale, front, thickness, cv2.LINE_AA)
    turn = np.array([[1, 0.015, corner[0]], [-0.03, 1, corner[1]]], np.float64)
    size = (image.shape[1], image.shape[0])
    mask = cv2.warpAffine(np.full(sign.shape[:2], 255, np.uint8), turn, size)
    placed = cv2.GaussianBlur(cv2.warpAffine(sign, turn, size), (0, 0), 0.7)
    left, top, right, bottom = pad // 2, pad // 2, width + 3 * pad // 2, height + below + 3 * pad // 2
    corners = turn @ np.array([(x, y, 1) for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]).T
    joined = np.where(mask[..., None] > 127, placed, image)
    return np.asarray(joined, np.uint8), [(int(x), int(y)) for x, y in corners.T]


def sound(path: Path) -> Sound:
    """The samples of a 16-bit mono WAV."""
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16)


def pieces(samples: Sound, length: int) -> list[Sound]:
    """Whole pieces of `length` samples, in order; what is left over at the end is dropped."""
    return [samples[at : at + length] for at in range(0, len(samples) - length + 1, length)]


def speech_in(rttm: str, begin_s: float = 0.0) -> list[dict[str, float]]:
    """Where anybody speaks according to an RTTM file, overlaps joined, in seconds from `begin_s`."""
    turns = sorted((float(row[3]), float(row[3]) + float(row[4])) for row in map(str.split, rttm.splitlines()) if row)
    joined: list[list[float]] = []
    for start, end in turns:
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return [{"start_s": round(start - begin_s, 3), "end_s": round(end - begin_s, 3)} for start, end in joined]
