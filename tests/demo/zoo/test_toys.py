"""The network that is trained on the spot has really learnt."""

import json
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from appliance.demo.zoo import toys


def grey(path: Path) -> npt.NDArray[np.generic]:
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    assert image is not None
    return image


def test_trained_digits_net_is_right_on_unseen_images(tmp_path: Path) -> None:
    """The digits net is right on at least 88 of 100 images that it has not seen, and its metadata says how to feed
    it.
    """
    made = toys.digits(tmp_path)
    samples = json.loads((made.evaluation / "truth.json").read_text())["samples"]
    images = np.stack([grey(made.evaluation / s["file"]) for s in samples])
    assert images.shape == (200, 8, 8)
    net = ort.InferenceSession(made.model, providers=["CPUExecutionProvider"])
    answers = net.run(None, {"image": images[:, None].astype(np.float32) / 255})[0].argmax(axis=1)
    labels = json.loads(made.metadata.read_text())["labels"]
    assert np.mean([labels[a] == s["label"] for a, s in zip(answers, samples, strict=True)]) >= 0.88
    assert len(list(made.calibration.glob("*.png"))) == 32
