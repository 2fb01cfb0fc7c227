"""A small network that OpenVINO does not run whole: in parts on both kinds of processors against whole on ONNX Runtime.

Two boxes with the same import take turns: one has both kinds, and serves it in parts; the other has `cpu` only.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import _subjects as subjects
from benchmarks.kinds import BOTH, compare
from tests.modelstore.networks import normalised, write

ITEM = {"x": np.zeros((1, 3, 64, 64), np.float32)}


def main() -> None:
    """Print the run times of its parts, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--wait-s", type=float, default=300.0, help="until it is cut")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state, other = Path(folder) / "state", Path(folder) / "state-cpu"
        with subjects.box(state, APPLIANCE_PROCESSORS=BOTH, APPLIANCE_IMPORTS__PART_OPS_MIN="1") as box:
            source = Path(write(normalised(), Path(folder)))
            subjects.await_job(box, subjects.upload(box, "net", source, precisions=[]))
            _await_parts(box, options.wait_s)
        shutil.copytree(state, other)
        options.models = ["net"]
        with subjects.box(state, APPLIANCE_PROCESSORS=BOTH) as both, subjects.box(other) as cpu:
            for connections in options.connections:
                print(f"connections: {connections}")
                compare(both, cpu, {"net": [ITEM]}, argparse.Namespace(**{**vars(options), "connections": connections}))


def _await_parts(box: subjects.LiveBox, wait_s: float) -> None:
    """Raises: RuntimeError where it serves whole for so long."""
    limit = time.perf_counter() + wait_s
    with box.http() as http:
        while time.perf_counter() < limit:
            (variant,) = http.get("/v1/models/net").json()["variants"]
            if variant["serves_on"] == "cpu+openvino":
                for part in variant["cut"]["parts"]:
                    times = ", ".join(f"{one['kind']} {one['times'][0]['p50_ms']:.2f} ms" for one in part["profiles"])
                    print(f"{part['op_types']}: {times}; serves on {part['serves_on'][0]}")
                return
            time.sleep(0.5)
    raise RuntimeError("it serves whole")


if __name__ == "__main__":
    main()
