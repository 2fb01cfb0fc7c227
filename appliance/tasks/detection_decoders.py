"""Raw outputs of detectors → candidate boxes in pixels of the input tensor.

One function per family of heads; `DECODERS` names them.

Each keeps only candidates above the score bound before it touches boxes, so that the cost follows what is seen and not
the grid.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from appliance.domain.catalogue import TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.base import number, word
from appliance.tasks.boxes import from_centres, top_candidates
from appliance.tasks.softmax import sigmoid, softmax

CANDIDATES_MAX = 400


@dataclass(frozen=True, slots=True)
class Candidates:
    """Boxes before suppression: boxes float[N, 4] (x1, y1, x2, y2, input pixels), scores float[N], classes int[N],
    landmarks float[N, K, 2].
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    landmarks: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class InputSize:
    """Of the tensor that was run."""

    width: int
    height: int


Decoder = Callable[[Mapping[str, np.ndarray], InputSize, TaskSpec], Candidates]


def refuse(decoder: str, outputs: Mapping[str, np.ndarray]) -> BadMetadata:
    """The error for outputs that do not look as the decoder expects."""
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    return BadMetadata(
        reason=f"decoder {decoder!r} cannot read the outputs {shapes}; choose another of {', '.join(DECODERS)}"
    )


def _best_classes(scores: np.ndarray, score_min: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose best class reaches the bound: (rows, their scores, their classes), best first. scores: float[N, C].

    Numbers outside 0..1 are logits; only the best of each row goes through the sigmoid, which keeps the order.
    """
    best = scores.max(axis=1, initial=-np.inf)
    if best.size and (best.max() > 1 or scores.min() < 0):
        best = sigmoid(best)
    rows = top_candidates(best, score_min, CANDIDATES_MAX)
    return rows, best[rows], scores[rows].argmax(axis=1)


def _classes(numbers: np.ndarray) -> np.ndarray:
    """Classes that an output names: int[N], of what is no number -1, which has no label."""
    is_one = np.abs(numbers) < 2**31  # false of NaN
    return np.where(is_one, numbers, -1).astype(np.intp)


def nanodet(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """Generalised focal loss heads: class scores and, per side, a distribution over distances in strides (RangiLyu
    NanoDet, PicoDet).

    Takes a pair of outputs per stride, or one with both side by side. Outputs are matched to strides by their count of
    cells.
    """
    bins = int(number(spec, "distance_bins", 0))
    found: list[tuple[np.ndarray, ...]] = []
    for stride, scores, distances in _stride_pairs(outputs, size, spec, bins):
        rows, best, classes = _best_classes(scores, number(spec, "score_min", 0.4))
        logits = distances[rows].reshape(len(rows), 4, distances.shape[1] // 4)
        sides = softmax(logits) @ np.arange(logits.shape[2], dtype=np.float32) * stride
        columns = math.ceil(size.width / stride)
        centres = (np.stack([rows % columns, rows // columns], axis=1) + 0.5) * stride
        found.append((np.concatenate([centres - sides[:, :2], centres + sides[:, 2:]], axis=1), best, classes))
    boxes, best, classes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Candidates(boxes, best, classes)


def _stride_pairs(
    outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec, bins: int
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(stride, scores[cells, C], distances[cells, 4·bins]) from fine to coarse."""
    cells = {stride: math.ceil(size.width / stride) * math.ceil(size.height / stride) for stride in (8, 16, 32, 64)}
    if len(outputs) == 1:
        return _split_joined(outputs, cells, spec, bins)
    pairs = []
    for stride, count in cells.items():
        maps = [_cell_rows(array, count) for array in outputs.values()]
        pair = [rows for rows in maps if rows is not None]
        if len(pair) == 2:
            pairs.append((stride, *_scores_first(pair[0], pair[1], spec, bins)))
    if not pairs:
        raise refuse("nanodet", outputs)
    return pairs


def _split_joined(
    outputs: Mapping[str, np.ndarray], cells: Mapping[int, int], spec: TaskSpec, bins: int
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    joined = next(iter(outputs.values()))
    counts = list(cells.items())
    strides = (
        counts if joined.size % sum(cells.values()) == 0 and joined.shape[-2] == sum(cells.values()) else counts[:3]
    )
    if joined.ndim < 2 or joined.shape[-2] != sum(count for _, count in strides):
        raise refuse("nanodet", outputs)
    rows = joined.reshape(joined.shape[-2], joined.shape[-1])
    class_count = len(spec.labels) or rows.shape[1] - 4 * (bins or 8)
    pairs, at = [], 0
    for stride, count in strides:
        part = rows[at : at + count]
        pairs.append((stride, part[:, :class_count], part[:, class_count:]))
        at += count
    return pairs


def _cell_rows(array: np.ndarray, count: int) -> np.ndarray | None:
    """An output as [cells, channels] if it has that many cells: [.., cells, C], [.., C, cells], NHWC or NCHW maps."""
    shape = [side for side in array.shape if side != 1]
    if len(shape) >= 2 and math.prod(shape[:-1]) == count:
        return array.reshape(count, shape[-1])
    if len(shape) >= 2 and math.prod(shape[1:]) == count:
        return array.reshape(shape[0], count).T
    return None


def _scores_first(first: np.ndarray, second: np.ndarray, spec: TaskSpec, bins: int) -> tuple[np.ndarray, np.ndarray]:
    channels = (first.shape[1], second.shape[1])
    if bins:
        first_is_scores = channels[1] == 4 * bins
    elif spec.labels and channels[0] != channels[1]:
        first_is_scores = channels[0] == len(spec.labels)
    else:
        first_is_scores = channels[1] in (32, 44, 68) or channels[0] % 4 != 0
    return (first, second) if first_is_scores else (second, first)


def centerface(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """CenterFace: heat, log size (h, w), offset (y, x) and five points (y, x) at stride 4, all NCHW."""
    heat = _with_channels(outputs, 1)
    pairs = _with_channels(outputs, 2)
    points = _with_channels(outputs, 10)
    if len(heat) != 1 or len(pairs) != 2 or len(points) != 1:
        raise refuse("centerface", outputs)
    stride = 4.0
    columns = heat[0].shape[1]
    rows = top_candidates(heat[0].ravel(), number(spec, "score_min", 0.5), CANDIDATES_MAX)
    cell_y, cell_x = np.divmod(rows, columns)
    sides = np.exp(np.minimum(pairs[0].reshape(2, -1)[:, rows], 20.0)) * stride
    offsets = pairs[1].reshape(2, -1)[:, rows]
    top_left = np.stack(
        [(cell_x + offsets[1] + 0.5) * stride - sides[1] / 2, (cell_y + offsets[0] + 0.5) * stride - sides[0] / 2],
        axis=1,
    )
    extent = np.stack([sides[1], sides[0]], axis=1)
    landmarks = points[0].reshape(5, 2, -1)[:, ::-1, rows].transpose(2, 0, 1) * extent[:, None] + top_left[:, None]
    boxes = np.concatenate([top_left, top_left + extent], axis=1)
    return Candidates(boxes, heat[0].ravel()[rows], np.zeros(len(rows), np.intp), landmarks)


def _with_channels(outputs: Mapping[str, np.ndarray], channels: int) -> list[np.ndarray]:
    """NCHW maps with that many channels, without the batch axis, in the order of the outputs; one channel loses its
    axis too.
    """
    maps = [array[0] for array in outputs.values() if array.ndim == 4 and array.shape[1] == channels]
    return [array[0] for array in maps] if channels == 1 else maps


def blazeface(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """BlazeFace of MediaPipe: logits and boxes with six points, relative to anchor centres, for grids of 16x16x2 and
    8x8x6.
    """
    by_anchors: dict[int, dict[int, np.ndarray]] = {}
    for array in outputs.values():
        rows = array.reshape(-1, array.shape[-1])
        by_anchors.setdefault(len(rows), {})[rows.shape[1]] = rows
    if set(by_anchors) != {512, 384} or any(set(pair) != {1, 16} for pair in by_anchors.values()):
        raise refuse("blazeface", outputs)
    scores = np.concatenate([by_anchors[512][1], by_anchors[384][1]]).ravel()
    raw = np.concatenate([by_anchors[512][16], by_anchors[384][16]])
    scores = sigmoid(scores)
    rows = top_candidates(scores, number(spec, "score_min", 0.5), CANDIDATES_MAX)
    anchors = _blazeface_anchors()[rows] * (size.width, size.height)
    centres = np.concatenate([raw[rows, :2] + anchors, raw[rows, 2:4]], axis=1)
    landmarks = raw[rows, 4:].reshape(len(rows), 6, 2) + anchors[:, None]
    return Candidates(from_centres(centres), scores[rows], np.zeros(len(rows), np.intp), landmarks)


def _blazeface_anchors() -> np.ndarray:
    """Centres in 0..1: float[896, 2]."""
    grids = []
    for side, per_cell in ((16, 2), (8, 6)):
        y, x = np.mgrid[:side, :side]
        cells = (np.stack([x.ravel(), y.ravel()], axis=1) + 0.5) / side
        grids.append(np.repeat(cells, per_cell, axis=0))
    return np.concatenate(grids)


def yolov8(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """One output [1, 4 + C, N] or [1, N, 4 + C]: centre boxes in input pixels and class probabilities (anchor-free
    YOLO heads).
    """
    rows = _joined_rows(outputs, "yolov8", 4, spec)
    picked, best, classes = _best_classes(rows[:, 4:], number(spec, "score_min", 0.25))
    return Candidates(from_centres(rows[picked, :4]), best, classes)


def yolov5(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """One output [1, N, 5 + C]: as `yolov8`, with an objectness that multiplies the class probabilities."""
    rows = _joined_rows(outputs, "yolov5", 5, spec)
    picked, best, classes = _best_classes(rows[:, 4:5] * rows[:, 5:], number(spec, "score_min", 0.25))
    return Candidates(from_centres(rows[picked, :4]), best, classes)


def _joined_rows(outputs: Mapping[str, np.ndarray], decoder: str, before: int, spec: TaskSpec) -> np.ndarray:
    array = next((array for array in outputs.values() if array.ndim == 3), None)
    if array is None or min(array.shape[1:]) <= before:
        raise refuse(decoder, outputs)
    table = array[0]
    width = before + len(spec.labels)
    # There are far more candidates than classes; the number of labels decides where that would mislead.
    transposed = table.shape[0] < table.shape[1] if width not in table.shape else table.shape[1] != width
    return np.asarray(table.T if transposed else table)


def ssd(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """Boxes and scores as separate outputs: [1, N, 4] with [1, N, C], or with [1, N] and classes [1, N].

    Params: `box_format` xyxy (default), yxyx or cxcywh; `background` = index of the class that means nothing; boxes of
    at most 2 are taken as shares of the input, larger ones as its pixels.
    """
    rows = {
        name: array.reshape(-1) if array.ndim <= 2 else array.reshape(-1, array.shape[-1])
        for name, array in outputs.items()
    }
    boxes_name = _ssd_boxes(rows, spec)
    if boxes_name is None:
        raise refuse("ssd", outputs)
    boxes = rows[boxes_name]
    others = {name: array for name, array in rows.items() if name != boxes_name and len(array) == len(boxes)}
    table = next((array for array in others.values() if array.ndim == 2), None)
    score_min = number(spec, "score_min", 0.4)
    if table is not None:
        table = _without_background(_as_probabilities(table), int(number(spec, "background", -1)))
        picked, best, classes = _best_classes(table, score_min)
    else:
        scores, labels = _ssd_flat(others)
        if scores is None:
            raise refuse("ssd", outputs)
        picked = top_candidates(scores, score_min, CANDIDATES_MAX)
        best = scores[picked]
        classes = np.zeros(len(picked), np.intp) if labels is None else _classes(labels[picked])
    return Candidates(_ssd_pixels(boxes, picked, size, spec), best, classes)


def _ssd_boxes(rows: Mapping[str, np.ndarray], spec: TaskSpec) -> str | None:
    """The output with four columns; the one called box-something where scores have four columns as well."""
    fours = [name for name, array in rows.items() if array.ndim == 2 and array.shape[1] == 4]
    named = [name for name in fours if "box" in name.lower() or "loc" in name.lower()]
    return next(iter(named or fours), None)


def _ssd_flat(others: Mapping[str, np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(scores, classes) among outputs of one number per box: classes are named or whole numbers above 1."""
    flat = {name: array for name, array in others.items() if array.ndim == 1}
    classes = next((name for name in flat if "class" in name.lower() or "label" in name.lower()), None)
    if classes is None and len(flat) > 1:
        classes = next((name for name, array in flat.items() if array.size and array.max() > 1), None)
    scores = next((array for name, array in flat.items() if name != classes), None)
    return scores, flat.get(classes) if classes is not None else None


def _as_probabilities(scores: np.ndarray) -> np.ndarray:
    if scores.size and (scores.min() < 0 or scores.max() > 1):
        return sigmoid(scores) if scores.shape[1] == 1 else softmax(scores)
    return scores


def _without_background(scores: np.ndarray, background: int) -> np.ndarray:
    if 0 <= background < scores.shape[1]:
        return np.delete(scores, background, axis=1)
    return scores


def _ssd_pixels(boxes: np.ndarray, picked: np.ndarray, size: InputSize, spec: TaskSpec) -> np.ndarray:
    layout = word(spec, "box_format", "xyxy")
    chosen = boxes[picked].astype(np.float64)
    if layout == "yxyx":
        chosen = chosen[:, [1, 0, 3, 2]]
    if layout == "cxcywh":
        chosen = from_centres(chosen)
    is_share = bool(boxes.size) and float(np.abs(boxes).max()) <= 2.0
    return np.asarray(chosen * (size.width, size.height, size.width, size.height) if is_share else chosen)


def end2end(outputs: Mapping[str, np.ndarray], size: InputSize, spec: TaskSpec) -> Candidates:
    """One output [.., N, 6]: x1, y1, x2, y2, score, class; or [N, 7]: image of the batch, x1, y1, x2, y2, class, score.

    Input pixels.
    """
    array = next((array for array in outputs.values() if array.shape[-1:] in ((6,), (7,))), None)
    if array is None:
        raise refuse("end2end", outputs)
    rows = array.reshape(-1, array.shape[-1])[:, -6:]
    if array.shape[-1] == 7:  # image, box, class, score
        rows = rows[:, [0, 1, 2, 3, 5, 4]]
    picked = top_candidates(rows[:, 4], number(spec, "score_min", 0.25), CANDIDATES_MAX)
    return Candidates(rows[picked, :4], rows[picked, 4], _classes(rows[picked, 5]))


DECODERS: Mapping[str, Decoder] = {
    "nanodet": nanodet,
    "centerface": centerface,
    "blazeface": blazeface,
    "yolov8": yolov8,
    "yolov5": yolov5,
    "ssd": ssd,
    "end2end": end2end,
}
