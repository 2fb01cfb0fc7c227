"""Requests a second of a ResNet-50 that may be answered by any variant, against the same requests to fp32 by name.

Asked: at least 1.9. Both are asked in turns from one process, on as many connections as the box has workers, and the
ratio is that of each pair of turns. ShuffleNet, whose int8 is slower here, is to stay with fp32.

Both come with pictures, on which int8 earns its place. The weights are random: what it loses says nothing of real ones.
"""

import io
import statistics
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _box as boxes
from benchmarks import _results as results
from tests import toys
from tests.e2e.load import drive

ROUNDS, SECONDS = 7, 3.0
PICTURES = 16


def pictures() -> bytes:
    """A zip of inputs: pictures of noise in blocks, as tensors of one item."""
    rng = np.random.default_rng(5)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(PICTURES):
            blocks = [rng.normal(size=(3, 224 // n, 224 // n)).repeat(n, 1).repeat(n, 2) for n in (1, 4, 16, 56)]
            tensors: dict[str, Any] = {"gpu_0/data_0": (np.sum(blocks, 0) / 2)[None].astype(np.float32)}
            array = io.BytesIO()
            np.savez(array, **tensors)
            archive.writestr(f"{number:02}.npz", array.getvalue())
    return target.getvalue()


def main() -> None:
    """Print the table."""
    results.options(results.parser(__doc__))
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box, box.http() as http:
        for name, make in (("resnet50", toys.resnet50), ("shufflenet", toys.shufflenet)):
            boxes.await_job(box, boxes.upload(box, name, make(Path(folder) / f"{name}.onnx"), calibration=pictures()))
            for variant in http.get(f"/v1/models/{name}/variants").json()["items"]:
                profile, accuracy = variant["profile"], variant["accuracy"]
                results.row(
                    f"{name} {variant['name']}",
                    P50_ms=profile["latencies"][0]["p50_ms"],
                    accuracy=accuracy["value"],
                    metric=accuracy["metric"],
                    loses_at_most=variant["loss"],
                    state=variant["state"],
                )
            found = http.get(f"/v1/applications/{name}").json()
            results.row(name, variants=", ".join(found["variants"]), choice=found["choice"])
        arrays = boxes.item(box, "resnet50")
        ours = boxes.infer_request("resnet50", box.key, arrays)
        pinned = boxes.infer_request("resnet50/versions/fp32", box.key, arrays)
        workers = int(http.get("/v1/processors").json()[0]["workers"])
        for request in (ours, pinned):
            drive(box.port, [request], workers, 2.0)
        time.sleep(1.0)
        rows = [[drive(box.port, [r], workers, SECONDS) for r in (ours, pinned)] for _ in range(ROUNDS)]
    any_per_s, fp32_per_s = (statistics.median(row[at]["count"] / SECONDS for row in rows) for at in (0, 1))
    ratios = results.spread([ours["count"] / fp32["count"] for ours, fp32 in rows])
    results.row("any variant / fp32", any_per_s=any_per_s, fp32_per_s=fp32_per_s, **ratios, asked="≥ 1.9")


if __name__ == "__main__":
    main()
