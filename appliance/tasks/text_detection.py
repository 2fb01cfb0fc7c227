"""A picture in, the places of its lines of text out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.base import Answer, Arrays, Decoded, Media, Score, Target, number
from appliance.tasks.image import Frame, decode_picture
from appliance.tasks.metrics import f1_of_regions, truth_list
from appliance.tasks.opencv import opencv

_CONTOURS_MAX = 1000


class TextDetection:
    """Decoder `db`: a map of probabilities (differentiable binarisation, Liao et al. 2020) as PP-OCR uses it."""

    kind = TaskKind.TEXT_DETECTION

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        return decode_picture(media, spec, target)

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        frame: Frame = decoded.context
        found = db_quads(_probability_map(outputs[0]), spec)
        quads = [(score, frame.to_original(quad).round(2)) for score, quad in found]
        regions = [{"score": round(score, 4), "quad": quad.tolist()} for score, quad in reading_order(quads)]
        return Answer({"regions": regions, "width": frame.width, "height": frame.height})

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return f1_of_regions(answer["regions"], reference["regions"])

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        return f1_of_regions(answer["regions"], truth_list(truth, "regions", "quad"))


def _probability_map(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """float32[H, W] of the first output that is a single map."""
    for array in outputs.values():
        if array.ndim >= 2 and array.size == array.shape[-1] * array.shape[-2]:
            return np.ascontiguousarray(array.reshape(array.shape[-2:]), np.float32)
    raise BadMetadata(reason="decoder 'db' needs an output [1, 1, height, width]")


def db_quads(probabilities: np.ndarray, spec: TaskSpec) -> list[tuple[float, np.ndarray]]:
    """(score, quad float32[4, 2] clockwise from the top left) of each line, in pixels of the map.

    Params: `binarise` 0.3, `score_min` 0.5, `unclip` 1.6, `side_min` 3. The network marks shrunken lines; the shrinking
    is undone by moving each side out by area · unclip / perimeter. On a rectangle that equals the usual polygon offset
    followed by a rectangle fit.
    """
    cv2 = opencv()
    mask = (probabilities > number(spec, "binarise", 0.3)).astype(np.uint8)
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    side_min, score_min = number(spec, "side_min", 3.0), number(spec, "score_min", 0.5)
    unclip = number(spec, "unclip", 1.6)
    quads = []
    for contour in contours[:_CONTOURS_MAX]:
        centre, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) < side_min:
            continue
        rectangle = cv2.boxPoints((centre, (width, height), angle))
        score = _mean_inside(probabilities, rectangle)
        if not score >= score_min:
            continue
        out = width * height * unclip / (2 * (width + height))
        if min(width, height) + 2 * out < side_min + 2:
            continue
        quads.append((score, _clockwise(cv2.boxPoints((centre, (width + 2 * out, height + 2 * out), angle)))))
    return quads


def _mean_inside(probabilities: np.ndarray, quad: np.ndarray) -> float:
    """Mean probability inside a quad, looking only at its bounding box."""
    cv2 = opencv()
    height, width = probabilities.shape
    left, top = np.clip(np.floor(quad.min(axis=0)).astype(int), 0, (width - 1, height - 1))
    right, bottom = np.clip(np.ceil(quad.max(axis=0)).astype(int), 0, (width - 1, height - 1))
    mask = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(mask, [(quad - (left, top)).astype(np.int32)], 1)
    return float(cv2.mean(probabilities[top : bottom + 1, left : right + 1], mask)[0])


def _clockwise(quad: np.ndarray) -> np.ndarray:
    """Corners as top left, top right, bottom right, bottom left (the two leftmost corners are the left side)."""
    by_x = quad[np.argsort(quad[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    return np.stack([left[0], right[0], right[1], left[1]])


def reading_order(quads: list[tuple[float, np.ndarray]]) -> list[tuple[float, np.ndarray]]:
    """From top to bottom; what overlaps a line by half its height belongs to it, and a line reads from left to
    right.
    """
    waiting = sorted(quads, key=lambda entry: (float(entry[1][:, 1].min()), float(entry[1][0, 0])))
    ordered: list[tuple[float, np.ndarray]] = []
    while waiting:
        first = waiting[0][1]
        middle = float(first[:, 1].mean())
        line = [entry for entry in waiting if entry[1][:, 1].min() <= middle]
        waiting = [entry for entry in waiting if entry[1][:, 1].min() > middle]
        ordered += sorted(line, key=lambda entry: float(entry[1][0, 0]))
    return ordered
