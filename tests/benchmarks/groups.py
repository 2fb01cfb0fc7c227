"""Two processors on a core each against fixed maps of models to cores: mixed frames, and with a core slowed by half.

Asked: at least 1.1 times the frames of the best of all fixed maps; with one core slowed by half during the run (a busy
process pinned there) at least 1.2 times those of the map that was best before, and the profile within a tenth of the
truth after 50 runs. A fixed map is the same box with the policy `fixed` of dispatch and a core for each model. A frame
is one request of each model, and the next one is sent when all are answered; `--in-flight` frames at once, from this
process.
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

from tests.benchmarks import _subjects as subjects
from tests.benchmarks import _zoo
from tests.benchmarks._busy import products

CORES = sorted(os.sched_getaffinity(0))[:2]
NAMES = ("one", "two")
GROUPS = json.dumps([{"name": name, "cores": [core]} for name, core in zip(NAMES, CORES, strict=True)])
_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
X = {"x": np.ones(1, np.float32)}
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
        before = bench.best_map()
        bench.compare("equal cores", before)
        with _busy(CORES[1]):
            bench.learning()
            bench.compare("one core slowed by half, the map that was best before", before)
            after = bench.best_map()
            bench.compare("one core slowed by half, the map that is best then", after)


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

    def best_map(self) -> Map:
        """Of all maps that use each core, the one with the most frames a second."""
        maps = [m for m in itertools.product(range(len(CORES)), repeat=len(self._names)) if len(set(m)) == len(CORES)]
        found = {}
        for m in maps:
            with self._box_of(m) as box:
                found[m] = self._fps(box, self._options.seconds / 2)
        return max(maps, key=lambda m: found[m])

    def compare(self, what: str, fixed: Map) -> None:
        """In turns."""
        seconds, rounds = self._options.seconds, []
        with self._box_of(fixed) as box:
            for _ in range(self._options.rounds):
                rounds.append((self._fps(self._ours, seconds), self._fps(box, seconds)))
        ratios = [a / b for a, b in rounds]
        one, other = (statistics.median(figures) for figures in zip(*rounds, strict=True))
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(
            f"{what} {fixed}: {one:.1f} against {other:.1f} frames/s, median ratio {statistics.median(ratios):.2f} "
            f"({spread})",
            flush=True,
        )

    def learning(self) -> None:
        """What is expected on the slowed core after 50 runs there, and after many more."""
        self._fps(self._ours, 0.2)
        runs = self._runs()
        while self._runs() < runs + 50:
            self._fps(self._ours, 0.2)
        early, count = self._expected(), self._runs() - runs
        self._fps(self._ours, 2 * self._options.seconds)
        late = self._expected()
        ratios = {name: early[name] / late[name] for name in early.keys() & late.keys()}
        told = ", ".join(
            f"{name} {early[name]:.1f} ({ratio:.2f} of {late[name]:.1f})" for name, ratio in ratios.items()
        )
        print(f"expected on the slowed core after {count} runs, ms: {told}", flush=True)

    def _runs(self) -> int:
        """On the second processor."""
        with self._ours.http() as http:
            return int(http.get("/v1/processors").json()[1]["runs"])

    def _expected(self) -> dict[str, float]:
        """Milliseconds of one run there, beside another one, of the variant that serves."""
        found = {}
        with self._ours.http() as http:
            for name in self._names:
                for variant in http.get(f"/v1/models/{name}/variants").json()["items"]:
                    for row in variant["seen"]:
                        if (row["processor"], row["batch"], row["concurrency"]) == (NAMES[1], 1, 2):
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
        return asyncio.run(_frames(requests, self._options.in_flight, seconds))


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
