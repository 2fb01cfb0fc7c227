"""Latency that the box adds to a bare server that receives a body in place and computes on its event loop, P50.

Asked: at most 0.3 ms, ShuffleNet and SqueezeNet with 600 kB of binary tensors, one connection. The bare server
(`_bare`) has the same session, options and event loop as the box, no routes, no keys and no checks. Both are asked by
one client in turns of a few requests; the medians of each pair of turns are compared.
With two and four connections the box is compared to one that computes nothing inline, in requests a second.
"""

import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from appliance.demo.zoo import toys
from benchmarks import _subjects as subjects
from benchmarks._bare import bare
from benchmarks._steal import undisturbed

PAIRS, REQUESTS, SECONDS, ROUNDS = 30, 10, 1.5, 5
INLINE_MS = "50"
"""Not the default, so that what is measured is the way of a request and not whether a busy machine's profile of it is
below 5 ms.
"""


def main() -> None:
    """Print the table."""
    for name in ("shufflenet", "squeezenet"):
        _compare(name)


def _compare(name: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        subjects.box(Path(folder) / "a", APPLIANCE_QUEUES__INLINE_MS_MAX=INLINE_MS) as box,
        subjects.box(Path(folder) / "b", APPLIANCE_QUEUES__INLINE_MS_MAX="0") as before,
    ):
        model: Path = getattr(toys, name)(Path(folder) / f"{name}.onnx")
        for one in (box, before):
            subjects.await_job(one, subjects.upload_large(one, name, model, precisions=["fp32"]))
        with box.http() as http:
            found = http.get(f"/v2/models/{name}").json()["inputs"]
            profile = http.get(f"/v1/models/{name}/variants").json()["items"][0]["profile"]
        print(f"{name}: {profile['latencies'][0]['p50_ms']:.2f} ms as profiled")
        rng = np.random.default_rng(1)
        arrays = {i["name"]: rng.random([max(1, d) for d in i["shape"]], np.float32) for i in found}
        requests = [subjects.infer_request(name, one.key, arrays) for one in (box, before)]
        (prepared,) = (box.state / "prepared").glob("*/*/model.onnx")
        with bare(prepared, len(requests[0])) as server, _connected(box.port, before.port, server.port) as lines:
            asked = list(zip(lines, (*requests, requests[0]), strict=True))
            for line, request in asked:
                _turn(line, request)
            rows = undisturbed(lambda: [_turn(line, request) for line, request in asked], PAIRS)
        for place, words in enumerate(("P50", "quickest of a turn")):
            turns = [[times[place] for times in row] for row in rows]
            ours, off, least = (statistics.median(row[i] for row in turns) for i in range(3))
            added = statistics.median(row[0] - row[2] for row in turns)
            added_off = statistics.median(row[1] - row[2] for row in turns)
            print(f"  {words}: box {ours:.2f} ms, never inline {off:.2f}, bare {least:.2f}")
            print(f"    added {added:+.2f} ms (asked ≤ 0.30), never inline {added_off:+.2f}", flush=True)
        for connections in (2, 4):

            def pair(connections: int = connections) -> float:
                counts = [
                    subjects.drive(one.port, [request], connections, SECONDS)["count"]
                    for one, request in zip((box, before), requests, strict=True)
                ]
                return float(counts[0] / counts[1])

            ratios = undisturbed(pair, ROUNDS, 60)
            print(f"  {connections} connections: requests/s against never inline {statistics.median(ratios):.2f}")


def _turn(line: socket.socket, request: bytes) -> tuple[float, float]:
    """Median and minimum of a few requests, ms: with neighbours on the machine the quickest says more."""
    times = []
    for _ in range(REQUESTS):
        start = time.perf_counter()
        subjects.ask(line, request)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


@contextmanager
def _connected(*ports: int) -> Iterator[list[socket.socket]]:
    lines = [socket.create_connection(("127.0.0.1", port)) for port in ports]
    try:
        for line in lines:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield lines
    finally:
        for line in lines:
            line.close()


if __name__ == "__main__":
    main()
