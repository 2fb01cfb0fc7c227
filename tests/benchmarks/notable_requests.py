"""`/v2` infer of a tiny model over 16 connections, with notes on requests and without.

Asked: at least 0.98 of the requests per second. Rounds alternate between two boxes; the median ratio counts.
"""

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from appliance.demo.zoo import toys
from tests.benchmarks import _subjects as subjects

ROUNDS, SECONDS, CONNECTIONS = 7, 3.0, 16


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = toys.tiny_add(Path(folder) / "tiny.onnx")
        ports = []
        for kept in ("64", "0"):
            box = stack.enter_context(subjects.box(APPLIANCE_REQUESTS__NOTABLE_PER_APPLICATION=kept))
            subjects.await_job(box, subjects.upload(box, "tiny", model))
            with box.http() as http:
                inputs = http.get("/v2/models/tiny").json()["inputs"]
            arrays = {i["name"]: np.zeros([max(1, d) for d in i["shape"]], np.float32) for i in inputs}
            ports.append((box.port, box.process.pid, subjects.infer_request("tiny", box.key, arrays)))
        rounds = []
        for number in range(ROUNDS):
            order = (0, 1) if number % 2 else (1, 0)
            found = {at: subjects.rate(*ports[at], CONNECTIONS, SECONDS) for at in order}
            rounds.append((found[0], found[1]))
    for (on, on_us), (off, off_us) in rounds:
        print(f"notes {on:8.0f}/s ({on_us:4.0f} µs CPU)   none {off:8.0f}/s ({off_us:4.0f} µs)   ratio {on / off:.3f}")
    median = statistics.median(on / off for (on, _), (off, _) in rounds)
    by_cpu = statistics.median(off_us / on_us for (_, on_us), (_, off_us) in rounds)
    print(f"median ratio {median:.3f} (asked ≥ 0.98), by processor time {by_cpu:.3f}")


if __name__ == "__main__":
    main()
