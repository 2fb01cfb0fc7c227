"""A busy tenant's P99 while four other applications cold-start continuously, against alone: one real box, real networks, alternating rounds.

Asked: at most 1.5. A device asks the busy application without a pause; another asks four others in turn, each unloaded before, so that all their
requests are cold. Both are processes of their own; the box has as many workers as cores.
"""

import argparse
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx

from appliance.cli.replaying import infer_body
from tests.benchmarks import _subjects as subjects
from tests.benchmarks import _zoo as zoo

BUSY, OTHERS = "faces", ("read-text", "who", "what", "page-side")
WARM_UP_S = 0.5


def main() -> None:
    """Print each round and the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--keep", type=Path, help="folder that keeps the imported models for the next run")
    options = parser.parse_args()
    with zoo.kept(options.keep) as state:
        zoo.imported(state, "demo", (BUSY, *OTHERS))
        with subjects.box(state) as box, box.http() as http:
            print(zoo.machine())
            request = _request(http, BUSY, box.key)
            others = [_cold(http, name) for name in OTHERS]
            rows = [_round(box, request, others, options.seconds) for _ in range(options.rounds)]
    ratios = [beside / alone for alone, beside in rows]
    print(f"median ratio of P99 {zoo.median(ratios):.2f} (asked ≤ 1.5; rounds {min(ratios):.2f}-{max(ratios):.2f})")


def _round(
    box: subjects.LiveBox, request: bytes, others: list[Callable[[], None]], seconds: float
) -> tuple[float, float]:
    subjects.drive(box.port, [request], 1, WARM_UP_S)
    alone = subjects.drive(box.port, [request], 1, seconds)
    done, colds = threading.Event(), [0]

    def thrash() -> None:
        while not done.is_set():
            others[colds[0] % len(others)]()
            colds[0] += 1

    thread = threading.Thread(target=thrash)
    thread.start()
    try:
        beside = subjects.drive(box.port, [request], 1, seconds)
    finally:
        done.set()
        thread.join()
    if alone["errors"] or beside["errors"]:
        raise RuntimeError("the busy application was refused")
    print(
        f"alone P50 {alone['p50_ms']:6.1f} P99 {alone['p99_ms']:6.1f} ms   "
        f"beside {colds[0] / seconds:.1f} cold starts/s: P50 {beside['p50_ms']:6.1f} P99 {beside['p99_ms']:6.1f} ms   "
        f"ratio {beside['p99_ms'] / alone['p99_ms']:.2f}",
        flush=True,
    )
    return alone["p99_ms"], beside["p99_ms"]


def _body(http: httpx.Client, name: str) -> tuple[bytes, int]:
    image = http.get(f"/v1/models/{name}").json()["task"]["image"] or {}
    inputs = http.get(f"/v2/models/{name}").json()["inputs"]
    return infer_body(inputs, Random(1), (image.get("height"), image.get("width")))


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


def _cold(http: httpx.Client, name: str) -> Callable[[], None]:
    """A call that loads the application anew, runs it once and unloads it."""
    body, json_length = _body(http, name)
    headers = {"Inference-Header-Content-Length": str(json_length)}

    def once() -> None:
        http.post(f"/v2/repository/models/{name}/unload").raise_for_status()
        http.post(f"/v2/repository/models/{name}/load").raise_for_status()
        http.post(f"/v2/models/{name}/infer", content=body, headers=headers).raise_for_status()

    return once


if __name__ == "__main__":
    main()
