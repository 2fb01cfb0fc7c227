"""A box with two processors of one kind, each on a core of its own: one build, runs on both at the same time."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.client import Client
from tests.e2e.polling import until
from tests.e2e.server import Server, brought, running_server

pytestmark = [
    pytest.mark.nightly("a server with cores of its own for each processor"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(400),
]
CORES = sorted(os.sched_getaffinity(0))[:2]
SETTINGS = {"APPLIANCE_QUEUES__INLINE_MS_MAX": "0"}
"""No run on the event loop, which is neither processor's, however quick the machine is."""
PATIENCE_S = 120
"""A busy machine's runs take long, and a box that knows that refuses what would be late."""
ROWS = np.random.default_rng(1).standard_normal((64, 512)).astype(np.float32)


def layers(path: Path, count: int = 40) -> Path:
    """`y` = `x` FP32[64, 512] times so many matrices: more than what asks it computes meanwhile, on a quick machine,
    too.
    """
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal((512, 512)).astype(np.float32) / 23 for _ in range(count)]
    names = ["x", *(f"h{at}" for at in range(1, count)), "y"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]]) for at in range(count)],
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ROWS.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ROWS.shape)],
        [numpy_helper.from_array(weight, f"w{at}") for at, weight in enumerate(weights)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@contextmanager
def two(folder: Path, threads: int) -> Iterator[tuple[Server, Client]]:
    """A box with both processors, which has the network."""
    cores = {"big": CORES[:1], "little": CORES[1:]}
    options = {"kind": "cpu", "workers": 1, "threads_per_run": threads}
    processors = json.dumps([{"name": name, "cores": own, **options} for name, own in cores.items()])
    box = running_server(folder / "state", **SETTINGS, APPLIANCE_PROCESSORS=processors)
    with box as server, server.client() as client:
        brought(client, layers(folder / "net.onnx"), "net", metadata={"precisions": []})
        yield server, client


def _asked(server: Server, requests: int) -> None:
    """So many requests of the network, four at once; all answers are alike."""
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    size = {"binary_data_size": ROWS.nbytes}
    tensor = {"name": "x", "shape": ROWS.shape, "datatype": "FP32", "parameters": size}
    parameters = {"binary_data_output": True, "timeout": PATIENCE_S * 10**6}
    text = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    headers["Inference-Header-Content-Length"] = str(len(text))

    def ask(client: httpx.Client) -> bytes:
        answer = client.post("/v2/models/net/infer", content=text + ROWS.tobytes(), headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.content[int(answer.headers["Inference-Header-Content-Length"]) :]

    with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=server.url, timeout=2 * PATIENCE_S) as client:
        answers = list(pool.map(lambda _: ask(client), range(requests)))
    assert len(set(answers)) == 1


def _pinned(server: Server) -> Counter[str]:
    """Threads of the box, by the cores that they may run on."""
    found: Counter[str] = Counter()
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        status = (task / "status").read_text()
        found[next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list"))] += 1
    return found


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
@pytest.mark.parametrize("threads", [1, 2])
def test_runs_of_a_build_are_spread_over_two_pinned_processors(tmp_path: Path, threads: int) -> None:
    """One build is in memory: with several threads a run, of which each processor makes its own, as often as there are
    processors.
    """
    with two(tmp_path, threads) as (server, client):
        _asked(server, 60)
        shown = client.processors()
        assert [(one.name, one.kind, one.state, one.cores) for one in shown] == [
            ("big", "cpu", "serving", (CORES[0],)),
            ("little", "cpu", "serving", (CORES[1],)),
        ]
        assert all(one.runs and one.runs >= 5 for one in shown), [one.runs for one in shown]
        assert sum(one.runs or 0 for one in shown) <= 60  # some share a run
        (build,) = client.memory().builds
        profile = next(one.profile for one in client.model("net").variants if one.name == build.variant)
        assert profile is not None
        assert build.bytes == threads * profile.resident_bytes
        pinned = _pinned(server)
        assert pinned[str(CORES[0])] >= 1
        assert pinned[str(CORES[1])] >= 1
        until(lambda: any(client.decisions(kind="dispatch")), "a sample of what ran where")
        decided = next(iter(client.decisions(kind="dispatch")))
        assert decided.problem is not None
        assert {one["name"] for one in decided.problem["processors"]} <= {"big", "little"}


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
@pytest.mark.parametrize("threads", [1, 2])
def test_processor_whose_core_is_taken_away_is_lost_until_it_returns(tmp_path: Path, threads: int) -> None:
    """The other processor answers everything meanwhile."""
    with two(tmp_path, threads) as (server, client):
        _asked(server, 10)
        os.sched_setaffinity(server.process.pid, CORES[:1])
        until(lambda: client.processors()[1].state == "lost", "the core is missed")
        lost = client.processors()[1]
        assert lost.reason == f"core {CORES[1]} is offline"
        _asked(server, 20)
        assert client.processors()[1].runs == lost.runs
        os.sched_setaffinity(server.process.pid, CORES)
        until(lambda: client.processors()[1].state == "serving", "it is back")
        _asked(server, 60)
        assert (client.processors()[1].runs or 0) > (lost.runs or 0)


def test_start_with_one_core_in_two_processors_is_refused(tmp_path: Path) -> None:
    """The box names the key."""
    alike = json.dumps([{"name": "a", "cores": CORES[:1]}, {"name": "b", "cores": CORES[:1]}])
    with pytest.raises(AssertionError, match=r"processors\[1\]\.cores: \d+ is one of processors\[0\]'s, too"):
        running_server(tmp_path / "state", APPLIANCE_PROCESSORS=alike).__enter__()
