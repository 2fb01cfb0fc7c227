"""A network that is trained on the spot, without any download: it reads drawn numerals."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.demo.zoo import graphs

Floats = npt.NDArray[np.float32]

DIGIT_SIDE = 8
"""Height and width of a digit image in pixels."""
DIGIT_CLASSES = tuple("0123456789")


def _write(graph: onnx.GraphProto, path: Path) -> Path:
    return graphs.save(graphs.model_of(graph), path)


@dataclass(frozen=True)
class Digits:
    """What `digits` leaves in its folder."""

    model: Path
    metadata: Path
    """JSON in the words of `TaskSpec`."""
    calibration: Path
    """Folder of images the net was trained on."""
    evaluation: Path
    """Folder of held-out images with `truth.json`."""


def digits(folder: Path, seed: int = 7) -> Digits:
    """A 64-64-10 net trained here (about a second) on drawn digits; input `image` FP32[N, 1, 8, 8] in 0..1, output
    `probabilities` FP32[N, 10].

    The pictures are the ten numerals in several line fonts, slanted, shifted, of uneven thickness and noisy; held-out
    top-1 is above 0.9.
    """
    rng = np.random.default_rng(seed)
    images, labels = draw_digits(rng, 1800)
    held_out_images, held_out_labels = draw_digits(rng, 200)
    weights = train(images.reshape(len(images), -1).astype(np.float32) / np.float32(255), labels, rng)
    made = Digits(folder / "digits.onnx", folder / "metadata.json", folder / "calibration", folder / "evaluation")
    _write(_digits_graph(weights), made.model)
    made.metadata.write_text(json.dumps(DIGITS_METADATA))
    _save_images(made.calibration, images[:32], labels[:32])
    _save_images(made.evaluation, held_out_images, held_out_labels)
    return made


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
    import cv2

    small = cv2.resize(hand(numeral, rng), (DIGIT_SIDE, DIGIT_SIDE), interpolation=cv2.INTER_AREA)
    noisy: npt.NDArray[np.uint8] = np.clip(small + rng.normal(0, 12, small.shape), 0, 255).astype(np.uint8)
    return noisy


def hand(numeral: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One numeral on 64x64 in a random hand, white on black."""
    import cv2

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


@dataclass(frozen=True)
class DigitWeights:
    """Two dense layers: FP32 [64, 64], [64], [64, 10], [10]."""

    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats


def train(
    rows: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator, epochs: int = 60, rate: float = 0.3
) -> DigitWeights:
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
    return DigitWeights(hidden, hidden_bias, out, out_bias)


def softmax(logits: Floats) -> Floats:
    """Along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _digits_graph(weights: DigitWeights) -> onnx.GraphProto:
    constants = {"w1": weights.hidden, "b1": weights.hidden_bias, "w2": weights.out, "b2": weights.out_bias}
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"], "flatten", axis=1),
        helper.make_node("Gemm", ["flat", "w1", "b1"], ["h"], "hidden"),
        helper.make_node("Relu", ["h"], ["a"], "relu"),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], "out"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, DIGIT_SIDE, DIGIT_SIDE])
    answer = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", len(DIGIT_CLASSES)])
    return helper.make_graph(
        nodes, "digits", [image], [answer], [numpy_helper.from_array(v, k) for k, v in constants.items()]
    )


def _save_images(folder: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> None:
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    samples = [{"file": f"{index:04}.png", "label": DIGIT_CLASSES[label]} for index, label in enumerate(labels)]
    for image, sample in zip(images, samples, strict=True):
        (folder / sample["file"]).write_bytes(cv2.imencode(".png", image)[1].tobytes())
    (folder / "truth.json").write_text(json.dumps({"samples": samples}))
