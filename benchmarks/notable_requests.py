"""`/v2` infer of a tiny model over 16 connections, with notes on requests and without; with the history, too.

Asked: at least 0.98 of the requests per second. Rounds alternate between two boxes; the median ratio counts. What the
history does every ten seconds and every minute falls into some rounds and not into others: take many, or long ones.
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from appliance.demo.zoo import toys
from benchmarks import _subjects as subjects

CONNECTIONS = 16
OFF = {"APPLIANCE_REQUESTS__NOTABLE_PER_APPLICATION": "0"}
HISTORY_OFF = {"APPLIANCE_HISTORY__DAYS": "0"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", action="store_true", help="the other box keeps no history either")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    off = OFF | (HISTORY_OFF if options.history else {})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = toys.tiny_add(Path(folder) / "tiny.onnx")
        ports = []
        for settings in ({}, off):
            box = stack.enter_context(subjects.box(**settings))
            subjects.await_job(box, subjects.upload(box, "tiny", model))
            with box.http() as http:
                inputs = http.get("/v2/models/tiny").json()["inputs"]
            arrays = {i["name"]: np.zeros([max(1, d) for d in i["shape"]], np.float32) for i in inputs}
            ports.append((box.port, box.process.pid, subjects.infer_request("tiny", box.key, arrays)))
        rounds = []
        for number in range(options.rounds):
            order = (0, 1) if number % 2 else (1, 0)
            found = {at: subjects.rate(*ports[at], CONNECTIONS, options.seconds) for at in order}
            rounds.append((found[0], found[1]))
    for (on, on_us), (without, off_us) in rounds:
        print(
            f"with {on:8.0f}/s ({on_us:4.0f} µs CPU)   without {without:8.0f}/s ({off_us:4.0f} µs)   {on / without:.3f}"
        )
    median = statistics.median(on / without for (on, _), (without, _) in rounds)
    by_cpu = statistics.median(off_us / on_us for (_, on_us), (_, off_us) in rounds)
    print(f"median ratio {median:.3f} (asked ≥ 0.98), by processor time {by_cpu:.3f}")


if __name__ == "__main__":
    main()
