"""One tenant's P99 beside another that floods the box or starts models cold, against its P99 alone.

  flood    16 connections of the other tenant, any priority and time limit, runs that are tiny, of 30 ms and of 2 s; a
           request twice a second. Asked: P99 ≤ max(2 x alone, alone + 60 ms); no refusal; no 504 later than 0.1 s after
           its deadline
  weights  two saturating tenants with weights 1 : 3; asked: processor time 1 : 2.7 to 3.3
  cold     four other applications start cold without a pause (then: are asked as often, and stay in memory); real
           networks; asked: P99 ≤ 1.5 x alone

The load comes from processes of their own. Models of the first two are products of matrices, sized to this machine.
"""

import argparse
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import httpx

from appliance.cli.replay_inputs import Feed, Sizes
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks import _zoo as zoo
from benchmarks._products import products
from benchmarks._steal import undisturbed
from tests import toys
from tests.e2e.load import drive

KINDS: dict[str, float | None] = {"tiny": None, "30 ms": 30, "2 s": 2000}
"""Runs of the tenant that floods."""
QUIET_MS, CONNECTIONS, LIMIT_MS = 10, 16, 3000
ALLOWED_MS = 100
"""Of a 504 after its deadline: the way there and back on a busy machine."""
BUSY, OTHERS = "faces", ("read-text", "who", "what", "page-side")
WARM_UP_S = 0.3


def main() -> None:
    """Run the parts that are asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=("flood", "weights", "cold"), default=["flood", "weights", "cold"])
    parser.add_argument("--seconds", type=float, default=8, help="of each phase; of `cold` a third of it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="of `cold`")
    parser.add_argument("--keep", type=Path, help="folder that keeps the models of `cold` for the next run")
    options = results.options(parser)
    if {"flood", "weights"} & set(options.part):
        workers = json.dumps([{"workers": options.workers}])
        with tempfile.TemporaryDirectory() as folder, boxes.box(None, None, APPLIANCE_PROCESSORS=workers) as box:
            keys = _tenants(box, Path(folder))
            if "flood" in options.part:
                _floods(box, keys, options.seconds)
            if "weights" in options.part:
                _weights(box, keys, options.seconds)
    if "cold" in options.part:
        _cold(options)


# -- floods ------------------------------------------------------------------------------------------------------------


def _floods(box: boxes.LiveBox, keys: dict[str, str], seconds: float) -> None:
    alone, _ = _ask(box.port, keys["quiet"], seconds)
    alone_ms = results.percentile(alone, 99)
    results.row("alone", requests=len(alone), P50_ms=results.percentile(alone, 50), P99_ms=alone_ms)
    for kind, run_ms in KINDS.items():
        short_us = int(2000 * (run_ms or 5))
        tried: list[dict[str, int]] = [{}, {"priority": 1}, {"timeout": short_us}, {"timeout": 10**9}]
        tried.append({"timeout": short_us, "priority": 1})
        requests = [_request(_name(kind), keys["greedy"], **parameters) for parameters in tried]
        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(drive, box.port, requests, CONNECTIONS, seconds + 1, may_fail=True)
            time.sleep(1)
            times, refused = _ask(box.port, keys["quiet"], seconds)
            flood = flooding.result()
        results.row(
            f"beside a flood of runs: {kind}",
            **results.percentiles(times, 50, 99),
            refused=refused,
            flood_answers_per_s=flood["count"] / flood["seconds"],
            asked=f"P99 ≤ {max(2 * alone_ms, alone_ms + 60):.1f}, none refused",
        )
    _lateness(box.port, keys["greedy"])


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
    """Six at once on a model of 2 s with a limit of 3 s: a request that cannot be in time is told so by then."""
    over: list[float] = []

    def ask(_: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        began = time.perf_counter()
        if _post(connection, _name("2 s"), key, timeout=1000 * LIMIT_MS) == 504:
            over.append((time.perf_counter() - began) * 1e3 - LIMIT_MS)
        connection.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))
    late = sum(ms > ALLOWED_MS for ms in over)
    results.row("504s of six", count=len(over), latest_ms=max(over, default=0.0), late=late, asked="none late")


def _weights(box: boxes.LiveBox, keys: dict[str, str], seconds: float) -> None:
    """Processor time of two saturating tenants: runs of 30 ms with weight 1, runs of 10 ms with weight 3."""
    with box.http() as admin:
        admin.put("/v1/tenants/quiet", json={"quota": {"processor_weight": 3}}).raise_for_status()
        names = {"greedy": _name("30 ms"), "quiet": "quiet"}
        with ThreadPoolExecutor(2) as pool:
            for tenant, name in names.items():
                pool.submit(drive, box.port, [_request(name, keys[tenant])], 12, seconds + 2)
            time.sleep(1)  # a tenant that begins or ends alone has the processors alone
            before = _compute_s(box)
            time.sleep(seconds)
            after = _compute_s(box)
    one, three = (after[tenant] - before[tenant] for tenant in names)
    results.row("weights 1 : 3, processor time", one_s=one, three_s=three, ratio=three / one, asked="2.7 to 3.3")


def _compute_s(box: boxes.LiveBox) -> dict[str, float]:
    """Seconds of computing by tenant."""
    sums: dict[str, float] = {}
    for labels, value in box.metrics("appliance_request_seconds_sum"):
        if labels["part"] == "compute":
            sums[labels["tenant"]] = sums.get(labels["tenant"], 0.0) + value
    return sums


def _post(connection: http.client.HTTPConnection, model: str, key: str, **parameters: int) -> int:
    """The status of one request."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", f"/v2/models/{model}/infer", _json(model, parameters), headers)
    response = connection.getresponse()
    response.read()
    return response.status


def _request(model: str, key: str, **parameters: int) -> bytes:
    return boxes.post(f"/v2/models/{model}/infer", key, _json(model, parameters))


def _json(model: str, parameters: dict[str, int]) -> bytes:
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
            owner = boxes.LiveBox(box.process, box.url, keys[tenant], box.state)
            connection = http.client.HTTPConnection("127.0.0.1", box.port)
            for name, path in paths.items():
                boxes.await_job(owner, boxes.upload(owner, name, path, precisions=[]))
                assert _post(connection, name, keys[tenant]) == 200, name
            connection.close()
    return keys


# -- cold starts -------------------------------------------------------------------------------------------------------


class _Round(NamedTuple):
    """Times of requests to the busy application, ms, by what happened beside them."""

    alone: list[float]
    cold: list[float]
    warm: list[float]
    starts_per_s: float


def _cold(options: argparse.Namespace) -> None:
    seconds = options.seconds / 3
    with zoo.kept(options.keep) as state:
        zoo.imported(state, "demo", (BUSY, *OTHERS))
        with boxes.box(state) as box, box.http() as client:
            body, headers = _request_of(client, BUSY)
            busy = boxes.post(f"/v2/models/{BUSY}/infer", box.key, body, "application/octet-stream", **headers)
            others = Others(client)
            rounds = undisturbed(lambda: _round(box, busy, others, seconds), options.rounds, 300)
    found = {
        name: [ms for one in rounds for ms in getattr(one, name)]  # percentiles are over all rounds together
        for name in ("alone", "cold", "warm")
    }
    for name, times in found.items():
        results.row(f"busy application, others {name}", requests=len(times), **results.percentiles(times, 50, 90, 99))
    alone, cold, warm = (results.percentile(times, 99) for times in found.values())
    starts = sum(one.starts_per_s for one in rounds) / len(rounds)
    results.row("P99 beside cold starts / alone", ratio=cold / alone, starts_per_s=starts, asked="≤ 1.5")
    results.row("P99 beside the same requests without loading / alone", ratio=warm / alone)


def _round(box: boxes.LiveBox, busy: bytes, others: "Others", seconds: float) -> _Round:
    def times() -> list[float]:
        drive(box.port, [busy], 1, WARM_UP_S)
        found: list[float] = drive(box.port, [busy], 1, seconds, keep_times=True)["times_ms"]
        return found

    alone = times()
    start = time.perf_counter()
    with others.asked(cold=True) as count:
        cold = times()
        starts_per_s = count[0] / (time.perf_counter() - start)
    with others.asked(cold=False, rate_rps=starts_per_s):
        warm = times()
    return _Round(alone, cold, warm, starts_per_s)


class Others:
    """Asks the other applications in turn, in a thread."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._calls = [(name, _request_of(client, name)) for name in OTHERS]

    @contextmanager
    def asked(self, *, cold: bool, rate_rps: float | None = None) -> Iterator[list[int]]:
        """Ask while it is open; gives the number of requests so far. `cold`: each is unloaded before its request."""
        for name, _ in self._calls:
            self._client.post(f"/v2/repository/models/{name}/load").raise_for_status()
        done, count = threading.Event(), [0]

        def work() -> None:
            start = time.perf_counter()
            while not done.is_set():
                self._once(count[0], cold=cold)
                count[0] += 1
                if rate_rps:
                    done.wait(max(0.0, start + count[0] / rate_rps - time.perf_counter()))

        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(work)
            try:
                yield count
            finally:
                done.set()
            asking.result()

    def _once(self, number: int, *, cold: bool) -> None:
        name, request = self._calls[number % len(self._calls)]
        for what in ("unload", "load") if cold else ():
            self._client.post(f"/v2/repository/models/{name}/{what}").raise_for_status()
        boxes.infer(self._client, name, request)


def _request_of(client: httpx.Client, name: str) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request with inputs of noise."""
    image = client.get(f"/v1/models/{name}").json()["task"]["image"] or {}
    inputs = client.get(f"/v2/models/{name}").json()["inputs"]
    body, json_length = Feed(inputs, Random(1), Sizes(image.get("height"), image.get("width"))).body()
    return body, {"Inference-Header-Content-Length": str(json_length)}


if __name__ == "__main__":
    main()
