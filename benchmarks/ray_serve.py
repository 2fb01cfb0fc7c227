"""A network in the box and in Ray Serve on the same cores: requests a second, latency, memory before any request.

Ray Serve runs in an environment of its own: `python3 -m venv ray && ray/bin/pip install 'ray[serve]' onnxruntime`. It
has a replica a core, each with a session of ONNX Runtime on one thread, as the box has workers. Requests and answers
are tensors as plain bytes over HTTP, from the same client; both take turns.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from benchmarks import _box as boxes
from benchmarks import _results as results
from tests import toys
from tests.e2e.load import drive

NETWORKS = {"shufflenet": toys.shufflenet, "squeezenet": toys.squeezenet, "resnet50": toys.resnet50}
CORES = os.cpu_count() or 1
SETTLED_S = 20.0
"""Seconds that a server is left alone before its memory is looked at."""
DEPLOYMENT = """
import os, sys, time
import numpy as np, onnxruntime as ort, ray
from ray import serve
from starlette.responses import Response
model, port, replicas, *shape = sys.argv[1], *map(int, sys.argv[2:])
@serve.deployment(num_replicas=replicas, max_ongoing_requests=16)
class Network:
    def __init__(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name
    async def __call__(self, request):
        tensor = np.frombuffer(await request.body(), np.float32).reshape(shape)
        return Response(self.session.run(None, {self.name: tensor})[0].tobytes())
ray.init(include_dashboard=False, num_cpus=replicas, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(Network.bind())
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
"""


def main() -> None:
    """Run both, and print a row for each."""
    parser = results.parser(__doc__)
    parser.add_argument("--python", type=Path, required=True, help="of the environment that has Ray Serve")
    parser.add_argument("--network", choices=NETWORKS, default="shufflenet")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    options = results.options(parser)
    with tempfile.TemporaryDirectory() as folder:
        model = NETWORKS[options.network](Path(folder) / "network.onnx")
        with boxes.box() as live:
            inputs = boxes.served(live, "network", model, precisions=[])
            with ray_serve(options.python, model, inputs) as (port, pid):
                body = next(iter(inputs.values())).tobytes()
                servers = {
                    "the box": (live.port, live.process.pid, boxes.infer_request("network", live.key, inputs)),
                    "Ray Serve": (port, pid, boxes.post("/", "", body, "application/octet-stream")),
                }
                compare(servers, options)


def compare(servers: dict[str, tuple[int, int, bytes]], options: argparse.Namespace) -> None:
    time.sleep(SETTLED_S)
    memory_mb = {name: boxes.of_children(pid, _pss_mb) for name, (_, pid, _) in servers.items()}
    rates: dict[str, list[float]] = {name: [] for name in servers}
    p99s_ms: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, (port, _, request) in servers.items():
            drive(port, [request], options.connections, 1.0)  # what was idle for a turn wakes
            done = drive(port, [request], options.connections, options.seconds)
            assert not done["errors"], done["refusal"]
            rates[name].append(done["count"] / done["seconds"])
            p99s_ms[name].append(done["p99_ms"])
    for name in servers:
        results.row(
            f"{options.network}, {options.connections} connections, {name}",
            requests_per_s=statistics.median(rates[name]),
            p99_ms=statistics.median(p99s_ms[name]),
            idle_memory_mb=memory_mb[name],
        )


def _pss_mb(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss / 1e6)


@contextmanager
def ray_serve(python: Path, model: Path, inputs: dict[str, np.ndarray]) -> Iterator[tuple[int, int]]:
    """Serve the network; yields port and process."""
    port, (tensor,) = boxes.free_port(), inputs.values()
    order = [str(python), "-c", DEPLOYMENT, str(model), str(port), str(CORES), *map(str, tensor.shape)]
    ray = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
    environment = {**os.environ, **ray}
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert b"ready\n" in iter(process.stdout.readline, b""), "Ray Serve has not started"
        yield port, process.pid
        process.communicate()  # it ends with its standard input


if __name__ == "__main__":
    main()
