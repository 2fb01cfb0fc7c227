"""Latency that the box adds to `session.run` at concurrency 1: SqueezeNet, binary tensors in and out, same threads, P50.

Asked: at most 0.8 ms. The in-process session has the options of serving; rounds alternate.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.onnx import OnnxSessions
from appliance.zoo import toys
from tests.benchmarks import _subjects as subjects

ROUNDS, RUNS = 7, 100


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, subjects.box() as box:
        model = toys.squeezenet(Path(folder) / "squeezenet.onnx")
        subjects.await_job(box, subjects.upload(box, "squeezenet", model))
        with box.http() as http:
            inputs = http.get("/v2/models/squeezenet/versions/fp32").json()["inputs"]
        rng = np.random.default_rng(1)
        arrays = {i["name"]: rng.random([max(1, d) for d in i["shape"]], np.float32) for i in inputs}
        request = subjects.infer_request("squeezenet/versions/fp32", box.key, arrays)
        sessions = OnnxSessions(1)
        (prepared,) = (box.state / "prepared").glob("*/*/model.onnx") if _single(box) else (None,)
        form = PreparedForm("in-process", str(prepared or model), 0, optimised=prepared is not None)
        loaded = sessions.load(form)
        rows = []
        for _ in range(ROUNDS):
            ours = subjects.drive(box.port, [request], 1, RUNS * 0.01)["p50_ms"]
            times = []
            for _ in range(RUNS):
                start = time.perf_counter()
                sessions.run(loaded, arrays, None)
                times.append((time.perf_counter() - start) * 1e3)
            rows.append((ours, statistics.median(times)))
            print(
                f"box {rows[-1][0]:.2f} ms   session.run {rows[-1][1]:.2f} ms   added {rows[-1][0] - rows[-1][1]:.2f} ms"
            )
    print(f"median added {statistics.median(a - b for a, b in rows):.2f} ms (asked ≤ 0.80)")


def _single(box: subjects.LiveBox) -> bool:
    return len(list((box.state / "prepared").glob("*/*/model.onnx"))) == 1


if __name__ == "__main__":
    main()
