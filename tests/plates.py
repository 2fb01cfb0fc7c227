"""Pages with plates, a drawn numeral on each, and a network without weights that finds them: with `toys.digits` behind
it, a pipeline that reads pages, without any download.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import onnx

from appliance.demo.zoo import graphs
from appliance.demo.zoo.toys import DIGIT_CLASSES, hand

HEIGHT, WIDTH = 160, 384
"""Of a page, in pixels."""
PLATE = 64
"""Side of a plate."""
STROKE_MAX = 21
"""Pixels that a stroke on a plate is narrower than, and plates are farther apart than."""
PAPER = 210
PLATES_MAX = 4

Pixels = npt.NDArray[np.uint8]
Corners = list[list[float]]

METADATA: dict[str, object] = {
    "task": "text-detection",
    "decoder": "db",
    "params": {"binarise": 0.6, "score_min": 0.5, "unclip": 0.03},
    "image": {
        "layout": "NCHW",
        "channels": "GRAY",
        "mean": [0.0],
        "std": [255.0],
        "resize": "stretch",
        "height": HEIGHT,
        "width": WIDTH,
    },
    "precisions": [],
}


@dataclass(frozen=True)
class Pages:
    """What `plates` leaves in its folder."""

    model: Path
    metadata: Path
    evaluation: Path
    """Pages, with the corners of their plates and their numerals in `truth.json`."""


def plates(folder: Path, count: int = 12, seed: int = 5) -> Pages:
    """A network `image` FP32[N, 1, 160, 384] in 0..1 → `plates`, the same shape: high on dark plates, strokes and all.

    It closes the dark: what is darker than the paper grows by half of `STROKE_MAX`, over the strokes on it, and shrinks
    again.
    """
    made = Pages(folder / "plates.onnx", folder / "metadata.json", folder / "evaluation")
    made.evaluation.mkdir(parents=True, exist_ok=True)
    graphs.save(_network(), made.model)
    made.metadata.write_text(json.dumps(METADATA))
    rng = np.random.default_rng(seed)
    samples = []
    for number in range(count):
        page, regions, numerals = draw_page(rng)
        name = f"{number:04}.png"
        (made.evaluation / name).write_bytes(cv2.imencode(".png", page)[1].tobytes())
        samples.append({"file": name, "regions": [{"quad": quad} for quad in regions], "numerals": numerals})
    (made.evaluation / "truth.json").write_text(json.dumps({"samples": samples}))
    return made


def draw_page(rng: np.random.Generator) -> tuple[Pixels, list[Corners], str]:
    """A page uint8[160, 384] with one to four plates side by side, each a little turned; their corners and numerals,
    from left to right.
    """
    page = np.full((HEIGHT, WIDTH), PAPER, np.uint8)
    regions: list[Corners] = []
    numerals = ""
    count = int(rng.integers(1, PLATES_MAX + 1))
    for at in range(count):
        numeral = DIGIT_CLASSES[int(rng.integers(len(DIGIT_CLASSES)))]
        centre = (WIDTH * (at + 0.5) / PLATES_MAX, HEIGHT / 2 + rng.uniform(-20, 20))
        angle = rng.uniform(-6, 6)
        turn = np.asarray(cv2.getRotationMatrix2D((PLATE / 2, PLATE / 2), angle, 1.0), np.float64)
        turn[:, 2] += np.array(centre) - PLATE / 2
        size = (WIDTH, HEIGHT)
        placed = cv2.warpAffine(hand(numeral, rng), turn, size)
        mask = cv2.warpAffine(np.full((PLATE, PLATE), 255, np.uint8), turn, size)
        page = np.where(mask > 127, placed, page).astype(np.uint8)
        corners = np.array([[0, 0, 1], [PLATE, 0, 1], [PLATE, PLATE, 1], [0, PLATE, 1]], np.float64)
        regions.append((corners @ turn.T).round(1).tolist())
        numerals += numeral
    return page, regions, numerals


def _network() -> onnx.ModelProto:
    graph = graphs.Graph()
    graph.constant("white", np.ones((1, 1, 1, 1), np.float32))
    window = {"kernel_shape": [STROKE_MAX] * 2, "pads": [STROKE_MAX // 2] * 4, "strides": [1, 1]}
    grown = graph.add("MaxPool", [graph.add("Sub", ["white", "image"], "dark")], "grown", **window)
    shrunk = graph.add("MaxPool", [graph.add("Neg", [grown], "light")], "shrunk", **window)
    graph.add("Neg", [shrunk], "plates")
    shape = ("N", 1, HEIGHT, WIDTH)
    return graph.model("plates", {"image": shape}, {"plates": shape})
