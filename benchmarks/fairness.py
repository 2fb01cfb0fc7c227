"""One tenant floods the box (16 connections, any priority and time limit), another asks twice a second: its P99 beside
its P99 alone, its refusals, late 504s; and two saturating tenants with weights 1 : 3.

Asked: P99 at most max(2 x alone, alone + 60 ms), whether the flooder's runs are tiny, of 30 ms or of 2 s; no refusal;
no 504 later than its deadline (0.1 s are allowed for the way); processor time 1 : 3 within 10 %. The flood comes from a
process of its own; models are products of matrices, sized to this machine.
"""

import argparse
import http.client
import json
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from appliance.demo.zoo import toys
from benchmarks import _box as boxes
from benchmarks import _zoo as zoo
from benchmarks._products import products
from tests.e2e.load import drive

KINDS: dict[str, float | None] = {"tiny": None, "30 ms": 30, "2 s": 2000}
"""The flooder's runs."""
QUIET_MS = 10
CONNECTIONS = 16
ALLOWED_MS = 100
"""Of a 504 after its deadline: the way there and back on a busy machine."""
LIMIT_MS = 3000


def main() -> None:
    """Print a line for each flood, then the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20, help="of each phase")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    processors = json.dumps([{"workers": options.workers}])
    with (
        tempfile.TemporaryDirectory() as folder,
        boxes.box(None, None, APPLIANCE_PROCESSORS=processors) as box,
    ):
        print(zoo.machine())
        keys = _tenants(box, Path(folder))
        alone, _ = _ask(box.port, keys["quiet"], options.seconds)
        alone_ms = zoo.percentile(alone, 99)
        print(
            f"alone              {len(alone):4} requests  P50 {zoo.percentile(alone, 50):6.1f}  P99 {alone_ms:6.1f} ms"
        )
        for kind in KINDS:
            _flooded(box, keys, kind, options.seconds, alone_ms)
        _lateness(box.port, keys["greedy"])
        _weights(box, keys, options.seconds)


def _flooded(box: boxes.LiveBox, keys: dict[str, str], kind: str, seconds: float, alone_ms: float) -> None:
    requests = [_request(_name(kind), keys["greedy"], **parameters) for parameters in _parameters(KINDS[kind])]
    flood: dict[str, Any] = {}
    thread = threading.Thread(
        target=lambda: flood.update(drive(box.port, requests, CONNECTIONS, seconds + 1, may_fail=True))
    )
    thread.start()
    time.sleep(1)
    times, refused = _ask(box.port, keys["quiet"], seconds)
    thread.join()
    p99, allowed = zoo.percentile(times, 99), max(2 * alone_ms, alone_ms + 60)
    print(
        f"beside {kind:11} {len(times):4} requests  P50 {zoo.percentile(times, 50):6.1f}  P99 {p99:6.1f} ms "
        f"(asked ≤ {allowed:.1f}); refused {refused} (asked 0); the flood: {flood['count'] / flood['seconds']:.0f} "
        f"answers/s, {flood['errors']} of {flood['count']} refused"
    )


def _parameters(run_ms: float | None) -> list[dict[str, int]]:
    """What a flooder may try: nothing, priority, a short and a long limit, both."""
    short_us = int(1000 * (2 * (run_ms or 5)))
    return [{}, {"priority": 1}, {"timeout": short_us}, {"timeout": short_us, "priority": 1}, {"timeout": 10**9}]


def _ask(port: int, key: str, seconds: float) -> tuple[list[float], int]:
    """Twice a second for so long: (milliseconds of each answer, how many were refused)."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times, refused = [], 0
    start = time.perf_counter()
    for number in range(int(2 * seconds)):
        time.sleep(max(0.0, start + 0.5 * number - time.perf_counter()))
        began = time.perf_counter()
        refused += _post(connection, "quiet", key) != 200
        times.append((time.perf_counter() - began) * 1e3)
    connection.close()
    return times, refused


def _lateness(port: int, key: str) -> None:
    """Six at once on a model of 2 s with a limit of 3 s: those that cannot be in time are told by then."""
    over: list[float] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        began = time.perf_counter()
        if _post(connection, _name("2 s"), key, timeout=1000 * LIMIT_MS) == 504:
            over.append((time.perf_counter() - began) * 1e3 - LIMIT_MS)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    late = sum(ms > ALLOWED_MS for ms in over)
    print(f"504s: {len(over)} of 6, the latest {max(over, default=0):.0f} ms after its deadline, {late} late (asked 0)")


def _weights(box: boxes.LiveBox, keys: dict[str, str], seconds: float) -> None:
    """Processor time of two saturating tenants: runs of 30 ms with weight 1, runs of 10 ms with weight 3."""
    with box.http() as admin:
        admin.put("/v1/tenants/quiet", json={"quota": {"processor_weight": 3}}).raise_for_status()
        names = {"greedy": _name("30 ms"), "quiet": "quiet"}
        floods = [
            threading.Thread(target=drive, args=(box.port, [_request(name, keys[tenant])], 12, seconds + 2))
            for tenant, name in names.items()
        ]
        for flood in floods:
            flood.start()
        time.sleep(1)  # who begins or ends alone has the processors alone
        before = _compute_s(admin)
        time.sleep(seconds)
        after = _compute_s(admin)
        for flood in floods:
            flood.join()
    one, three = (after[tenant] - before[tenant] for tenant in names)
    print(f"weights 1 : 3      processor time {one:.2f} s and {three:.2f} s: 1 : {three / one:.2f} (asked 2.7-3.3)")


def _compute_s(admin: httpx.Client) -> dict[str, float]:
    """Seconds of computing by tenant."""
    sums: dict[str, float] = {}
    for line in admin.get("/metrics").text.splitlines():
        if line.startswith("appliance_request_seconds_sum") and 'part="compute"' in line:
            found = re.search(r'tenant="([^"]*)"', line)
            assert found is not None
            sums[found[1]] = sums.get(found[1], 0.0) + float(line.rsplit(" ", 1)[1])
    return sums


def _post(connection: http.client.HTTPConnection, model: str, key: str, **parameters: int) -> int:
    """The status of one request."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", f"/v2/models/{model}/infer", _body(model, parameters), headers)
    response = connection.getresponse()
    response.read()
    return response.status


def _request(model: str, key: str, **parameters: int) -> bytes:
    """A whole HTTP request for `_load`."""
    body = _body(model, parameters)
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _body(model: str, parameters: dict[str, int]) -> bytes:
    shape = [1, 4] if model == _name("tiny") else [1]
    names = ("A", "B") if model == _name("tiny") else ("x",)
    data = [1.0] * shape[-1]
    inputs = [{"name": name, "shape": shape, "datatype": "FP32", "data": data} for name in names]
    return json.dumps({"inputs": inputs, "parameters": parameters}).encode()


def _name(kind: str) -> str:
    return f"flood-{kind.replace(' ', '')}"


def _tenants(box: boxes.LiveBox, folder: Path) -> dict[str, str]:
    """Two tenants with their models, imported and warm; their keys."""
    keys = {}
    models = {"quiet": {"quiet": products(folder / "quiet.onnx", QUIET_MS)}, "greedy": {}}
    for kind, run_ms in KINDS.items():
        path = folder / f"{_name(kind)}.onnx"
        models["greedy"][_name(kind)] = toys.tiny_add(path) if run_ms is None else products(path, run_ms)
    with box.http() as admin:
        for tenant, paths in models.items():
            admin.post("/v1/tenants", json={"name": tenant}).raise_for_status()
            keys[tenant] = admin.post(f"/v1/tenants/{tenant}/keys", json={}).raise_for_status().json()["key"]
            owner = boxes.LiveBox(box.process, box.url, keys[tenant], box.state, box.ready_s)
            for name, path in paths.items():
                boxes.await_job(owner, boxes.upload(owner, name, path, precisions=[]))
            connection = http.client.HTTPConnection("127.0.0.1", box.port)
            for name in paths:
                assert _post(connection, name, keys[tenant]) == 200, name
            connection.close()
    return keys


if __name__ == "__main__":
    main()
