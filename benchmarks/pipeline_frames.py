"""What a pipeline saves beside clients that go from network to network themselves, and what it costs beside `predict`.

Asked of `signs` (find-text → lines → read-text) with eight lines a frame, on an idle box, P50 and processor time of the
box a frame: at most 0.75 and 0.95 of a client that calls stage after stage; at most 0.97 and 1.0 of one that sends all
crops at once over open connections. A pipeline of one stage, read-text of one line, for a network that takes 200 ms
hides what is looked for: at most 0.5 ms above `predict`, each frame against the one beside it.

A box in a process of its own, one frame at a time, the ways in turns frame by frame; only rounds without steal count.
The clients' crops are made as the box makes them and sent as PNG; making them counts, as it does for them. With
`--state` the networks are imported once and kept.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import httpx
import numpy as np
import psutil

from appliance.demo.zoo.inputs import cut_line, with_sign
from benchmarks import _box as boxes
from benchmarks import _steal, _zoo

LINES = ("GATE 7", "EXIT", "PLATFORM 2", "TICKETS", "NO ENTRY", "TAXI", "WAY OUT", "LIFT B")
STAGES: list[dict[str, Any]] = [
    {"name": "find", "application": "find-text"},
    {"name": "lines", "do": "crop", "after": ["find"], "of": "regions", "where": {"score_min": 0.6}, "at_most": 16},
    {"name": "read", "application": "read-text", "after": ["lines"]},
]
ONE_STAGE: list[dict[str, Any]] = [{"name": "read", "application": "read-text"}]
Way = Callable[[], Awaitable[Any]]


class Took(NamedTuple):
    """Of one way in one round: median of a frame, processor time of the box a frame, and each frame."""

    p50_ms: float
    box_ms: float
    frames_ms: list[float]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, help="where the box with the networks is kept")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--frames", type=int, default=10, help="of each way, a round")
    parser.add_argument("--slo-ms", type=float, default=600, help="of the pipelines; plans use up what it leaves")
    asked = parser.parse_args()
    with _zoo.kept(asked.state) as state:
        _zoo.imported(state, "small", ("find-text", "read-text"))
        with boxes.box(state, **_zoo.IMPORTS) as box:
            asyncio.run(_measure(box, asked.rounds, asked.frames, asked.slo_ms))


def _frame() -> bytes:
    """A grey picture with eight drawn signs."""
    image = np.full((480, 640, 3), 120, np.uint8)
    for at, text in enumerate(LINES):
        image, _ = with_sign(image, text, (20 + 310 * (at % 2), 20 + 112 * (at // 2)), 26, at % 3 == 0)
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 92])[1])


def _line() -> bytes:
    """One sign alone."""
    image, _ = with_sign(np.full((40, 160, 3), 120, np.uint8), LINES[0], (8, 4), 26, False)
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 92])[1])


async def _warm(way: Way) -> list[Any]:
    """Frames until one has all its answers: the first ones wait for networks that come into memory."""
    for _ in range(20):
        lines: list[Any] = (await way())["items"][0]["items"]
        if lines and all("answer" in item for line in lines for item in line["items"]):
            return lines
    raise SystemExit("no frame in time has all its answers: give a larger --slo-ms")


async def _measure(box: boxes.LiveBox, rounds: int, frames: int, slo_ms: float) -> None:
    process, jpeg, line = psutil.Process(box.process.pid), _frame(), _line()
    async with httpx.AsyncClient(base_url=box.url, headers=box.headers, timeout=60) as http:
        for name, stages in (("signs", STAGES), ("one", ONE_STAGE)):
            await http.delete(f"/v1/pipelines/{name}")
            order = {"name": name, "latency_slo_ms": slo_ms, "stages": stages}
            (await http.post("/v1/pipelines", json=order)).raise_for_status()
        ways: dict[str, Way] = {
            "pipeline": lambda: _posted(http, "/v1/pipelines/signs/predict", jpeg),
            "stage after stage": lambda: _by_client(http, jpeg, at_once=False),
            "crops at once": lambda: _by_client(http, jpeg, at_once=True),
            "one stage": lambda: _posted(http, "/v1/pipelines/one/predict", line),
            "predict": lambda: _posted(http, "/v1/applications/read-text/predict", line),
        }
        lines = await _warm(ways["pipeline"])
        print(f"JPEG of {len(jpeg)} bytes, {len(lines)} lines: {[one['items'][0]['answer']['text'] for one in lines]}")
        print(f"by hand: {await ways['crops at once']()}")
        for way in ways.values():
            for _ in range(5):
                await way()
        loop = asyncio.get_running_loop()

        def one_round() -> dict[str, Took]:
            return asyncio.run_coroutine_threadsafe(_round(ways, process, frames), loop).result()

        kept = await asyncio.to_thread(_steal.undisturbed, one_round, rounds)
    print(f"{len(kept)} rounds of {frames} frames each, load {os.getloadavg()[0]:.1f}")
    for name in ways:
        p50 = statistics.median(one[name].p50_ms for one in kept)
        cpu = statistics.median(one[name].box_ms for one in kept)
        print(f"{name:18} P50 {p50:7.2f} ms  box {cpu:7.2f} ms a frame")
    for base, time_max, cpu_max in (("stage after stage", 0.75, 0.95), ("crops at once", 0.97, 1.0)):
        of_p50 = sorted(one["pipeline"].p50_ms / one[base].p50_ms for one in kept)
        of_box = sorted(one["pipeline"].box_ms / one[base].box_ms for one in kept)
        for shares, what, most in ((of_p50, "P50", time_max), (of_box, "box", cpu_max)):
            print(
                f"pipeline / {base}: {what} {statistics.median(shares):.3f} ({shares[0]:.3f} to {shares[-1]:.3f}; "
                f"asked ≤ {most})"
            )
    pairs = [zip(one["one stage"].frames_ms, one["predict"].frames_ms, strict=True) for one in kept]
    added = sorted(through - alone for one in pairs for through, alone in one)
    low, middle, high = statistics.quantiles(added, n=4)
    cpu = statistics.median(one["one stage"].box_ms - one["predict"].box_ms for one in kept)
    print(
        f"one stage - predict: P50 {middle:+.2f} ms (quartiles {low:+.2f}, {high:+.2f}; asked ≤ 0.5), box {cpu:+.2f} ms"
    )


async def _round(ways: dict[str, Way], process: psutil.Process, frames: int) -> dict[str, Took]:
    """What each way took."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    spent = dict.fromkeys(ways, 0.0)
    for at in range(frames):
        names = list(ways)
        for name in names[at % len(names) :] + names[: at % len(names)]:
            before, start = _cpu_s(process), time.perf_counter()
            await ways[name]()
            times[name].append((time.perf_counter() - start) * 1000)
            spent[name] += _cpu_s(process) - before
    return {name: Took(statistics.median(times[name]), spent[name] / frames * 1000, times[name]) for name in ways}


def _cpu_s(process: psutil.Process) -> float:
    """Of all threads, as the scheduler counts it: finer than ticks."""
    folder = Path(f"/proc/{process.pid}/task")
    return sum(int((one / "schedstat").read_text().split()[0]) for one in folder.iterdir()) / 1e9


async def _posted(http: httpx.AsyncClient, path: str, body: bytes) -> Any:
    answer = await http.post(path, content=body)
    answer.raise_for_status()
    return answer.json()


async def _by_client(http: httpx.AsyncClient, jpeg: bytes, *, at_once: bool) -> list[str]:
    """What is read, by a client that crops for itself."""
    found = await _posted(http, "/v1/applications/find-text/predict", jpeg)
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    crops = []
    for region in found["regions"]:
        if region["score"] >= 0.6:
            straight = cut_line(np.asarray(image, np.uint8), region["quad"])
            crops.append(bytes(cv2.imencode(".png", straight)[1]))
    read = "/v1/applications/read-text/predict"
    if at_once:
        answers = await asyncio.gather(*(_posted(http, read, crop) for crop in crops))
    else:
        answers = [await _posted(http, read, crop) for crop in crops]
    return [one["text"] for one in answers]


if __name__ == "__main__":
    main()
