"""Tensors in shared memory: latency that the box adds to `session.run`, and its share of what the cores can compute.

ShuffleNet, 600 kB in and 4 kB out, both in shared memory objects; by TCP and by the Unix socket, and for comparison
with the same tensors in the body. Asked: alone at most 0.25 ms more than the run in all; saturated by 4 to 8
connections at least 0.95 of what two threads of one process run with nothing else to do. Both sides use the same
prepared form, options and threads, and go in turns; medians of the differences and ratios of each turn count.
"""

import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from tests.benchmarks import _subjects as subjects

TURNS, REQUESTS, SECONDS, ROUNDS = 30, 10, 2.0, 5
INLINE_MS = "50"
"""So that a run alone is inline, however long a busy machine has made its profile."""
CORES = 2
WAYS = ("shared memory over TCP", "shared memory over the Unix socket", "in the body over TCP")


def main() -> None:
    """With `alone` or `saturated`: only that half."""
    set_up()
    flush_subnormals()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "box.sock"
        settings = {"SHARED_MEMORY": "true", "UNIX_SOCKET": str(path)}
        environment = {f"APPLIANCE_HTTP__{name}": value for name, value in settings.items()}
        environment["APPLIANCE_QUEUES__INLINE_MS_MAX"] = INLINE_MS
        box = stack.enter_context(subjects.box(Path(folder) / "state", **environment))
        model = toys.shufflenet(Path(folder) / "shufflenet.onnx")
        subjects.await_job(box, subjects.upload_large(box, "shufflenet", model, precisions=["fp32"]))
        (prepared,) = (box.state / "prepared").glob("*/*/model.onnx")
        sessions = OnnxSessions(1)
        loaded = sessions.load(PreparedForm("raw", str(prepared), 0, optimised=True))
        tensor = loaded.session.get_inputs()[0]
        shape = [side if isinstance(side, int) and side > 0 else 1 for side in tensor.shape]
        array = np.random.default_rng(1).random(shape, np.float32)
        expected = sessions.run(loaded, {tensor.name: array}, None)
        outputs = {name: value.nbytes for name, value in expected.items()}
        memory = stack.enter_context(_objects(array, sum(outputs.values())))
        _register(box, memory)
        shared = _request(box, tensor.name, array, outputs)
        body = subjects.infer_request("shufflenet", box.key, {tensor.name: array})
        lines = [_connected(box.port), _connected(path), _connected(box.port)]
        for line in lines:
            stack.callback(line.close)

        def run() -> None:
            sessions.run(loaded, {tensor.name: array}, None)

        ways = [_asking(line, request) for line, request in zip(lines, (shared, shared, body), strict=True)]
        for way in (run, *ways):
            _turn(way)
        (first,) = expected.values()
        found = np.frombuffer(_buffer(memory[1]), first.dtype, first.size).reshape(first.shape)
        np.testing.assert_allclose(found, first, rtol=1e-4, atol=1e-5)
        del found
        if sys.argv[1:] != ["saturated"]:
            _alone(run, ways)
        if sys.argv[1:] != ["alone"]:
            _saturated(box, path, shared, body, run)


def _alone(run: Any, ways: list[Any]) -> None:
    """Each way beside a turn of the run, which also lets 50 ms pass: only who asks alone is computed inline."""
    rows = [[(_turn(run), _turn(way)) for way in ways] for _ in range(TURNS)]
    for place, words in enumerate(("P50", "quickest of a turn")):
        own = statistics.median(pair[0][place] for row in rows for pair in row)
        print(f"alone, {words}: session.run {own:.2f} ms")
        for index, name in enumerate(WAYS):
            added = statistics.median(way[place] - bare[place] for bare, way in (row[index] for row in rows))
            print(f"  {name}: added {added:+.3f} ms (asked ≤ 0.25 by shared memory)", flush=True)


def _saturated(box: subjects.LiveBox, path: Path, shared: bytes, body: bytes, run: Any) -> None:
    for connections in (4, 8):
        ratios: dict[str, list[float]] = {}
        raws = []
        for _ in range(ROUNDS):
            before = _raw(run)
            asked: list[tuple[bytes, Path | None]] = [(shared, None), (shared, path), (body, None)]
            counts = {
                name: subjects.drive(box.port, [request], connections, SECONDS, unix_socket=where)
                for name, (request, where) in zip(WAYS, asked, strict=True)
            }
            raw = (before + _raw(run)) / 2
            raws.append(raw)
            for name, found in counts.items():
                assert not found["errors"], found
                ratios.setdefault(name, []).append(found["count"] / found["seconds"] / raw)
        print(f"{connections} connections; raw {statistics.median(raws):.0f} runs/s on {CORES} threads")
        for name, found_ratios in ratios.items():
            low, middle, high = min(found_ratios), statistics.median(found_ratios), max(found_ratios)
            print(
                f"  {name}: {middle:.2f} of it (rounds {low:.2f}-{high:.2f}; asked ≥ 0.95 by shared memory)", flush=True
            )


def _raw(run: Any) -> float:
    """Runs a second of so many threads that do nothing else."""
    counts = [0] * CORES
    until = time.perf_counter() + SECONDS

    def work(index: int) -> None:
        flush_subnormals()
        while time.perf_counter() < until:
            run()
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(CORES)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def _turn(way: Any) -> tuple[float, float]:
    """Median and minimum of a few, ms: with neighbours on the machine the quickest says more."""
    times = []
    for _ in range(REQUESTS):
        start = time.perf_counter()
        way()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


def _asking(line: socket.socket, request: bytes) -> Any:
    return lambda: subjects.ask(line, request)


def _buffer(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None
    return memory.buf


@contextmanager
def _objects(array: np.ndarray, output_bytes: int) -> Iterator[list[SharedMemory]]:
    made = [SharedMemory(create=True, size=size) for size in (array.nbytes, output_bytes)]
    try:
        np.frombuffer(_buffer(made[0]), np.uint8, array.nbytes)[:] = array.reshape(-1).view(np.uint8)
        yield made
    finally:
        for one in made:
            one.close()
            one.unlink()


def _register(box: subjects.LiveBox, memory: list[SharedMemory]) -> None:
    with box.http() as http:
        for name, one in zip(("in", "out"), memory, strict=True):
            order = {"key": one.name, "offset": 0, "byte_size": one.size}
            http.post(f"/v2/systemsharedmemory/region/{name}/register", json=order).raise_for_status()


def _request(box: subjects.LiveBox, name: str, array: np.ndarray, outputs: dict[str, int]) -> bytes:
    """As the official client writes it."""
    place = {"shared_memory_region": "in", "shared_memory_byte_size": array.nbytes}
    wanted, offset = [], 0
    for output, size in outputs.items():
        at = {"shared_memory_offset": offset} if offset else {}
        parameters = {"binary_data": False, "shared_memory_region": "out", "shared_memory_byte_size": size, **at}
        wanted.append({"name": output, "parameters": parameters})
        offset += size
    described = {"name": name, "shape": list(array.shape), "datatype": "FP32", "parameters": place}
    body = orjson.dumps({"inputs": [described], "outputs": wanted})
    lines = ["POST /v2/models/shufflenet/infer HTTP/1.1", "Host: localhost", f"Authorization: Bearer {box.key}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _connected(where: int | Path) -> socket.socket:
    if isinstance(where, Path):
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(where))
        return line
    line = socket.create_connection(("127.0.0.1", where))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


if __name__ == "__main__":
    main()
