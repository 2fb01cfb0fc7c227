"""A labelled task that is learnt in the test: 8 x 8 pictures of five strokes in noise, and networks that tell them
apart.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
from onnx import ModelProto

from appliance.domain.catalogue import TaskKind, TaskSpec
from tests.modelstore import networks

CLASSES = 5
HIDDEN = 24
SIDE = 8


def strokes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(pictures float32[count, 64], labels int64[count]): a row, a column, two diagonals or a blob, moved and in
    noise.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    pictures = rng.normal(0, 0.25, (count, SIDE, SIDE))
    for picture, label in zip(pictures, labels, strict=True):
        at = int(rng.integers(1, SIDE - 2))
        if label == 0:
            picture[at] += 1
        elif label == 1:
            picture[:, at] += 1
        elif label < 4:
            picture += np.roll(np.eye(SIDE), at, 1)[:: 1 if label == 2 else -1]
        else:
            picture[at : at + 2, at : at + 2] += 2
    return pictures.reshape(count, -1).astype(np.float32), labels


@cache
def trained(seed: int = 0, steps: int = 250) -> ModelProto:
    """A net of two Gemms, trained by gradient descent; free batch, logits out.

    One object for all tests: not to be changed.
    """
    rng = np.random.default_rng(seed)
    x, labels = strokes(2000, seed)
    truth = np.eye(CLASSES)[labels]
    w1, b1 = rng.normal(0, 0.15, (SIDE * SIDE, HIDDEN)), np.zeros(HIDDEN)
    w2, b2 = rng.normal(0, 0.2, (HIDDEN, CLASSES)), np.zeros(CLASSES)
    for _ in range(steps):
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = np.exp(hidden @ w2 + b2)
        error = (scores / scores.sum(1, keepdims=True) - truth) / len(x)
        back = (error @ w2.T) * (hidden > 0)
        w2, b2 = w2 - hidden.T @ error, b2 - error.sum(0)
        w1, b1 = w1 - x.T @ back, b1 - back.sum(0)
    weights = {name: np.asarray(value, np.float32) for name, value in {"w1": w1, "b1": b1, "w2": w2, "b2": b2}.items()}
    nodes = "h = Gemm(x, w1, b1) r = Relu(h) y = Gemm(r, w2, b2)"
    return networks.model(nodes, {"x": ("n", SIDE * SIDE)}, {"y": ("n", CLASSES)}, weights)


TENSOR = TaskSpec(TaskKind.TENSOR)


def labelled_folder(folder: Path, count: int = 60, seed: int = 9) -> str:
    """An evaluation folder of .npz files with truth.json."""
    folder.mkdir(parents=True)
    x, labels = strokes(count, seed)
    samples = []
    for number, (row, label) in enumerate(zip(x, labels, strict=True)):
        np.savez(folder / f"{number:03}.npz", x=row[None])
        samples.append({"file": f"{number:03}.npz", "label": int(label)})
    (folder / "truth.json").write_text(json.dumps({"samples": samples}))
    return str(folder)


def unlabelled_files(folder: Path, count: int = 12, seed: int = 5) -> tuple[str, ...]:
    """Calibration inputs as .npz files."""
    folder.mkdir(parents=True)
    for number, row in enumerate(strokes(count, seed)[0]):
        np.savez(folder / f"{number:03}.npz", x=row[None])
    return tuple(map(str, sorted(folder.iterdir())))


def pictures(folder: Path, count: int = 6, seed: int = 3) -> tuple[str, ...]:
    """Colour pictures of blocks as PNG files."""
    import cv2

    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for number in range(count):
        coarse = rng.integers(0, 256, (9, 12, 3), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), coarse.repeat(10, 0).repeat(10, 1))
    return tuple(map(str, sorted(folder.iterdir())))
