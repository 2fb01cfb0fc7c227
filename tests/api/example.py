"""The archive that the box offers as an example of what an import takes: `python -m tests.api.example` writes it anew.

A network that says which of three colours fills most of a picture. Its weights are known, so nothing is trained.
"""

import io
import json
import zipfile
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from appliance.api.pages import EXAMPLE
from appliance.demo.zoo import graphs

Picture = npt.NDArray[np.uint8]
COLOURS = {"red": (220, 60, 50), "green": (60, 190, 80), "blue": (50, 90, 220)}
"""RGB."""
SIDE = 32
CALIBRATION, EVALUATION = 12, 30
"""Pictures; with 30 labelled ones the box can tell two variants apart."""
METADATA = {
    "task": "image-classification",
    "decoder": "probabilities",
    "image": {"channels": "RGB", "mean": [0], "std": [255], "resize": "stretch"},
    "precisions": ["fp32"],
}
README = """An example of what the box imports. It says which colour fills most of a picture.

model.onnx              the network: image FP32[N, 3, 32, 32] to probabilities FP32[N, 3]
metadata.json           what it does, and how a picture becomes a tensor: (pixel - mean) / std;
                        precisions: fp32 alone, for less of so small a network gains nothing
labels.txt              names of its classes, one a line
calibration/            pictures like those of real use, for int8
evaluation/             labelled pictures, on which the box measures the accuracy of each variant
evaluation/truth.json   the label of each

Only model.onnx is needed. Put your own files in their places, and pack them as they are here (zip or tar).
"""


def files() -> dict[str, bytes]:
    """Name of each file of the archive to its content."""
    rng = np.random.default_rng(7)
    made = {
        "README.txt": README.encode(),
        "labels.txt": "".join(f"{name}\n" for name in COLOURS).encode(),
        "metadata.json": f"{json.dumps(METADATA, indent=2)}\n".encode(),
        "model.onnx": _network(),
    }
    names = [list(COLOURS)[at % len(COLOURS)] for at in range(CALIBRATION + EVALUATION)]
    pictures = [_png(_picture(rng, name)) for name in names]
    for at, content in enumerate(pictures[:CALIBRATION]):
        made[f"calibration/{at:02}.png"] = content
    samples = []
    for at, (name, content) in enumerate(zip(names[CALIBRATION:], pictures[CALIBRATION:], strict=True)):
        made[f"evaluation/{at:02}.png"] = content
        samples.append({"file": f"{at:02}.png", "label": name})
    made["evaluation/truth.json"] = f"{json.dumps({'samples': samples}, indent=1)}\n".encode()
    return made


def packed(made: dict[str, bytes]) -> bytes:
    """Return a zip of the files, all of the same date."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in made.items():
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED, 9)
    return content.getvalue()


def _network() -> bytes:
    """Return the mean of each channel, sharpened."""
    graph = graphs.Graph()
    graph.constant("sharp", np.eye(len(COLOURS), dtype=np.float32) * np.float32(12))
    mean = graph.add("Flatten", [graph.add("GlobalAveragePool", ["image"], "mean")], "channels", axis=1)
    graph.add("Softmax", [graph.add("MatMul", [mean, "sharp"], "logits")], "probabilities", axis=1)
    sides = {"image": ("N", 3, SIDE, SIDE)}, {"probabilities": ("N", len(COLOURS))}
    return graph.model("colours", *sides).SerializeToString(deterministic=True)


def _picture(rng: np.random.Generator, name: str) -> Picture:
    """Return a picture that is filled with a colour but for a patch of another one."""
    other = str(rng.choice([one for one in COLOURS if one != name]))
    picture = np.full((SIDE, SIDE, 3), COLOURS[name], np.uint8)
    left, top = (int(value) for value in rng.integers(0, SIDE // 2, 2))
    width, height = (int(value) for value in rng.integers(SIDE // 4, SIDE // 2, 2))
    picture[top : top + height, left : left + width] = COLOURS[other]
    return picture


def _png(picture: Picture) -> bytes:
    done, content = cv2.imencode(".png", picture[:, :, ::-1])
    assert done
    return content.tobytes()


if __name__ == "__main__":
    Path(EXAMPLE).write_bytes(packed(files()))
