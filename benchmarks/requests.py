"""Requests of a box: rate, latency and share of the cores, against a bare route and bare ONNX Runtime.

  rate     `/v2` (binary tensors) and `/v1` (JSON) of a tiny model, 16 connections, against a bare Starlette route that
           returns a body of the same size; asked of `/v2`: ≥ 0.60 of its requests a second
  latency  what the box adds to `session.run` alone on a connection, 600 kB in: in the body over TCP, in shared memory
           over TCP and over the Unix socket; asked: ≤ 0.8 ms, ≤ 0.25 ms in shared memory
  share    requests a second of 4 and 8 connections against two threads of sessions without a box; asked: ≥ 0.90
           (ShuffleNet), ≥ 0.97 (ResNet-50), ≥ 0.95 in shared memory
  notes    `/v2` with notes on requests and a history, against a box without; asked: ≥ 0.98

Sessions without a box have the form, options and threads of the box. All take turns; rounds that lost processor time to
others on the host are left out, and medians of the rounds' differences and ratios count.
"""

import argparse
import json
import os
import re
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks._steal import undisturbed
from tests import toys
from tests.e2e.load import drive

CONNECTIONS, CORES = 16, os.cpu_count() or 1
TURN = 10
"""Requests of a turn of the part `latency`."""
NETWORKS = {"shufflenet": toys.shufflenet, "squeezenet": toys.squeezenet, "resnet50": toys.resnet50}
WAYS = ("body over TCP", "shared memory over TCP", "shared memory over the Unix socket")
INLINE = {"APPLIANCE_QUEUES__INLINE_MS_MAX": "50"}
"""So that a run alone is on the event loop, however long a busy machine has made its profile."""
WITHOUT = {"APPLIANCE_REQUESTS__NOTABLE_PER_APPLICATION": "0", "APPLIANCE_HISTORY__DAYS": "0"}


def main() -> None:
    """Run the parts that are asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=["shufflenet"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each turn")
    options = results.options(parser)
    for name in options.part:
        PARTS[name](options)


# -- a tiny model ------------------------------------------------------------------------------------------------------


def _rate(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, boxes.box() as box:
        item = boxes.served(box, "tiny", toys.tiny_add(Path(folder) / "tiny.onnx"))
        with box.http() as http:
            size = len(boxes.infer(http, "tiny", boxes.infer_body(item)).content)
        plain = json.dumps({"inputs": {name: array.tolist() for name, array in item.items()}}).encode()
        requests = {
            "/v2": boxes.infer_request("tiny", box.key, item),
            "/v1": boxes.post("/v1/applications/tiny/predict", box.key, plain),
        }
        port = boxes.free_port()
        with boxes.bare_starlette(port, size) as bare:

            def turn() -> dict[str, tuple[float, float]]:
                own = {
                    name: boxes.rate(box.port, box.process.pid, request, CONNECTIONS, options.seconds)
                    for name, request in requests.items()
                }
                return own | {"bare": boxes.rate(port, bare.pid, requests["/v2"], CONNECTIONS, options.seconds)}

            rounds = undisturbed(turn, options.rounds)
    for name in requests:
        results.row(
            f"{name} of a tiny model / a bare route",
            ratio=statistics.median(one[name][0] / one["bare"][0] for one in rounds),
            ratio_by_processor_time=statistics.median(one["bare"][1] / one[name][1] for one in rounds),
            per_s=statistics.median(one[name][0] for one in rounds),
            bare_per_s=statistics.median(one["bare"][0] for one in rounds),
            asked="≥ 0.60" if name == "/v2" else "",
        )


def _notes(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = toys.tiny_add(Path(folder) / "tiny.onnx")
        turns = []
        for settings in ({}, WITHOUT):
            box = stack.enter_context(boxes.box(**settings))
            request = boxes.infer_request("tiny", box.key, boxes.served(box, "tiny", model))
            turns.append(partial(boxes.rate, box.port, box.process.pid, request, CONNECTIONS, 2 * options.seconds))
        rounds = [tuple(turn() for turn in turns) for _ in range(options.rounds)]
    results.row(
        "with notes and history / without",
        ratio=statistics.median(one[0] / other[0] for one, other in rounds),
        ratio_by_processor_time=statistics.median(other[1] / one[1] for one, other in rounds),
        asked="≥ 0.98",
    )


# -- 600 kB in ---------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How a picture gets to the box: the place that it is written to, and the request."""

    place: memoryview
    request: bytes | bytearray
    address: int | Path


class Subject(NamedTuple):
    """A network on a box, by each way, and the same session in this process."""

    box: boxes.LiveBox
    picture: bytes
    ways: dict[str, Way]
    run: Callable[[], object]


@contextmanager
def _subject(name: str) -> Iterator[Subject]:
    set_up()
    flush_subnormals()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "box.sock"
        settings = {"APPLIANCE_HTTP__SHARED_MEMORY": "true", "APPLIANCE_HTTP__UNIX_SOCKET": str(path), **INLINE}
        box = stack.enter_context(boxes.box(Path(folder) / "state", **settings))
        item = boxes.served(box, name, NETWORKS[name](Path(folder) / f"{name}.onnx"), precisions=["fp32"])
        ((tensor, array),) = item.items()
        (prepared,) = (box.state / "prepared").glob("*/*/model.onnx")
        sessions = OnnxSessions(1)
        loaded = sessions.load(PreparedForm("bare", str(prepared), 0, optimised=True))
        expected = sessions.run(loaded, item, None)
        outputs = {output: value.nbytes for output, value in expected.items()}
        memory = [SharedMemory(create=True, size=size) for size in (array.nbytes, sum(outputs.values()))]
        for one in memory:
            stack.callback(one.unlink)
            stack.callback(one.close)
        shared = _shared_request(box, name, tensor, array, outputs, memory)
        body = bytearray(boxes.infer_request(name, box.key, item))
        frames = memory[0].buf
        assert frames is not None
        ways = (
            Way(memoryview(body)[-array.nbytes :], body, box.port),
            Way(frames, shared, box.port),
            Way(frames, shared, path),
        )
        run = partial(sessions.run, loaded, item, None)
        yield Subject(box, array.tobytes(), dict(zip(WAYS, ways, strict=True)), run)
        for way in ways:
            way.place.release()


def _shared_request(
    box: boxes.LiveBox,
    name: str,
    tensor: str,
    array: np.ndarray,
    outputs: Mapping[str, int],
    memory: list[SharedMemory],
) -> bytes:
    """Register both regions; a request as the official client writes it."""
    with box.http() as http:
        for region, one in zip(("in", "out"), memory, strict=True):
            order = {"key": one.name, "offset": 0, "byte_size": one.size}
            http.post(f"/v2/systemsharedmemory/region/{region}/register", json=order).raise_for_status()
    wanted, offset = [], 0
    for output, size in outputs.items():
        at = {"shared_memory_offset": offset} if offset else {}
        parameters = {"binary_data": False, "shared_memory_region": "out", "shared_memory_byte_size": size, **at}
        wanted.append({"name": output, "parameters": parameters})
        offset += size
    place = {"shared_memory_region": "in", "shared_memory_byte_size": array.nbytes}
    described = {"name": tensor, "shape": list(array.shape), "datatype": "FP32", "parameters": place}
    body = json.dumps({"inputs": [described], "outputs": wanted}).encode()
    return boxes.post(f"/v2/models/{name}/infer", box.key, body)


def _latency(options: argparse.Namespace) -> None:
    """Each way in turns with the run; the picture is written anew before each request, untimed, as a client does."""
    for network in options.network:
        with _subject(network) as subject, ExitStack() as stack:
            lines = {name: stack.enter_context(_connected(way.address)) for name, way in subject.ways.items()}
            inside: dict[str, list[float]] = {name: [] for name in lines}

            def asked(name: str, subject: Subject = subject, lines: Any = lines, inside: Any = inside) -> float:
                way = subject.ways[name]
                way.place[: len(subject.picture)] = subject.picture
                start = time.perf_counter()
                head = boxes.ask(lines[name], way.request)
                took_ms = (time.perf_counter() - start) * 1e3
                inside[name].append(float(re.search(rb"compute;dur=([0-9.]+)", head)[1]))  # type: ignore[index]
                return took_ms

            def turn(subject: Subject = subject, asked: Any = asked) -> dict[str, tuple[float, float]]:
                found = {}
                for name in subject.ways:
                    own = statistics.median(results.took_ms(subject.run) for _ in range(TURN))
                    found[name] = (own, statistics.median(asked(name) for _ in range(TURN)))
                return found

            turn()
            rounds = undisturbed(turn, 5 * options.rounds)
        for name in WAYS:
            results.row(
                f"{network} alone, {name}: added to session.run",
                P50_ms=statistics.median(one[name][1] - one[name][0] for one in rounds),
                session_ms=statistics.median(one[name][0] for one in rounds),
                inside_the_box_ms=statistics.median(inside[name]),
                asked="≤ 0.8" if name == WAYS[0] else "≤ 0.25",
            )


def _share(options: argparse.Namespace) -> None:
    for network in options.network:
        with _subject(network) as subject:
            for connections in (4, 8):

                def turn(subject: Subject = subject, connections: int = connections) -> tuple[float, list[float]]:
                    raw = [_raw(subject.run, options.seconds)]
                    found = []
                    for way in subject.ways.values():
                        path = way.address if isinstance(way.address, Path) else None
                        asked = [bytes(way.request)]
                        done = drive(subject.box.port, asked, connections, options.seconds, unix_socket=path)
                        found.append(done["count"] / done["seconds"])
                    raw.append(_raw(subject.run, options.seconds))
                    return statistics.mean(raw), found

                rounds = undisturbed(turn, options.rounds)
                for at, name in enumerate(WAYS):
                    results.row(
                        f"{network}, {connections} connections, {name}: share of sessions alone",
                        **results.spread([found[at] / raw for raw, found in rounds]),
                        per_s=statistics.median(found[at] for _, found in rounds),
                        asked=("≥ 0.97" if network == "resnet50" else "≥ 0.90") if at == 0 else "≥ 0.95",
                    )


def _raw(run: Callable[[], object], seconds: float) -> float:
    """Runs a second of a thread a core."""
    start = time.perf_counter()

    def work(_: int) -> int:
        flush_subnormals()
        count = 0
        while time.perf_counter() < start + seconds:
            run()
            count += 1
        return count

    with ThreadPoolExecutor(CORES) as pool:
        count = sum(pool.map(work, range(CORES)))
    return count / (time.perf_counter() - start)


def _connected(address: int | Path) -> socket.socket:
    if isinstance(address, Path):
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(address))
        return line
    line = socket.create_connection(("127.0.0.1", address))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


PARTS = {"rate": _rate, "latency": _latency, "share": _share, "notes": _notes}


if __name__ == "__main__":
    main()
