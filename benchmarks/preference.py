"""Requests a second of a ResNet-50 whose application prefers speed, against the same requests to fp32 by name.

Asked: at least 1.9. The network has its real weights and comes with labelled pictures, on which int8 earns its place;
only variants that have earned it are chosen from. Both are asked in turns from one process, on as many connections as
the box has workers, and the ratio is that of each pair of turns.
"""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import _box as boxes
from benchmarks import _resnet50 as resnet50
from benchmarks import _results as results
from tests.e2e.load import drive

ROUNDS, SECONDS = 7, 3.0


def main() -> None:
    """Print the table."""
    results.options(results.parser(__doc__))
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box, box.http() as http:
        archive = resnet50.upload(Path(folder) / "resnet50.zip")
        boxes.await_job(box, boxes.upload(box, "resnet50", archive, task="image-classification"))
        for variant in http.get("/v1/models/resnet50/variants").json()["items"]:
            profile, accuracy = variant["profile"], variant["accuracy"]
            results.row(
                variant["name"],
                P50_ms=profile["latencies"][0]["p50_ms"],
                accuracy=accuracy["value"],
                metric=accuracy["metric"],
                loses_at_most=variant["loss"],
                state=variant["state"],
            )
        for prefer in ("balanced", "speed"):
            found = http.patch("/v1/applications/resnet50", json={"prefer": prefer}).json()
            results.row(prefer, variants=", ".join(found["variants"]), choice=found["choice"])
        arrays = boxes.item(box, "resnet50")
        ours = boxes.infer_request("resnet50", box.key, arrays)
        pinned = boxes.infer_request("resnet50/versions/fp32", box.key, arrays)
        workers = int(http.get("/v1/processors").json()[0]["workers"])
        for request in (ours, pinned):
            drive(box.port, [request], workers, 2.0)
        time.sleep(1.0)
        rows = [[drive(box.port, [r], workers, SECONDS) for r in (ours, pinned)] for _ in range(ROUNDS)]
    speed_per_s, fp32_per_s = (statistics.median(row[at]["count"] / SECONDS for row in rows) for at in (0, 1))
    ratios = results.spread([ours["count"] / fp32["count"] for ours, fp32 in rows])
    results.row("prefers speed / fp32", speed_per_s=speed_per_s, fp32_per_s=fp32_per_s, **ratios, asked="≥ 1.9")


if __name__ == "__main__":
    main()
