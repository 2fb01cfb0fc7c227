"""Requests a second through the box as a share of what sessions do in a process without one, on the same cores.

Asked: ShuffleNet at least 0.90, ResNet-50 0.97, 600 kB of binary tensors over TCP at 4 and 8 connections, the client on
the same cores. Raw is the best of one session on all cores, and a thread a core with a session each or one for all.
The bare server (`_bare`, a thread a core) is the least in Python that takes these requests: no parsing, no keys, no
tenants. Rounds alternate, those that lost processor time to others are left out; the median of their ratios counts.
Where the rest goes is said by the processor time of a request: of the threads that run it, against a run without a
server, of the event loop, of the client, and what is left idle.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from benchmarks import _subjects as subjects
from benchmarks import _zoo as zoo
from benchmarks._bare import bare
from benchmarks._steal import undisturbed

CORES = os.cpu_count() or 1
Ways = dict[str, list[Callable[[], Any]]]
"""Name → what each of its threads does again and again."""


class Spent(NamedTuple):
    """Where the processor time of a request goes, milliseconds. `raw`: of a run without a server."""

    raw_ms: float
    runs_ms: float
    loop_ms: float
    client_ms: float
    idle_ms: float

    def __str__(self) -> str:
        return (
            f"ms of a request: run {self.runs_ms:.2f} (without a server {self.raw_ms:.2f}), event loop "
            f"{self.loop_ms:.2f}, client {self.client_ms:.2f}, idle {self.idle_ms:.2f}"
        )


def main() -> None:
    """Print a line for each network and number of connections."""
    parser = argparse.ArgumentParser(prog="scripts/bench raw_share", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--network", action="append", choices=["shufflenet", "resnet50"])
    options = parser.parse_args()
    print(zoo.machine())
    set_up()
    for name in options.network or ["shufflenet", "resnet50"]:
        _compare(name, options.rounds, options.seconds)


def _compare(name: str, rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, subjects.box(Path(folder) / "state") as box:
        model: Path = getattr(toys, name)(Path(folder) / f"{name}.onnx")
        subjects.await_job(box, subjects.upload_large(box, name, model, precisions=["fp32"]))
        with box.http() as http:
            found = http.get(f"/v2/models/{name}").json()["inputs"]
        rng = np.random.default_rng(1)
        arrays = {i["name"]: rng.random([max(1, d) for d in i["shape"]], np.float32) for i in found}
        request = subjects.infer_request(name, box.key, arrays)
        (prepared,) = (box.state / "prepared").glob("*/*/model.onnx")
        ways = _ways(PreparedForm(name, str(prepared), 0, optimised=True), arrays)
        raw_of = {way: _rate(calls, seconds / 2) for way, calls in ways.items()}
        best = max(raw_of, key=lambda way: raw_of[way])
        print(f"{name}: raw " + ", ".join(f"{way} {rate:.1f}/s" for way, rate in raw_of.items()))
        with bare(prepared, len(request), CORES) as server:
            for connections in (4, 8):

                def turn(connections: int = connections) -> list[tuple[float, Spent]]:
                    used_s = time.process_time()
                    raw = _rate(ways[best], seconds)
                    raw_ms = (time.process_time() - used_s) * 1e3 / (raw * seconds)
                    servers = (box.port, box.process.pid), server
                    driven = [_driven(*one, request, connections, seconds, raw_ms) for one in servers]
                    return [(rate / raw, spent) for rate, spent in driven]

                rows = undisturbed(turn, rounds)
                for who, own in zip(("box", "bare server"), zip(*rows, strict=True), strict=True):
                    shares, spent = zip(*own, strict=True)
                    print(
                        f"  {connections} connections, {who}: {statistics.median(shares):.3f} of raw, "
                        f"{min(shares):.3f} to {max(shares):.3f}; "
                        f"{Spent(*map(statistics.median, zip(*spent, strict=True)))}",
                        flush=True,
                    )


def _driven(
    port: int, pid: int, request: bytes, connections: int, seconds: float, raw_ms: float
) -> tuple[float, Spent]:
    """Requests a second of a server, and where its time went."""
    before_ms = subjects.thread_ms(pid)
    driven = subjects.drive(port, [request], connections, seconds)
    count = driven["count"]
    used_ms = {at: (ms - before_ms.get(at, 0.0)) / count for at, ms in subjects.thread_ms(pid).items()}
    loop_ms = used_ms.pop(pid)
    runs_ms, client_ms = sum(used_ms.values()), driven["processor_s"] * 1e3 / count
    idle_ms = CORES * driven["seconds"] * 1e3 / count - runs_ms - loop_ms - client_ms
    return count / driven["seconds"], Spent(raw_ms, runs_ms, loop_ms, client_ms, idle_ms)


def _ways(form: PreparedForm, arrays: dict[str, np.ndarray]) -> Ways:
    one, wide = OnnxSessions(1), OnnxSessions(CORES)
    loaded = [one.load(form) for _ in range(CORES)]
    widest = wide.load(form)
    return {
        "a session a core": [lambda each=each: one.run(each, arrays, None) for each in loaded],  # type: ignore[misc]
        "a thread a core": [lambda: one.run(loaded[0], arrays, None)] * CORES,
        "all cores a run": [lambda: wide.run(widest, arrays, None)],
    }


def _rate(calls: list[Callable[[], Any]], seconds: float) -> float:
    """Calls a second of all threads."""
    counts: list[int] = []

    def work(call: Callable[[], Any]) -> None:
        flush_subnormals()
        count = 0
        while time.perf_counter() < until:
            call()
            count += 1
        counts.append(count)

    start = time.perf_counter()
    until = start + seconds
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
