"""Many ShuffleNets in the memory of a fifth of them, asked at random on a real box: what a cold request costs.

Asked, of 200 in the bytes of 40, what sleepers keep included: the median of a cold request less the median of a warm
one at most 5 ms. Every model has weights of its own; a request is cold when its model was asleep, or absent. `--keep`
keeps the imported models for the next run.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import httpx
import numpy as np
import onnx

from appliance.cli.replaying import read_timing
from appliance.demo.zoo import toys
from benchmarks import _box as boxes
from benchmarks import _zoo as zoo

COLD_MORE_MS_MAX = 5.0
TIMES = 3
"""A model is asked so often in a row: the first time cold or warm, then warm."""


class Asked(NamedTuple):
    """One request, as the box and as its caller saw it."""

    ms: float
    is_cold: bool
    load_ms: float
    wake_ms: float


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--bytes-of", type=int, default=40, help="so many models as the budget has bytes for")
    parser.add_argument("--requests", type=int, default=1000, help="at random, after every model was asked once")
    parser.add_argument("--asleep-share", type=float, default=0.5, help="as `memory.asleep_share`; 0.25 is the default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", default="none", help="as `guard.isolation`")
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models")
    options = parser.parse_args()
    names = [f"net{number:03}" for number in range(options.models)]
    with zoo.kept(options.keep) as state:
        each_bytes = _imported(state, names)
        budget = each_bytes * options.bytes_of
        zoo.forget_residents(state)
        settings = {
            "APPLIANCE_MEMORY__BUDGET_BYTES": str(budget),
            "APPLIANCE_MEMORY__ASLEEP_SHARE": str(options.asleep_share),
            "APPLIANCE_GUARD__ISOLATION": options.isolation,
        }
        with boxes.box(state, **settings) as box, box.http() as http:
            caller = _Caller(http)
            first = [caller.ask(name) for name in names]
            chance = Random(options.seed)
            order = [chance.choice(names) for _ in range(options.requests)]
            asked = [one for name in order for one in caller.ask_often(name)]
            memory = http.get("/v1/memory").raise_for_status().json()
    _report(options.models, options.bytes_of, each_bytes, first, asked)
    states = [build["state"] for build in memory["builds"]]
    print(
        f"{states.count('resident')} resident, {states.count('asleep')} asleep that keep "
        f"{memory['asleep_bytes'] / 1e6:.1f} MB; {memory['used_bytes'] / 1e6:.1f} MB used of "
        f"{memory['budget_bytes'] / 1e6:.1f}; {memory['loads']} loads, {memory['wakes']} wakes; {zoo.machine()}"
    )


def _report(models: int, bytes_of: int, each_bytes: int, first: list[Asked], asked: list[Asked]) -> None:
    cold = [one.ms for one in asked if one.is_cold]
    warm = [one.ms for one in asked if not one.is_cold]
    woken = [one.wake_ms for one in asked if one.wake_ms]
    loaded = [one.load_ms for one in asked if one.load_ms]
    more_ms = zoo.percentile(cold, 50) - zoo.percentile(warm, 50)
    print(f"{models} ShuffleNets of {each_bytes / 1e6:.1f} MB in the bytes of {bytes_of}")
    print(f"first request of each: P50 {statistics.median(one.ms for one in first):.1f} ms")
    for what, times in (("warm", warm), ("cold", cold), ("  of it waking", woken), ("  of it loading", loaded)):
        shown = " ".join(f"P{percent} {zoo.percentile(times, percent):.1f}" for percent in (50, 90, 99))
        print(f"{what}: {len(times)} requests, {shown} ms")
    verdict = "yes" if more_ms <= COLD_MORE_MS_MAX else "NO"
    print(f"cold - warm, P50: {more_ms:.2f} ms (asked <= {COLD_MORE_MS_MAX:g}: {verdict})")


def _imported(state: Path, names: list[str]) -> int:
    """Import what is not there yet; returns the resident bytes of one."""
    with boxes.box(state) as box, box.http() as http:
        there = {name for name in names if http.get(f"/v1/models/{name}").is_success}
        path = toys.shufflenet(state.parent / "shufflenet.onnx")
        jobs = []
        for name in names:
            if name not in there:
                jobs.append(boxes.upload(box, name, _own(path, name), precisions=["fp32"]))
        for number, job in enumerate(jobs):
            boxes.await_job(box, job, limit_s=7200)
            print(f"imported {number + 1} of {len(jobs)}", end="\r", flush=True)
        profile = http.get(f"/v1/models/{names[0]}/variants").json()["items"][0]["profile"]
        return int(profile["resident_bytes"])


def _own(path: Path, name: str) -> Path:
    """A copy with other weights."""
    model = onnx.load(path)
    random = np.random.default_rng(int(name.removeprefix("net")))
    weights = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    values = np.frombuffer(weights.raw_data, np.float32)
    weights.raw_data = (values * random.uniform(0.9, 1.1, values.shape)).astype(np.float32).tobytes()
    own = path.with_name(f"{name}.onnx")
    onnx.save(model, own)
    return own


class _Caller:
    """One connection that asks for one picture after the other."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._body, self._headers = boxes.infer_body({"gpu_0/data_0": np.zeros([1, 3, 224, 224], np.float32)})

    def ask(self, name: str) -> Asked:
        start = time.perf_counter()
        answer = self._http.post(f"/v2/models/{name}/infer", content=self._body, headers=self._headers)
        ms = (time.perf_counter() - start) * 1e3
        answer.raise_for_status()
        timing = read_timing(answer.headers["server-timing"])
        return Asked(ms, "cold" in timing, timing.get("load", 0.0), timing.get("wake", 0.0))

    def ask_often(self, name: str) -> Iterator[Asked]:
        """What it costs when it comes, and then when it is there."""
        for _ in range(TIMES):
            yield self.ask(name)


if __name__ == "__main__":
    main()
