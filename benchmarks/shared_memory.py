"""Tensors in shared memory: latency that the box adds to `session.run`, and its share of what the cores can compute.

ShuffleNet, 600 kB in and 4 kB out, both in shared memory objects; by TCP and by the Unix socket, and for comparison
with the same tensors in the body. Asked: alone at most 0.25 ms more than the run in all; saturated by 4 to 8
connections at least 0.95 of what two threads of one process run with nothing else to do. Both sides use the same
prepared form, options and threads, and go in turns; medians of the differences and ratios of each turn count. Alone,
the picture is written anew before each run and request, as a client does, untimed: on both sides it is in the caches.
"""

import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from benchmarks import _subjects as subjects
from benchmarks._steal import undisturbed

TURNS, REQUESTS, SECONDS, ROUNDS = 40, 10, 1.0, 5
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
        body = bytearray(subjects.infer_request("shufflenet", box.key, {tensor.name: array}))
        lines = [_connected(box.port), _connected(path), _connected(box.port)]
        for line in lines:
            stack.callback(line.close)

        def run() -> None:
            sessions.run(loaded, {tensor.name: array}, None)

        picture, frames = array.tobytes(), _buffer(memory[0])
        places = (frames, frames, memoryview(body)[-array.nbytes :])
        requests: list[Any] = [shared, shared, body]
        ways = [
            _Way(place, partial(subjects.ask, line, request))
            for place, line, request in zip(places, lines, requests, strict=True)
        ]
        bare = _Way(array.data.cast("B"), run)
        for way in (bare, *ways):
            _turn(way, picture)
        (first,) = expected.values()
        found = np.frombuffer(_buffer(memory[1]), first.dtype, first.size).reshape(first.shape)
        np.testing.assert_allclose(found, first, rtol=1e-4, atol=1e-5)
        del found
        if sys.argv[1:] != ["saturated"]:
            _alone(bare, ways, picture)
        if sys.argv[1:] != ["alone"]:
            _saturated(box, path, shared, bytes(body), run)


class _Way(NamedTuple):
    """Where a picture is put, and what is done with it there."""

    place: memoryview
    work: Callable[[], Any]


def _alone(run: _Way, ways: list[_Way], picture: bytes) -> None:
    """Each way beside a turn of the run, which also lets 50 ms pass: only who asks alone is computed inline."""
    rows = undisturbed(lambda: [(_turn(run, picture), _turn(way, picture)) for way in ways], TURNS)
    for place, words in enumerate(("P50", "quickest of a turn")):
        own = statistics.median(pair[0][place] for row in rows for pair in row)
        print(f"alone, {words}: session.run {own:.2f} ms")
        for index, name in enumerate(WAYS):
            added = statistics.median(way[place] - bare[place] for bare, way in (row[index] for row in rows))
            print(f"  {name}: added {added:+.3f} ms (asked ≤ 0.25 by shared memory)", flush=True)


class _Rate(NamedTuple):
    """What was done in a round."""

    per_s: float
    cpu_ms: float
    """Processor time of each; of a request that of the box alone."""


def _saturated(box: subjects.LiveBox, path: Path, shared: bytes, body: bytes, run: Any) -> None:
    asked: list[tuple[bytes, Path | None]] = [(shared, None), (shared, path), (body, None)]
    for connections in (4, 8):

        def turn(connections: int = connections) -> tuple[tuple[_Rate, _Rate], list[_Rate]]:
            before = _raw(run)
            found = [_driven(box, request, connections, where) for request, where in asked]
            return (before, _raw(run)), found

        rounds = undisturbed(turn, ROUNDS)
        raw = statistics.median(one.per_s for pair, _ in rounds for one in pair)
        print(f"{connections} connections; raw {raw:.0f} runs/s on {CORES} threads")
        for index, name in enumerate(WAYS):
            shares = [2 * found[index].per_s / (pair[0].per_s + pair[1].per_s) for pair, found in rounds]
            times = [2 * found[index].cpu_ms / (pair[0].cpu_ms + pair[1].cpu_ms) for pair, found in rounds]
            print(
                f"  {name}: {statistics.median(shares):.2f} of it (rounds {min(shares):.2f}-{max(shares):.2f}; asked "
                f"≥ 0.95 by shared memory); processor time of the box a request {statistics.median(times):.2f} of a "
                f"run's (rounds {min(times):.2f}-{max(times):.2f})",
                flush=True,
            )


def _driven(box: subjects.LiveBox, request: bytes, connections: int, where: Path | None) -> _Rate:
    before = subjects.cpu_s(box.process.pid)
    found = subjects.drive(box.port, [request], connections, SECONDS, unix_socket=where)
    used_ms = (subjects.cpu_s(box.process.pid) - before) * 1e3
    return _Rate(found["count"] / found["seconds"], used_ms / found["count"])


def _raw(run: Any) -> _Rate:
    """Of so many threads that do nothing else."""
    counts = [0] * CORES
    until = time.perf_counter() + SECONDS

    def work(index: int) -> None:
        flush_subnormals()
        while time.perf_counter() < until:
            run()
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(CORES)]
    start, before = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = sum(counts)
    return _Rate(done / (time.perf_counter() - start), (time.process_time() - before) * 1e3 / done)


def _turn(way: _Way, picture: bytes) -> tuple[float, float]:
    """Median and minimum of a few, ms: with neighbours on the machine the quickest says more."""
    times = []
    for _ in range(REQUESTS):
        way.place[: len(picture)] = picture
        start = time.perf_counter()
        way.work()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


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
