"""A busy tenant's P99 while four other applications cold-start continuously, against alone: one real box, real
networks, alternating rounds.

Asked: at most 1.5. A device asks the busy application without a pause; another asks four others in turn, each unloaded
before, so that all their requests are cold. In a third phase the four are asked as often but stay in memory: what is
left of the difference is what loading costs. Both are processes of their own; the box has as many workers as cores.
Percentiles are over all rounds of a phase together.
"""

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import NamedTuple

import httpx

from appliance.cli.replay_inputs import Feed, Sizes
from benchmarks import _box as boxes
from benchmarks import _zoo as zoo
from benchmarks._steal import undisturbed
from tests.e2e.load import drive

BUSY, OTHERS = "faces", ("read-text", "who", "what", "page-side")
WARM_UP_S = 0.3


def main() -> None:
    """Print the percentiles of each phase and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models for the next run")
    options = parser.parse_args()
    with zoo.kept(options.keep) as state:
        zoo.imported(state, "demo", (BUSY, *OTHERS))
        with boxes.box(state) as box, box.http() as http:
            print(zoo.machine())
            busy, others = _request(http, BUSY, box.key), Others(http)
            rounds = undisturbed(lambda: _round(box, busy, others, options.seconds), options.rounds, 300)
    _show(rounds, options.seconds)


class _Round(NamedTuple):
    """Times of requests to the busy application, ms, by what happened beside them."""

    alone: list[float]
    cold: list[float]
    warm: list[float]
    starts: int


def _round(box: boxes.LiveBox, busy: bytes, others: "Others", seconds: float) -> _Round:
    found = _Round([], [], [], 0)
    _drive(box, busy, seconds, found.alone)
    with others.asked(cold=True) as count:
        elapsed_s = _drive(box, busy, seconds, found.cold)
    starts = count[0]
    with others.asked(cold=False, rate_rps=starts / elapsed_s):
        _drive(box, busy, seconds, found.warm)
    return found._replace(starts=starts)


def _show(rounds: list[_Round], seconds: float) -> None:
    phases = {
        name: [time_ms for one in rounds for time_ms in times(one)]
        for name, times in (
            ("alone", attrgetter("alone")),
            ("cold starts", attrgetter("cold")),
            ("no cold starts", attrgetter("warm")),
        )
    }
    starts_per_s = sum(one.starts for one in rounds) / (len(rounds) * seconds)
    for name, times in phases.items():
        p50, p90, p99 = (zoo.percentile(times, p) for p in (50, 90, 99))
        print(f"{name:15} {len(times):6} requests  P50 {p50:6.1f}  P90 {p90:6.1f}  P99 {p99:6.1f} ms")
    alone, cold, warm = (zoo.percentile(times, 99) for times in phases.values())
    print(
        f"{starts_per_s:.1f} cold starts/s; P99 beside them / alone {cold / alone:.2f} (asked ≤ 1.5); "
        f"the same requests without loading / alone {warm / alone:.2f}"
    )


def _drive(box: boxes.LiveBox, request: bytes, seconds: float, times: list[float]) -> float:
    """Ask the busy application; returns the seconds it took, warm-up included."""
    start = time.perf_counter()
    drive(box.port, [request], 1, WARM_UP_S)
    figures = drive(box.port, [request], 1, seconds, keep_times=True)
    times.extend(figures["times_ms"])
    return time.perf_counter() - start


class Others:
    """Asks the other applications in turn, in a thread."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._calls = [(name, *_body(http, name)) for name in OTHERS]

    @contextmanager
    def asked(self, *, cold: bool, rate_rps: float | None = None) -> Iterator[list[int]]:
        """While it is open; gives the number of requests so far.

        `cold`: each is unloaded before, so that its request loads it.
        """
        for name, _, _ in self._calls:
            self._http.post(f"/v2/repository/models/{name}/load").raise_for_status()
        done, count = threading.Event(), [0]

        def work() -> None:
            start = time.perf_counter()
            while not done.is_set():
                self._once(count[0], cold=cold)
                count[0] += 1
                if rate_rps:
                    done.wait(max(0.0, start + count[0] / rate_rps - time.perf_counter()))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield count
        finally:
            done.set()
            thread.join()

    def _once(self, number: int, *, cold: bool) -> None:
        name, body, json_length = self._calls[number % len(self._calls)]
        if cold:
            self._http.post(f"/v2/repository/models/{name}/unload").raise_for_status()
            self._http.post(f"/v2/repository/models/{name}/load").raise_for_status()
        headers = {"Inference-Header-Content-Length": str(json_length)}
        self._http.post(f"/v2/models/{name}/infer", content=body, headers=headers).raise_for_status()


def _body(http: httpx.Client, name: str) -> tuple[bytes, int]:
    image = http.get(f"/v1/models/{name}").json()["task"]["image"] or {}
    inputs = http.get(f"/v2/models/{name}").json()["inputs"]
    return Feed(inputs, Random(1), Sizes(image.get("height"), image.get("width"))).body()


def _request(http: httpx.Client, name: str, key: str) -> bytes:
    body, json_length = _body(http, name)
    lines = [
        f"POST /v2/models/{name}/infer HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {key}",
        f"Inference-Header-Content-Length: {json_length}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


if __name__ == "__main__":
    main()
