"""A box that has answered many requests: what its process holds in memory before, on the way and after.

Asked: idle at most 110 MB; after a million requests at most 10 MB more. Memory as Pss, of a box with one tiny model,
over `/v2` and 16 connections.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from appliance.demo.zoo import toys
from benchmarks import _subjects as subjects

CONNECTIONS, STEPS, TURN_S, SETTLE_S = 16, 10, 10.0, 10.0


def main() -> None:
    """Print what it holds after each tenth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with subjects.box(state) as box:
            subjects.await_job(box, subjects.upload(box, "tiny", toys.tiny_add(Path(folder) / "tiny.onnx")))
        with subjects.box(state) as box:
            with box.http() as http:
                http.get("/v1/system").raise_for_status()  # what manages the box comes after its start, and stays
                inputs = http.get("/v2/models/tiny").json()["inputs"]
            arrays = {i["name"]: np.zeros([max(1, d) for d in i["shape"]], np.float32) for i in inputs}
            request = subjects.infer_request("tiny", box.key, arrays)
            time.sleep(SETTLE_S)
            idle_mb, answered = box.pss_mb(), 0
            print(f"idle {idle_mb:.1f} MB (asked ≤ 110)", flush=True)
            for step in range(1, STEPS + 1):
                while answered < options.requests * step // STEPS:
                    result = subjects.drive(box.port, [request], CONNECTIONS, TURN_S)
                    answered += int(result["count"])
                print(f"{answered:8} requests: {box.pss_mb() - idle_mb:+.1f} MB", flush=True)
    print("asked after a million: at most +10 MB")


if __name__ == "__main__":
    main()
