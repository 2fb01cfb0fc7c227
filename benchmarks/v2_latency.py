"""Latency that the box adds to `session.run` at concurrency 1: SqueezeNet, binary tensors in and out, same threads,
P50.

Asked: at most 0.8 ms. The in-process session has the options of serving. The two take turns of a few requests each, so
that both see the same machine; the client is a blocking socket. `inside` is what the box itself says its run took: the
rest is the way there and back.
"""

import re
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxSessions
from benchmarks import _subjects as subjects

ROUNDS, TURNS, REQUESTS = 7, 8, 10


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
        rows = [_round(box.port, request, lambda: sessions.run(loaded, arrays, None)) for _ in range(ROUNDS)]
    for ours, inside, alone in rows:
        print(f"box {ours:.2f} ms (inside {inside:.2f})   session.run {alone:.2f} ms   added {ours - alone:.2f} ms")
    print(f"median added {statistics.median(a - b for a, _, b in rows):.2f} ms (asked ≤ 0.80)")


def _round(port: int, request: bytes, run: Callable[[], object]) -> tuple[float, float, float]:
    """Medians, ms: an answer of the box, its own run inside, a run of the session in this process."""
    ours: list[float] = []
    inside: list[float] = []
    alone: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(TURNS):
            for _ in range(REQUESTS):
                start = time.perf_counter()
                head = subjects.ask(connection, request)
                ours.append((time.perf_counter() - start) * 1e3)
                inside.append(float(re.search(rb"compute;dur=([0-9.]+)", head)[1]))  # type: ignore[index]
            for _ in range(REQUESTS):
                start = time.perf_counter()
                run()
                alone.append((time.perf_counter() - start) * 1e3)
    return statistics.median(ours), statistics.median(inside), statistics.median(alone)


def _single(box: subjects.LiveBox) -> bool:
    return len(list((box.state / "prepared").glob("*/*/model.onnx"))) == 1


if __name__ == "__main__":
    main()
