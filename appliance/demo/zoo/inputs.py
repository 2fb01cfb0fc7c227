"""Real pictures, frames, lines of text and sound as the files that a device sends: JPEG, PNG, WAV, text, NPZ.

Each function writes numbered files into a folder and returns their paths. Truth goes beside an evaluation set as
`truth.json`.
"""

import json
import wave
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from appliance.demo.zoo.annotations import Point

Picture = npt.NDArray[np.uint8]
"""uint8[H, W, 3], BGR as OpenCV reads it."""

JPEG_QUALITY = 92


def spread(count: int, total: int, start: int = 0) -> list[int]:
    """`count` frame numbers evenly over `total` frames from `start`."""
    return [start + int(index) for index in np.linspace(0, total - 1, count)]


def frames(video: Path, numbers: Iterable[int]) -> Iterator[tuple[int, Picture]]:
    """The frames of those numbers, in order; decodes from the start, because not every container can seek."""
    wanted = set(numbers)
    capture = cv2.VideoCapture(str(video))
    try:
        for number in range(max(wanted, default=-1) + 1):
            is_read, frame = capture.read()
            if not is_read:
                return
            if number in wanted:
                yield number, np.asarray(frame, np.uint8)
    finally:
        capture.release()


def picture(path: Path) -> Picture:
    """A picture file as it is, in colour."""
    # Through memory: OpenCV's own reader prints warnings about colour profiles for files.
    image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError(f"{path.name} is no picture")
    return np.asarray(image, np.uint8)


def write_pictures(folder: Path, pictures: Iterable[Picture], suffix: str = ".jpg") -> list[Path]:
    """Numbered picture files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, image in enumerate(pictures):
        path = folder / f"{number:04}{suffix}"
        options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if suffix == ".jpg" else []
        is_encoded, data = cv2.imencode(suffix, image, options)
        if not is_encoded:
            raise ValueError(f"a picture of shape {image.shape} cannot be written as {suffix}")
        path.write_bytes(data.tobytes())  # not imwrite, which keeps silent about a full disk
        written.append(path)
    return written


def write_texts(folder: Path, texts: Iterable[str]) -> list[Path]:
    """Numbered text files, UTF-8."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, text in enumerate(texts):
        written.append(folder / f"{number:04}.txt")
        written[-1].write_text(text, encoding="utf-8")
    return written


def write_arrays(folder: Path, rows: Iterable[Mapping[str, npt.NDArray[Any]]]) -> list[Path]:
    """Numbered .npz files of named tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, row in enumerate(rows):
        written.append(folder / f"{number:04}.npz")
        # The keywords are arrays, allow_pickle is not among them.
        np.savez(written[-1], **row)  # type: ignore[arg-type]
    return written


def write_truth(folder: Path, files: Sequence[Path], truths: Sequence[Mapping[str, Any]]) -> None:
    """`truth.json` beside the evaluation files."""
    samples = [{"file": path.name, **truth} for path, truth in zip(files, truths, strict=True)]
    (folder / "truth.json").write_text(json.dumps({"samples": samples}, ensure_ascii=False, indent=1), encoding="utf-8")


def cut_line(image: Picture, quad: Sequence[Point]) -> Picture:
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
    line = [(pad // 2, pad // 2), (width + 3 * pad // 2, pad // 2)]
    line += [(line[1][0], height + below + 3 * pad // 2), (line[0][0], height + below + 3 * pad // 2)]
    corners = [tuple(int(value) for value in turn @ (x, y, 1)) for x, y in line]
    joined = np.where(mask[..., None] > 127, placed, image)
    return np.asarray(joined, np.uint8), [(x, y) for x, y in corners]


def samples_of(path: Path) -> tuple[npt.NDArray[np.int16], int]:
    """A 16-bit mono WAV: int16[n] and its rate in Hz."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2 or file.getnchannels() != 1:
            raise ValueError(f"{path.name} is not 16-bit mono")
        return np.frombuffer(file.readframes(file.getnframes()), np.int16), file.getframerate()


def write_sounds(folder: Path, pieces: Iterable[npt.NDArray[np.int16]], rate_hz: int) -> list[Path]:
    """Numbered 16-bit mono WAV files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, piece in enumerate(pieces):
        written.append(folder / f"{number:04}.wav")
        with wave.open(str(written[-1]), "wb") as file:
            file.setparams((1, 2, rate_hz, 0, "NONE", "not compressed"))
            file.writeframes(piece.tobytes())
    return written


def pieces(samples: npt.NDArray[np.int16], length: int) -> list[npt.NDArray[np.int16]]:
    """Whole pieces of `length` samples, in order; what is left over at the end is dropped."""
    return [samples[at : at + length] for at in range(0, len(samples) - length + 1, length)]


def rttm_segments(text: str) -> list[dict[str, float]]:
    """Where anybody speaks according to an RTTM file, overlaps joined: [{"start_s", "end_s"}]."""
    turns = sorted((float(row[3]), float(row[3]) + float(row[4])) for row in map(str.split, text.splitlines()) if row)
    joined: list[list[float]] = []
    for start, end in turns:
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return [{"start_s": round(start, 3), "end_s": round(end, 3)} for start, end in joined]
