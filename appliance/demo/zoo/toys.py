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

Floats = npt.NDArray[np.float32]

DIGIT_SIDE = 8
"""Height and width of a digit image in pixels."""
DIGIT_CLASSES = tuple("0123456789")
CALIBRATED = 32
"""Images to calibrate int8 with."""


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
    drawn = drawn_numerals(seed)
    media.write(made.calibration, drawn.images[:CALIBRATED], ".png")
    media.write_labelled(made.evaluation, drawn.labelled(), ".png")
    graphs.save(digits_model(drawn), made.model)
    made.metadata.write_text(json.dumps(DIGITS_METADATA))
    return made


@dataclass(frozen=True)
class Numerals:
    """Drawn numerals uint8[n, 8, 8] (white on black) to train on and to judge by, and their classes."""

    images: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.int64]
    held_out: npt.NDArray[np.uint8]
    held_out_classes: npt.NDArray[np.int64]
    rng: np.random.Generator

    def labelled(self) -> list[tuple[npt.NDArray[np.uint8], dict[str, str]]]:
        """The held-out images with their labels."""
        labels = ({"label": DIGIT_CLASSES[index]} for index in self.held_out_classes)
        return list(zip(self.held_out, labels, strict=True))


def drawn_numerals(seed: int = 7) -> Numerals:
    """The ten numerals in several line fonts, slanted, shifted, of uneven thickness and noisy."""
    rng = np.random.default_rng(seed)
    return Numerals(*draw_digits(rng, 1800), *draw_digits(rng, 200), rng)


def digits_model(drawn: Numerals) -> onnx.ModelProto:
    """A 64-64-10 net trained now (about a second): `image` FP32[N, 1, 8, 8] in 0..1 to `probabilities` FP32[N, 10]."""
    rows = drawn.images.reshape(len(drawn.images), -1).astype(np.float32) / np.float32(255)
    graph = graphs.Graph()
    for name, values in train(rows, drawn.classes, drawn.rng).items():
        graph.constant(name, values)
    value = graph.add("Flatten", ["image"], "flat", axis=1)
    value = graph.add("Relu", [graph.add("Gemm", [value, "w1", "b1"], "hidden")], "active")
    value = graph.add("Gemm", [value, "w2", "b2"], "logits")
    graph.add("Softmax", [value], "probabilities", axis=1)
    sides = {"image": ("N", 1, DIGIT_SIDE, DIGIT_SIDE)}, {"probabilities": ("N", len(DIGIT_CLASSES))}
    return graph.model("digits", *sides)


DIGITS_METADATA: dict[str, object] = {
    "task": "image-classification",
    "labels": list(DIGIT_CLASSES),
    "image": {
        "layout": "NCHW",
        "channels": "GRAY",
        "mean": [0.0],
        "std": [255.0],
        "resize": "stretch",
        "height": 8,
        "width": 8,
    },
}


def draw_digits(rng: np.random.Generator, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """`count` drawn numerals: uint8[count, 8, 8] (white on black) and their classes."""
    labels = np.arange(count, dtype=np.int64) % len(DIGIT_CLASSES)
    return np.stack([_draw(DIGIT_CLASSES[label], rng) for label in labels]), labels


def _draw(numeral: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One numeral in a random hand, shrunk to 8x8, with noise."""
    small = cv2.resize(hand(numeral, rng), (DIGIT_SIDE, DIGIT_SIDE), interpolation=cv2.INTER_AREA)
    noisy: npt.NDArray[np.uint8] = np.clip(small + rng.normal(0, 12, small.shape), 0, 255).astype(np.uint8)
    return noisy


def hand(numeral: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One numeral on 64x64 in a random hand, white on black."""
    fonts = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX)
    font, thickness = fonts[rng.integers(3)], int(rng.integers(4, 9))
    canvas = np.zeros((64, 64), np.uint8)
    (width, height), _ = cv2.getTextSize(numeral, font, 1.9, thickness)
    cv2.putText(canvas, numeral, (32 - width // 2, 32 + height // 2), font, 1.9, (255,), thickness, cv2.LINE_AA)
    turn, scale = math.radians(rng.uniform(-14, 14)), rng.uniform(0.85, 1.1)
    across, down = rng.uniform(-5, 5, 2)
    cos, sin = math.cos(turn) * scale, math.sin(turn) * scale
    warp = np.array([[cos, sin, 32 * (1 - cos - sin) + across], [-sin, cos, 32 * (1 - cos + sin) + down]], np.float64)
    drawn: npt.NDArray[np.uint8] = np.asarray(cv2.warpAffine(canvas, warp, (64, 64)), np.uint8)
    return drawn


def train(
    rows: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator, epochs: int = 60, rate: float = 0.3
) -> dict[str, Floats]:
    """Plain mini-batch gradient descent on the cross entropy of a ReLU net; `rows` FP32[n, 64] in 0..1."""
    hidden = (rng.normal(size=(64, 64)) * math.sqrt(2 / 64)).astype(np.float32)
    out = (rng.normal(size=(64, 10)) * math.sqrt(1 / 64)).astype(np.float32)
    hidden_bias, out_bias = np.zeros(64, np.float32), np.zeros(10, np.float32)
    targets = np.eye(10, dtype=np.float32)[labels]
    for _ in range(epochs):
        order = rng.permutation(len(rows))
        for batch in np.array_split(order, math.ceil(len(rows) / 64)):
            active = np.maximum(rows[batch] @ hidden + hidden_bias, 0)
            error = (softmax(active @ out + out_bias) - targets[batch]) / len(batch)
            back = (error @ out.T) * (active > 0)
            out -= rate * (active.T @ error)
            out_bias -= rate * error.sum(axis=0)
            hidden -= rate * (rows[batch].T @ back)
            hidden_bias -= rate * back.sum(axis=0)
    return {"w1": hidden, "b1": hidden_bias, "w2": out, "b2": out_bias}


def softmax(logits: Floats) -> Floats:
    """Along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares
