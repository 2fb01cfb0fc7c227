"""What benchmarks run against: a real box as a process of its own, or a bare Starlette route with the same settings."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime as ort
import psutil
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import np_to_triton_dtype

from appliance.client import Client
from appliance.runtime.processors.cpu.heap import trim
from benchmarks import _results as results
from tests.attacks.wire import head
from tests.e2e.load import drive

READY_S = 180
"""Many times what a start takes: others may keep the machine busy."""


@dataclass(frozen=True)
class LiveBox:
    """A running box: its process, address, admin key and state folder."""

    process: subprocess.Popen[bytes]
    url: str
    key: str
    state: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=600)

    def client(self) -> Client:
        return Client(self.url, self.key)

    def metrics(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of `/metrics` with this name."""
        with self.client() as client:
            return samples(client.metrics(), name)

    def pss_mb(self) -> float:
        """Proportional set size of the service process, MB of 10^6 bytes."""
        return pss_mb(self.process.pid)


@contextmanager
def box(
    state: Path | None = None, log: Path | None = None, module: str = "appliance", /, **environment: str
) -> Iterator[LiveBox]:
    """Start a box on a free port and wait until it serves; stops it with SIGTERM.

    `log`: a file for its log, instead of standard error. `module`: what is run in place of the program, with its
    arguments.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, open(log or os.devnull, "ab") as written:
        home = state or Path(folder) / "state"
        process = subprocess.Popen(
            [sys.executable, "-m", module, "serve", "--state", str(home), "--port", "0"],
            env={**os.environ, "MALLOC_ARENA_MAX": "2", "APPLIANCE_LOG__LEVEL": "warning", **environment},
            stdout=subprocess.DEVNULL,
            stderr=written if log else None,
        )
        try:
            url = _await_ready(process, home)
            yield LiveBox(process, url, (home / "admin.key").read_text().strip(), home)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of each sample with this name, out of the text of `/metrics`."""
    found = chain.from_iterable(family.samples for family in text_string_to_metric_families(text))
    return [(one.labels, one.value) for one in found if one.name == name]


def _await_ready(process: subprocess.Popen[bytes], home: Path) -> str:
    address, limit = home / "address", time.perf_counter() + READY_S
    while process.poll() is None and time.perf_counter() < limit:
        if address.exists() and (url := address.read_text().strip()):
            with Client(url) as client:
                if client.is_ready():
                    return url
        time.sleep(0.01)
    raise RuntimeError(f"the box did not get ready within {READY_S} s, or ended: status {process.poll()}")


def upload(live: LiveBox, name: str, model: Path, *, task: str = "tensor", **metadata: Any) -> str:
    """Upload a model; returns the job id."""
    with live.client() as client:
        return client.upload_model(model, name, task, metadata=metadata).id


def await_job(live: LiveBox, job: str) -> None:
    """Wait for a job's end; raises when it failed."""
    with live.client() as client:
        *_, last = client.follow_job(job)
    if last.state != "done":
        raise RuntimeError(f"import {last.state}: {last.error}")


def item(live: LiveBox, name: str) -> dict[str, np.ndarray]:
    """One item of noise for a model whose inputs are floats; 1 for each dimension that is free."""
    with live.http() as http:
        inputs = http.get(f"/v2/models/{name}").raise_for_status().json()["inputs"]
    random = np.random.default_rng(1)
    return {one["name"]: random.random([max(1, size) for size in one["shape"]], np.float32) for one in inputs}


def served(live: LiveBox, name: str, model: Path, **metadata: Any) -> dict[str, np.ndarray]:
    """Import a model to its end; returns an item for it."""
    await_job(live, upload(live, name, model, **metadata))
    return item(live, name)


_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = bytes(int(sys.argv[2]))
async def infer(request):
    await request.body()
    return Response(body, media_type="application/octet-stream")
app = Starlette(routes=[Route("/v2/models/{name}/infer", infer, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="none", access_log=False,
            log_config=None, server_header=False, proxy_headers=False)
"""


@contextmanager
def bare_starlette(port: int, body_bytes: int) -> Iterator[subprocess.Popen[bytes]]:
    """A Starlette route that reads the body and returns a body of the given size."""
    process = subprocess.Popen([sys.executable, "-c", _BARE, str(port), str(body_bytes)], stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=6)) as client:  # as it starts: within some 30 s
            client.post(f"http://127.0.0.1:{port}/v2/models/x/infer", content=b"")
        yield process
    finally:
        process.terminate()
        process.wait()


def infer_body(inputs: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, str]]:
    """Body and headers of an infer call with binary tensors in and out, as the official client writes it.

    Raises: InferenceServerException for a type that the protocol does not have.
    """
    tensors = []
    for name, array in inputs.items():
        tensors.append(triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    body, length = triton.InferenceServerClient.generate_request_body(tensors)
    return body, {"Inference-Header-Content-Length": str(length)}


def infer(http: httpx.Client, model: str, request: tuple[bytes, dict[str, str]]) -> httpx.Response:
    """Ask a network; `request` as `infer_body` gives it."""
    body, headers = request
    return http.post(f"/v2/models/{model}/infer", content=body, headers=headers).raise_for_status()


def infer_request(model: str, key: str, inputs: dict[str, np.ndarray]) -> bytes:
    """A whole HTTP request of `/v2`, with binary tensors."""
    body, headers = infer_body(inputs)
    return post(f"/v2/models/{model}/infer", key, body, "application/octet-stream", **headers)


def post(path: str, key: str, body: bytes, content_type: str = "application/json", **headers: object) -> bytes:
    """A whole HTTP request."""
    return head("POST", path, key, **headers, content_type=content_type, content_length=len(body)) + body


def ask(connection: socket.socket, request: bytes | bytearray) -> bytes:
    """Send a request and take its whole answer; returns the head."""
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1 << 16)
    begin, _, body = answer.partition(b"\r\n\r\n")
    assert begin.startswith(b"HTTP/1.1 200"), begin
    (length,) = re.findall(rb"\r\ncontent-length: (\d+)", begin)
    while len(body) < int(length):
        body += connection.recv(1 << 16)
    return begin


def plain_session_ms(model: Path) -> float:
    """Make a session from the plain file, on one thread; returns milliseconds."""
    elapsed_ms = results.took_ms(lambda: plain_session(model))
    trim()
    return elapsed_ms


def plain_session(model: Path) -> ort.InferenceSession:
    """A session of ONNX Runtime on one thread of the processor, without a box."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pss_mb(pid: int) -> float:
    """Proportional set size of a process, MB of 10^6 bytes."""
    return float(psutil.Process(pid).memory_full_info().pss / 1e6)


def of_children(pid: int, figure: Callable[[psutil.Process], float]) -> float:
    """A figure of a process and its children, added up; those that end meanwhile count nothing."""
    total = 0.0
    for process in (root := psutil.Process(pid), *root.children(recursive=True)):
        with suppress(psutil.Error):
            total += figure(process)
    return total


def rate(port: int, pid: int, request: bytes, connections: int, seconds: float) -> tuple[float, float]:
    """Requests per second, and processor microseconds of the server per request."""
    before = cpu_s(pid)
    result = drive(port, [request], connections, seconds)
    return float(result["count"] / result["seconds"]), (cpu_s(pid) - before) / result["count"] * 1e6


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, seconds: steadier than the clock on a machine with neighbours."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
