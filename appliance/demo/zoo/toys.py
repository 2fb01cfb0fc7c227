"""A network that is trained on the spot, without any download: it reads drawn numerals."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import onnx

from appliance.demo.zoo import graphs, media
from appliance.demo.zoo.catalogue import ZOOS

Floats = npt.NDArray[np.float32]
Images = npt.NDArray[np.uint8]
Rng = np.random.Generator

DIGIT_SIDE = 8
"""Height and width of a digit image in pixels."""
DIGIT_CLASSES = tuple("0123456789")
CALIBRATED = 32
"""Images to calibrate int8 with."""
EPOCHS = 60
RATE = 0.3
FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX)


@dataclass(frozen=True)
class Digits:
    """What `digits` leaves in its folder: images the net was trained on, and held-out ones with `truth.json`."""

    model: Path
    metadata: Path
    """JSON in the words of `TaskSpec`."""
    calibration: Path
    evaluation: Path


def digits(folder: Path, seed: int = 7) -> Digits:
    """A network that reads drawn numerals, trained here, with metadata and images; held-out top-1 is above 0.9."""
    made = Digits(folder / "digits.onnx", folder / "metadata.json", folder / "calibration", folder / "evaluation")
    drawn = Numerals(seed)
    media.write(made.calibration, drawn.images[:CALIBRATED], ".png")
    media.write_labelled(made.evaluation, drawn.labelled(), ".png")
    graphs.save(digits_model(drawn), made.model)
    (recipe,) = (recipe for recipe in ZOOS["ci"] if recipe.name == "digits")
    made.metadata.write_text(json.dumps({"task": recipe.task, **recipe.metadata}))
    return made


class Numerals:
    """Drawn numerals uint8[n, 8, 8] (white on black) to train on and to judge by, and their classes."""

    def __init__(self, seed: int = 7) -> None:
        self.rng = np.random.default_rng(seed)
        self.images, self.classes = _drawn(self.rng, 1800)
        self.held_out, self.held_out_classes = _drawn(self.rng, 200)

    def labelled(self) -> list[tuple[Images, dict[str, str]]]:
        """The held-out images with their labels."""
        labels = ({"label": DIGIT_CLASSES[index]} for index in self.held_out_classes)
        return list(zip(self.held_out, labels, strict=True))


def digits_model(drawn: Numerals) -> onnx.ModelProto:
    """A 64-64-10 net trained now (about a second): `image` FP32[N, 1, 8, 8] in 0..1 to `probabilities` FP32[N, 10]."""
    graph = graphs.Graph()
    for name, values in _trained(drawn).items():
        graph.constant(name, values)
    value = graph.add("Flatten", ["image"], "flat", axis=1)
    value = graph.add("Relu", [graph.add("Gemm", [value, "w1", "b1"], "hidden")], "active")
    value = graph.add("Gemm", [value, "w2", "b2"], "logits")
    graph.add("Softmax", [value], "probabilities", axis=1)
    sides = {"image": ("N", 1, DIGIT_SIDE, DIGIT_SIDE)}, {"probabilities": ("N", len(DIGIT_CLASSES))}
    return graph.model("digits", *sides)


def _drawn(rng: Rng, count: int) -> tuple[Images, npt.NDArray[np.int64]]:
    """`count` numerals in random hands, shrunk to 8x8, with noise, and their classes."""
    images = []
    labels = np.arange(count, dtype=np.int64) % len(DIGIT_CLASSES)
    for label in labels:
        small = cv2.resize(hand(DIGIT_CLASSES[label], rng), (DIGIT_SIDE, DIGIT_SIDE), interpolation=cv2.INTER_AREA)
        images.append(np.clip(small + rng.normal(0, 12, small.shape), 0, 255).astype(np.uint8))
    return np.stack(images), labels


def hand(numeral: str, rng: Rng) -> Images:
    """One numeral on 64x64 in a random hand (line font, thickness, slant, place), white on black."""
    font, thickness = FONTS[rng.integers(3)], int(rng.integers(4, 9))
    canvas = np.zeros((64, 64), np.uint8)
    (width, height), _ = cv2.getTextSize(numeral, font, 1.9, thickness)
    cv2.putText(canvas, numeral, (32 - width // 2, 32 + height // 2), font, 1.9, (255,), thickness, cv2.LINE_AA)
    turn, scale = math.radians(rng.uniform(-14, 14)), rng.uniform(0.85, 1.1)
    across, down = rng.uniform(-5, 5, 2)
    cos, sin = math.cos(turn) * scale, math.sin(turn) * scale
    warp = np.array([[cos, sin, 32 * (1 - cos - sin) + across], [-sin, cos, 32 * (1 - cos + sin) + down]], np.float64)
    return np.asarray(cv2.warpAffine(canvas, warp, (64, 64)), np.uint8)


def _trained(drawn: Numerals) -> dict[str, Floats]:
    """Plain mini-batch gradient descent on the cross entropy of a ReLU net over pixels in 0..1."""
    rng, rows = drawn.rng, drawn.images.reshape(len(drawn.images), -1).astype(np.float32) / np.float32(255)
    hidden = (rng.normal(size=(64, 64)) * math.sqrt(2 / 64)).astype(np.float32)
    out = (rng.normal(size=(64, 10)) * math.sqrt(1 / 64)).astype(np.float32)
    hidden_bias, out_bias = np.zeros(64, np.float32), np.zeros(10, np.float32)
    targets = np.eye(10, dtype=np.float32)[drawn.classes]
    for _ in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(rows)), math.ceil(len(rows) / 64)):
            active = np.maximum(rows[batch] @ hidden + hidden_bias, 0)
            logits = active @ out + out_bias
            powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
            error = (powers / powers.sum(axis=-1, keepdims=True) - targets[batch]) / len(batch)
            back = (error @ out.T) * (active > 0)
            out -= RATE * (active.T @ error)
            out_bias -= RATE * error.sum(axis=0)
            hidden -= RATE * (rows[batch].T @ back)
            hidden_bias -= RATE * back.sum(axis=0)
    return {"w1": hidden, "b1": hidden_bias, "w2": out, "b2": out_bias}
