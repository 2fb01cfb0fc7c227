"""Two processors on a core each against fixed maps of models to cores: mixed frames, and with a core slowed by half.

Asked: at least 1.1 times the frames of the best of all fixed maps; with one core slowed by half during the run (a busy
process pinned there) at least 1.2 times those of the map that was best before, and the profile within a tenth of the
truth after 50 runs. A fixed map is the same box with the policy `fixed` of dispatch and a core for each model. A frame
is one request of each model, and the next one is sent when all are answered; `--in-flight` frames at once, from this
process.

How much a map loses when a core slows down is its own affair, and a map that only seemed the best may lose nothing. So
the maps that are measured are those whose fuller core has the least to do, by what runs take; of a map and its mirror
image, on equal cores, the one that has less on the core that will be slowed. Printed beside each ratio: what no policy
gets above, were both cores busy with nothing but frames all the time (the processor time of a frame, box and client
together; a slowed core gives half).
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks import _subjects as subjects
from benchmarks import _zoo
from benchmarks._busy import products

CORES = sorted(os.sched_getaffinity(0))[:2]
NAMES = ("one", "two")
GROUPS = json.dumps([{"name": name, "cores": [core]} for name, core in zip(NAMES, CORES, strict=True)])
_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
X = {"x": np.ones(1, np.float32)}
_MAPS_MAX = 3
"""So many maps are measured, those that have the least to do."""
_ALIKE = 0.1
"""What two mirror images have to do differs by less on equal cores."""
_WARM_S = 0.5
_TRUTHS = 9
"""What runs take in the end is the median of so many looks at what is expected: each is of the last runs only."""
Map = tuple[int, ...]
"""Of each model the index of its core."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-ms", nargs="+", type=float, default=[5.0, 8.0, 12.0, 20.0])
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = [f"net{index}" for index in range(len(options.run_ms))]
    print(_zoo.machine())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        home = Path(folder)
        _import(home, names, options.run_ms)
        ours = stack.enter_context(subjects.box(home / "state", APPLIANCE_PROCESSORS=GROUPS))
        bench = Bench(ours, home / "state-fixed", names, options)
        bench.run_in()
        before = bench.best_map()
        bench.compare("equal cores", before, cores=2.0)
        with _busy(CORES[1]):
            bench.learning()
            bench.compare("one core slowed by half, the map that was best before", before, cores=1.5)
            after = bench.best_map()
            bench.compare("one core slowed by half, the map that is best then", after, cores=1.5)


def _import(home: Path, names: Sequence[str], run_ms: Sequence[float]) -> None:
    """Once; the other box has a copy of the state folder."""
    with subjects.box(home / "state", APPLIANCE_PROCESSORS=GROUPS) as box:
        jobs = [
            subjects.upload(box, name, products(home / f"{name}.onnx", ms))
            for name, ms in zip(names, run_ms, strict=True)
        ]
        for job in jobs:
            subjects.await_job(box, job)
    shutil.copytree(home / "state", home / "state-fixed")


class Bench:
    """The boxes, and what is sent to them."""

    def __init__(self, ours: subjects.LiveBox, fixed: Path, names: Sequence[str], options: Any) -> None:
        """`fixed`: the state folder of the box with fixed maps."""
        self._ours, self._fixed, self._names, self._options = ours, fixed, names, options

    def run_in(self) -> None:
        """Until each model has run on each core."""
        while any(len(self._expected(name)) < len(self._names) for name in NAMES):
            self._fps(self._ours, self._options.seconds)

    def best_map(self) -> Map:
        """Of the maps that use each core and have the least to do on the fuller one, that with the most frames a
        second, in turns.
        """
        takes_ms = [self._expected(name) for name in NAMES]
        kept = least_loaded([[own[name] for name in self._names] for own in takes_ms])
        found: dict[Map, list[float]] = {m: [] for m in kept}
        for _ in range(self._options.rounds):
            for m in kept:
                with self._box_of(m) as box:
                    self._fps(box, _WARM_S)
                    found[m].append(self._fps(box, self._options.seconds))
        return max(kept, key=lambda m: statistics.median(found[m]))

    def compare(self, what: str, fixed: Map, cores: float) -> None:
        """In turns. `cores`: what both give together."""
        seconds, rounds, frame_s = self._options.seconds, [], []
        with self._box_of(fixed) as box:
            for each in (self._ours, box):
                self._fps(each, _WARM_S)
            for _ in range(self._options.rounds):
                before_s = self._computed_s()
                ours = self._fps(self._ours, seconds)
                frame_s.append((self._computed_s() - before_s) / (ours * seconds))
                rounds.append((ours, self._fps(box, seconds)))
        ratios = [a / b for a, b in rounds]
        one, other = (statistics.median(figures) for figures in zip(*rounds, strict=True))
        most = cores / statistics.median(frame_s)
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(
            f"{what} {fixed}: {one:.1f} against {other:.1f} frames/s, median ratio {statistics.median(ratios):.2f} "
            f"({spread}); at most {most / other:.2f} ({most:.1f} frames/s of {statistics.median(frame_s) * 1e3:.1f} ms "
            "of processor time)",
            flush=True,
        )

    def learning(self) -> None:
        """What is expected on the slowed core after 50 runs there, and after many more."""
        runs = self._runs()
        while self._runs() < runs + 50:
            self._fps(self._ours, 0.1)
        early, count = self._expected(NAMES[1]), self._runs() - runs
        looks = []
        for _ in range(_TRUTHS):
            self._fps(self._ours, self._options.seconds / 3)
            looks.append(self._expected(NAMES[1]))
        late = {name: statistics.median(look[name] for look in looks) for name in early}
        ratios = {name: early[name] / late[name] for name in early}
        told = ", ".join(
            f"{name} {early[name]:.1f} ({ratio:.2f} of {late[name]:.1f})" for name, ratio in ratios.items()
        )
        print(f"expected on the slowed core after {count} runs of all, ms: {told}", flush=True)

    def _computed_s(self) -> float:
        """Processor time of our box and of this process."""
        return subjects.cpu_s(self._ours.process.pid) + time.process_time()

    def _runs(self) -> int:
        """On the second processor."""
        with self._ours.http() as http:
            return int(http.get("/v1/processors").json()[1]["runs"])

    def _expected(self, processor: str) -> dict[str, float]:
        """Milliseconds of one run there, beside another one, of the variant that serves."""
        found = {}
        with self._ours.http() as http:
            for name in self._names:
                for variant in http.get(f"/v1/models/{name}/variants").json()["items"]:
                    for row in variant["seen"]:
                        ran_on = row["processor"] or NAMES[0]  # where the import measured
                        if (ran_on, row["batch"], row["concurrency"]) == (processor, 1, 2):
                            found[name] = float(row["p50_ms"])
        return found

    def _box_of(self, fixed: Map) -> AbstractContextManager[subjects.LiveBox]:
        """One in which each model stays on its core."""
        places = {f"default/{name}": NAMES[at] for name, at in zip(self._names, fixed, strict=True)}
        return subjects.box(
            self._fixed,
            APPLIANCE_PROCESSORS=GROUPS,
            APPLIANCE_POLICIES__DISPATCH="fixed",
            APPLIANCE_DISPATCH__FIXED=json.dumps(places),
        )

    def _fps(self, box: subjects.LiveBox, seconds: float) -> float:
        requests = [(box.port, subjects.infer_request(name, box.key, X)) for name in self._names]
        return uvloop.run(_frames(requests, self._options.in_flight, seconds))


def least_loaded(takes_ms: Sequence[Sequence[float]]) -> list[Map]:
    """By core what a run of each model takes there: the maps that have the least to do on the fuller of two cores; of a
    map and its mirror image, if both have about as much to do, the one that has less on the second core.
    """
    models = range(len(takes_ms[0]))

    def loads_ms(m: Map) -> list[float]:
        return [sum(own[model] for model in models if m[model] == core) for core, own in enumerate(takes_ms)]

    maps = [m for m in itertools.product(range(len(takes_ms)), repeat=len(models)) if len(set(m)) == len(takes_ms)]
    kept: list[Map] = []
    for m in sorted(maps, key=lambda m: loads_ms(m)[1]):
        mirror = tuple(1 - at for at in m)
        if mirror not in kept or abs(max(loads_ms(m)) / max(loads_ms(mirror)) - 1) > _ALIKE:
            kept.append(m)
    return sorted(kept, key=lambda m: max(loads_ms(m)))[:_MAPS_MAX]


async def _frames(requests: Sequence[tuple[int, bytes]], in_flight: int, seconds: float) -> float:
    """Frames a second, `in_flight` at a time; the first of each is not counted."""

    async def stream() -> int:
        ends = [await asyncio.open_connection("127.0.0.1", port) for port, _ in requests]
        lines = [(*end, request) for end, (_, request) in zip(ends, requests, strict=True)]
        await asyncio.gather(*(_ask(*line) for line in lines))
        count, end_s = 0, time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            await asyncio.gather(*(_ask(*line) for line in lines))
            count += 1
        for _, writer in ends:
            writer.close()
        return count

    return sum(await asyncio.gather(*(stream() for _ in range(in_flight)))) / seconds


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise RuntimeError(head.decode(errors="replace"))
    fields: Mapping[bytes, bytes] = dict(
        (name.strip().lower(), value.strip()) for name, _, value in (row.partition(b":") for row in head.split(b"\r\n"))
    )
    await reader.readexactly(int(fields[b"content-length"]))


@contextmanager
def _busy(core: int) -> Iterator[None]:
    """A process that computes on a core all the time: whoever else is pinned there has half of it."""
    process = subprocess.Popen([sys.executable, "-c", _BUSY, str(core)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
