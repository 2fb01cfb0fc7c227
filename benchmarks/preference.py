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

from appliance.demo.zoo import toys
from benchmarks import _box as boxes
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
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box, box.http() as http:
        for name, make in (("resnet50", toys.resnet50), ("shufflenet", toys.shufflenet)):
            boxes.await_job(
                box, boxes.upload_large(box, name, make(Path(folder) / f"{name}.onnx"), calibration=pictures())
            )
            for variant in http.get(f"/v1/models/{name}/variants").json()["items"]:
                profile, accuracy = variant["profile"], variant["accuracy"]
                print(
                    f"{name} {variant['name']}: {profile['latencies'][0]['p50_ms']:.1f} ms, {accuracy['metric']} "
                    f"{accuracy['value']:.4f}, loses at most {variant['loss']}, {variant['state']}"
                )
            found = http.get(f"/v1/applications/{name}").json()
            print(f"{name}: {', '.join(found['variants'])}: {found['choice']}")
        inputs = http.get("/v2/models/resnet50").json()["inputs"]
        arrays = {i["name"]: np.zeros([max(1, d) for d in i["shape"]], np.float32) for i in inputs}
        ours = boxes.infer_request("resnet50", box.key, arrays)
        pinned = boxes.infer_request("resnet50/versions/fp32", box.key, arrays)
        workers = int(http.get("/v1/processors").json()[0]["workers"])
        for request in (ours, pinned):
            drive(box.port, [request], workers, 2.0)
        time.sleep(1.0)
        rows = [[drive(box.port, [r], workers, SECONDS) for r in (ours, pinned)] for _ in range(ROUNDS)]
    ratios = [ours["count"] / fp32["count"] for ours, fp32 in rows]
    for (one, other), ratio in zip(rows, ratios, strict=True):
        print(
            f"any {one['count'] / one['seconds']:.1f}/s   fp32 {other['count'] / other['seconds']:.1f}/s   {ratio:.2f}"
        )
    print(f"median ratio {statistics.median(ratios):.2f} (asked ≥ 1.9)")


if __name__ == "__main__":
    main()
