"""An idle box after traffic: its events, log, processor time and transitions, against what is asked.

A real box serves the README's model: one application asked twice, one a few hundred times. Once the forecasts have
ended (or `--patience` is over) it is left alone. Asked: ≤ 2 events a minute, ≤ 20 kB of log an hour, ≤ 0.5 % of one
core, no transition.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.demo.zoo import toys
from benchmarks import _box as boxes
from benchmarks import _results as results

ASKED = {"twice": (2, 0.4), "often": (300, 0.02)}
"""Application → requests, and seconds between two of them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Running totals of a box at a time."""

    at_s: float
    events: int
    log_bytes: int
    cpu_s: float
    transitions: int


def main() -> None:
    """Print what the traffic left behind, and what the idle minutes cost."""
    parser = results.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for the forecasts to end")
    options = results.options(parser)
    settings = {"APPLIANCE_LOG__LEVEL": "info", "APPLIANCE_LOG__FORMAT": "json"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "box.log"
        with boxes.box(Path(folder) / "state", log, **settings) as box:
            _import(box, Path(folder))
            start = _read(box, log)
            _ask(box, Path(folder))
            ended_s = _await_end(box, options.patience)
            idle = _read(box, log)
            results.row(
                "traffic, and the end of its forecasts",
                after_s=ended_s,
                transitions=idle.transitions - start.transitions,
                events=idle.events - start.events,
            )
            time.sleep(options.minutes * 60)
            _report(idle, _read(box, log))


def _import(box: boxes.LiveBox, folder: Path) -> None:
    environment = {**os.environ, "APPLIANCE_KEY": box.key}
    for seed, name in enumerate(ASKED):  # models of equal content would be one
        toys.digits(folder / name, seed)
        subprocess.run(
            [sys.executable, "-m", "appliance", "import", str(folder / name), "--name", name, "--url", box.url],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _ask(box: boxes.LiveBox, folder: Path) -> None:
    with box.client() as client:
        for name, (count, pause_s) in ASKED.items():
            for _ in range(count):
                client.predict(name, folder / "often" / "evaluation" / "0003.png")
                time.sleep(pause_s)


def _await_end(box: boxes.LiveBox, patience_s: float) -> float | None:
    """Seconds until nothing is expected any more; None when that did not happen."""
    start = time.perf_counter()
    while time.perf_counter() - start < patience_s:
        if all(row["expected_in_ms"] is None for row in _residency(box)["applications"]):
            return time.perf_counter() - start
        time.sleep(1)
    return None


def _residency(box: boxes.LiveBox) -> dict[str, Any]:
    with box.http() as http:
        found: dict[str, Any] = http.get("/v1/memory").raise_for_status().json()["residency"]
        return found


def _read(box: boxes.LiveBox, log: Path) -> Reading:
    transitions = _residency(box)["transitions"]
    time.sleep(1)  # the question itself is no part of what is measured
    text = log.read_text()
    return Reading(
        time.perf_counter(),
        text.count('"component": "events"'),
        len(text.encode()),
        boxes.cpu_s(box.process.pid),
        transitions,
    )


def _report(before: Reading, after: Reading) -> None:
    seconds = after.at_s - before.at_s
    share = (after.cpu_s - before.cpu_s) / seconds
    results.row("events", idle_s=seconds, a_minute=(after.events - before.events) * 60 / seconds, asked="≤ 2")
    results.row("log", kB_an_hour=(after.log_bytes - before.log_bytes) * 3.6 / seconds, asked="≤ 20")
    results.row("of one core", percent=100 * share, asked="≤ 0.5")
    results.row("transitions", count=after.transitions - before.transitions, asked="none")


if __name__ == "__main__":
    main()
