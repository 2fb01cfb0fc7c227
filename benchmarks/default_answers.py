"""What a box answers by default after a plain import of real networks, against ONNX Runtime on the uploaded file.

Each is uploaded as one file without samples, every variant is made.

Asked: none is outside its tolerance, an error of 0.1 % of the output's norm. Networks: those of the demo, and .onnx
files of the folders that are named. Inputs are drawn as trial runs draw them, other ones than the import's.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from appliance.demo.zoo import default_folder, fetch
from appliance.domain.catalogue import TaskSpec
from appliance.modelstore.orders import Inspection, InspectOrder
from appliance.modelstore.stages.feeds import synthetic
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.running import largest_error
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks.operators import read

ERROR_MAX = 1e-3
SEEDS = range(100, 105)
AT_ONCE = 4


def main() -> None:
    """Print a line for each network, and how many answered otherwise than the original."""
    parser = results.parser(__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    chosen = results.options(parser)
    ort.set_default_logger_severity(4)
    of_demo = [model.model for model in fetch("demo", default_folder(), lambda *progress: None).models]
    files = list(distinct([*of_demo, *(one for each in chosen.folders for one in sorted(each.rglob("*.onnx")))]))
    outside, refused = [], []
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box, box.http() as http:
        for start in range(0, len(files), AT_ONCE):
            names = {f"net-{start + at}": path for at, path in enumerate(files[start : start + AT_ONCE])}
            jobs = {name: boxes.upload(box, name, path) for name, path in names.items()}
            for name, path in names.items():
                try:
                    boxes.await_job(box, jobs[name])
                except RuntimeError as error:
                    refused.append(path.name)
                    results.row(path.name, refused=str(error))
                    continue
                found = inspect(InspectOrder(str(path), f"{folder}/{name}"), lambda share, words: None)
                off, answered = worst(http, name, path, found)
                made = [one["name"] for one in http.get(f"/v1/models/{name}/variants").json()["items"]]
                results.row(path.name, error=f"{off:.1e}", answered=", ".join(sorted(answered)), of=", ".join(made))
                if not off <= ERROR_MAX:
                    outside.append(path.name)
                http.delete(f"/v1/models/{name}")
    results.row("all networks", count=len(files), refused=len(refused), outside=len(outside), asked="none outside")


def distinct(paths: list[Path]) -> Iterator[Path]:
    """Each network once, whatever its file is called."""
    seen = set()
    for path in paths:
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest not in seen:
            seen.add(digest)
            yield path


def worst(http: Any, name: str, path: Path, found: Inspection) -> tuple[float, set[str]]:
    """The largest relative error of any answer, and which variants answered."""
    session = boxes.plain_session(path)
    outputs = [one.name for one in session.get_outputs()]
    task = TaskSpec(index_limits=found.index_limits, examples=found.examples, defaults=found.defaults)
    error, answered = 0.0, set()
    for seed in SEEDS:
        feeds: Mapping[str, np.ndarray] = synthetic(found.inputs, found.axes, task, found.trial, seed)
        answer = boxes.infer(http, name, boxes.infer_body(feeds))
        length = int(answer.headers["Inference-Header-Content-Length"])
        answered.add(str(json.loads(answer.content[:length])["parameters"]["variant"]))
        wanted = dict(zip(outputs, session.run(outputs, dict(feeds)), strict=True))
        error = max(error, largest_error(read(answer, outputs), wanted))
    return error, answered


if __name__ == "__main__":
    main()
