"""Sleeping builds: memory, times to sleep and wake, and cold requests, against a plain session and a warm request.

builds  ResNet-50 and ShuffleNet, in the service and in a guard, round by round. Asked of ResNet-50: ≤ 1.5 MB asleep
        (2 in a guard); (cold - warm) / plain session ≤ 0.04 (0.06) with the pages in the page cache; a wake from the
        disk ≤ 1.2 times reading the file; ≤ 6 ms of processor time per 100 MB for a cold start, the sleep of another
        one included. Cold is a wake and the run after it; of the processor time runs are left out
many    ShuffleNets with weights of their own in the memory of a fifth of them, asked at random on a real box; asked:
        the median of a cold request less that of a warm one ≤ 5 ms
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import numpy as np
import onnx

from appliance.cli.replaying import read_timing
from appliance.clock import SystemClock
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import trim
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks import _zoo as zoo
from benchmarks.guard import prepared
from tests import toys

NETWORKS = {"resnet50": toys.resnet50, "shufflenet": toys.shufflenet}
TRIMMED_AFTER_S = 12.0
"""By then a processor's heap is trimmed, whatever went before."""
WARM = 3
BLOCK_BYTES = 1 << 20


Figures = dict[str, list[float]]
"""Of a network in the service or in a guard; milliseconds, an entry a round."""


def main() -> None:
    """Run the part that is asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", choices=("builds", "many"), default="builds")
    parser.add_argument("--rounds", type=int, default=15, help="of `builds`")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--bytes-of", type=int, default=40, help="so many models as the budget has bytes for")
    parser.add_argument("--requests", type=int, default=1000, help="at random, after every model was asked once")
    parser.add_argument("--asleep-share", type=float, default=0.5, help="as `memory.asleep_share`; 0.25 is the default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", default="none", help="as `guard.isolation`")
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models")
    options = results.options(parser)
    if options.part == "many":
        _many(options)
    else:
        asyncio.run(_builds(options.rounds))


# -- builds ------------------------------------------------------------------------------------------------------------


async def _builds(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inner = OnnxProcessor("cpu", 1, 1, 1)
        processor = GuardedProcessor(inner, SystemClock(), GuardOptions(scratch=folder / "scratch"))
        for network, make in NETWORKS.items():
            source = make(folder / f"{network}.onnx")
            form = prepared(inner, source, folder / network)
            for home, owner in (("service", None), ("guard", "harbour")):
                await _network(processor, network, home, replace(form, guarded_for=owner), source, rounds)
        processor.close()


async def _network(
    processor: GuardedProcessor, network: str, home: str, form: PreparedForm, source: Path, rounds: int
) -> None:
    inputs = {"gpu_0/data_0": np.random.default_rng(1).random((1, 3, 224, 224), np.float32)}
    weights = max(Path(form.path).parent.iterdir(), key=lambda file: file.stat().st_size)
    first: Any = await processor.load(form)
    await processor.run(first, inputs, None)
    pid = first.guard.pid if hasattr(first, "guard") else os.getpid()
    await processor.unload(first)
    del first
    base = await _pss_mb(pid)
    handle: Any = await processor.load(form)
    await processor.run(handle, inputs, None)
    awake = await _pss_mb(pid)
    await processor.sleep(handle)
    asleep = await _pss_mb(pid)
    figures: Figures = defaultdict(list)
    for _ in range(rounds):
        await _round(processor, handle, inputs, pid, figures)
        await _from_disk(processor, handle, inputs, weights, figures)
        figures["plain"].append(boxes.plain_session_ms(source))
    await processor.unload(handle)
    _report(f"{network}, {home}", awake - base, asleep - base, weights.stat().st_size / 1e6, figures)


async def _round(processor: GuardedProcessor, handle: Any, inputs: Any, pid: int, figures: Figures) -> None:
    """From asleep to asleep, with the pages in the page cache."""
    start_ms = _processor_ms(pid)
    figures["wake"].append(await _ms(processor.wake(handle)))
    woke_ms = _processor_ms(pid) - start_ms
    first_ms = await _ms(processor.run(handle, inputs, None))
    warm = [await _ms(processor.run(handle, inputs, None)) for _ in range(WARM)]
    start_ms = _processor_ms(pid)
    figures["sleep"].append(await _ms(processor.sleep(handle)))
    figures["processor"].append(woke_ms + _processor_ms(pid) - start_ms)
    figures["added"].append(figures["wake"][-1] + first_ms - statistics.median(warm))


async def _from_disk(processor: GuardedProcessor, handle: Any, inputs: Any, weights: Path, figures: Figures) -> None:
    """The same with the pages on disk, beside reading them."""
    _leave_cache(weights)
    figures["read"].append(results.took_ms(partial(_read, weights)))
    _leave_cache(weights)
    figures["wake_disk"].append(await _ms(processor.wake(handle)))
    await processor.run(handle, inputs, None)
    await processor.sleep(handle)


async def _ms(call: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await call
    return (time.perf_counter() - start) * 1e3


def _processor_ms(pid: int) -> float:
    """Processor time of this process and of the process in which the build lives."""
    own = time.process_time() * 1e3
    if pid == os.getpid():
        return own
    # In nanoseconds; the ticks of `stat` are 10 ms.
    spent = [int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return own + sum(spent) / 1e6


async def _pss_mb(pid: int) -> float:
    """Megabytes in memory once the heap is trimmed."""
    clock = SystemClock()
    await clock.sleep_until_ns(clock.now_ns() + int(TRIMMED_AFTER_S * 1e9))
    if pid == os.getpid():
        trim()
    return boxes.pss_mb(pid)


def _leave_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> None:
    block = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def _report(label: str, awake_mb: float, asleep_mb: float, file_mb: float, figures: Figures) -> None:
    results.row(label, file_MB=file_mb, awake_MB=awake_mb, asleep_MB=asleep_mb, asked="asleep ≤ 1.5, ≤ 2 in a guard")
    for name, values, asked in (
        ("to sleep, ms", figures["sleep"], ""),
        ("to wake, ms", figures["wake"], ""),
        ("from the disk / reading the file", results.ratios(figures["wake_disk"], figures["read"]), "≤ 1.2"),
        (
            "(cold - warm) / plain session",
            results.ratios(figures["added"], figures["plain"]),
            "≤ 0.04, ≤ 0.06 in a guard",
        ),
        ("processor time of a cold start, ms per 100 MB", [ms / file_mb * 100 for ms in figures["processor"]], "≤ 6"),
    ):
        results.row(f"{label}: {name}", **results.spread(values), asked=asked)


# -- many on a box -----------------------------------------------------------------------------------------------------


TIMES = 3
"""A model is asked so often in a row: the first time cold or warm, then warm."""


class Asked(NamedTuple):
    """One request, as the box and as its caller saw it."""

    ms: float
    is_cold: bool
    load_ms: float
    wake_ms: float


def _many(options: argparse.Namespace) -> None:
    names = [f"net{number:03}" for number in range(options.models)]
    with zoo.kept(options.keep) as state:
        each_bytes = _imported(state, names)
        zoo.forget_residents(state)
        settings = {
            "APPLIANCE_MEMORY__BUDGET_BYTES": str(each_bytes * options.bytes_of),
            "APPLIANCE_MEMORY__ASLEEP_SHARE": str(options.asleep_share),
            "APPLIANCE_GUARD__ISOLATION": options.isolation,
        }
        with boxes.box(state, **settings) as box, box.http() as http:
            caller = _Caller(http)
            first = [caller.ask(name) for name in names]
            chance = Random(options.seed)
            order = [chance.choice(names) for _ in range(options.requests)]
            asked = [caller.ask(name) for name in order for _ in range(TIMES)]
            memory = http.get("/v1/memory").raise_for_status().json()
    results.row("first request of each", P50_ms=statistics.median(one.ms for one in first), MB_each=each_bytes / 1e6)
    times = {
        "warm": [one.ms for one in asked if not one.is_cold],
        "cold": [one.ms for one in asked if one.is_cold],
        "cold: waking": [one.wake_ms for one in asked if one.wake_ms],
        "cold: loading": [one.load_ms for one in asked if one.load_ms],
    }
    for what, found in times.items():
        results.row(what, requests=len(found), **results.percentiles(found, 50, 90, 99))
    more_ms = results.percentile(times["cold"], 50) - results.percentile(times["warm"], 50)
    results.row("cold - warm", P50_ms=more_ms, asked="≤ 5")
    states = [build["state"] for build in memory["builds"]]
    counts = {name: memory[name] for name in ("loads", "wakes", "asleep_bytes", "used_bytes", "budget_bytes")}
    results.row("at the end", resident=states.count("resident"), asleep=states.count("asleep"), **counts)


def _imported(state: Path, names: list[str]) -> int:
    """Import what is not there yet; returns the resident bytes of a model."""
    with boxes.box(state) as box, box.http() as http:
        there = {name for name in names if http.get(f"/v1/models/{name}").is_success}
        path = toys.shufflenet(state.parent / "shufflenet.onnx")
        jobs = []
        for name in names:
            if name not in there:
                jobs.append(boxes.upload(box, name, _own(path, name), precisions=["fp32"]))
        for number, job in enumerate(jobs):
            boxes.await_job(box, job)
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
        self._body = boxes.infer_body({"gpu_0/data_0": np.zeros([1, 3, 224, 224], np.float32)})

    def ask(self, name: str) -> Asked:
        start = time.perf_counter()
        answer = boxes.infer(self._http, name, self._body)
        ms = (time.perf_counter() - start) * 1e3
        timing = read_timing(answer.headers["server-timing"])
        return Asked(ms, "cold" in timing, timing.get("load", 0.0), timing.get("wake", 0.0))


if __name__ == "__main__":
    main()
