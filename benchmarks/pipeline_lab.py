"""The lab against the box, pipelines: the same frames at the same times, simulated from what `appliance scenario` says
of the box; finish rate and processor-seconds a frame.

Asked: finish rates within 2 points, cost within 15 %. Frames of nobody who joined come without a pause; those of every
second slice are compared, and only what runs of the slices between took goes into the scenario (`served_ms`), for a
machine with neighbours is not the same from one minute to the next, and no frame that is compared shall have told the
lab anything. The lab simulates the slices that are compared one after the other, once for each of `DRAWS` seeds of the
run times; its figures are the means. Both count a frame as finished that was in time inside the box, with all its
items. With `--state` networks and pictures are made once and kept. Each load's rows are printed as soon as they are
known; the defaults send for 160 s, and take some five minutes with a `--state` that has the networks.
"""

import argparse
import random
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from appliance.cli.connection import Connection
from appliance.cli.scenario import exported
from appliance.client import Client
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.lab.workload import poisson_times
from appliance.wire.scenario import served_ms
from benchmarks import _pipelines as pipelines
from benchmarks import _subjects as subjects
from benchmarks import _zoo
from benchmarks._frame_load import Line
from benchmarks._pipelines import Pictures, Subject

DRAWS = 3
RUNS_KEPT = 256
"""Latest run times of an application that a box keeps."""
CROPS = {"signs": ("lines",), "people": ("crop",), "street": ("persons", "things")}

Runs = dict[tuple[str, str], list[float]]
"""(application, variant) → ms of warm runs."""


def main() -> None:
    """Print both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, help="folder that keeps networks and pictures for the next run")
    parser.add_argument("--seconds", type=float, default=40, help="that are compared, of each load")
    parser.add_argument("--slice", type=float, default=5, help="seconds of a slice")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.4, 0.7], help="of what the processors do")
    parser.add_argument("--kinds", choices=("cpu", "both"), default="cpu", help="of processors; the lab knows one only")
    parser.add_argument("--precisions", nargs="*", default=["int8"], help="beside fp32, when networks are imported")
    parser.add_argument("--slo-factor", type=float, default=1.0, help="of the demo's SLOs, on a machine that is slower")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = pipelines.BOTH if options.kinds == "both" else pipelines.CPU
    begin_s = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - begin_s:4.0f} s] {line}", flush=True)

    with _zoo.kept(options.state) as kept:
        state, zoo = pipelines.imported(kept.parent, options.precisions, kinds)
        say("networks imported")
        with pipelines.box(state, APPLIANCE_PROCESSORS=kinds) as box:
            pipelines.define(box, options.slo_factor)
            found = pipelines.pictures(box, zoo, kept.parent)
            pipelines.settled(box, 30)
            wanted = pipelines.measured(box, found)
            cut = _cut(box, found)
            say(f"{_zoo.machine()}; {options.kinds}, {options.seconds:g} s of each load compared")
            for load in options.loads:
                say("\n".join(_compared(box, wanted, cut, load, options)))


def _cut(box: subjects.LiveBox, found: Pictures) -> dict[str, dict[str, int]]:
    """File → crop → items that it cuts out."""
    cut = {}
    with box.http() as http:
        for name, by_count in found.items():
            for path in (path for paths in by_count.values() for path in paths):
                items = pipelines.frame(http, name, path).json()["items"]
                cut[path] = {crop: _count(items, crop) for crop in CROPS[name]}
    return cut


def _count(items: list[dict[str, Any]], crop: str) -> int:
    here = sum(1 for one in items if one["stage"] == crop and "none" not in one)
    return here + sum(_count(one["items"], crop) for one in items)


def _compared(
    box: subjects.LiveBox,
    wanted: list[Subject],
    cut: dict[str, dict[str, int]],
    load: float,
    options: argparse.Namespace,
) -> list[str]:
    """A line for each pipeline, and one for all."""
    fps, whole_s = load * pipelines.estimated_fps(wanted), 2 * options.seconds
    sent, files = _drawn(wanted, fps, whole_s, options.seed)
    ear = _Ear(box, options.slice, whole_s)
    ear.start()
    run = pipelines.run(box, sent, whole_s)
    ear.join()
    document = exported(Connection(box.url, box.key, None, None, box.state), duration_s=options.seconds)
    document = _with_runs(document, ear.runs) | {"arrivals": [], "duration_s": options.seconds}
    real: dict[str, list[list[float]]] = {}
    for line in sent:
        times_s = line.times_s or []
        kept = [n for n, at_s in enumerate(times_s) if at_s // options.slice % 2]
        real[line.name] = [run.result.lines[line.name].frames[n] for n in kept]
        _put(document, line.name, {"times_s": [_moved(times_s[n], options.slice) for n in kept]})
        for crop in CROPS[line.name]:
            _items(document, line.name, crop, [cut[files[line.name][n]][crop] for n in kept])
    drawn = [simulate(parse_scenario(document | {"seed": seed})).outcome.document() for seed in range(DRAWS)]
    lines = [f"load {load:g}: {fps:.1f} frames/s{'':22}finished   lab    box   points     cost: lab ms  box ms  ratio"]
    for name, frames in real.items():
        rows: list[Any] = [_of(one, name) for one in drawn]
        if not frames:
            continue
        lab_share = sum(row["finish_rate"] for row in rows) / DRAWS
        lab_s = sum(row["cost_per_frame"] for row in rows) / DRAWS
        lines.append(_told(name, len(frames), (lab_share, lab_s), _mean(frames)))
    every = [one for frames in real.values() for one in frames]
    totals = [(_sum(one, "finished_in_time"), _sum(one, "cost"), _sum(one, "frames")) for one in drawn]
    lab = (sum(done / count for done, _, count in totals) / DRAWS, sum(cost / n for _, cost, n in totals) / DRAWS)
    return [*lines, _told("all", len(every), lab, _mean(every))]


def _drawn(
    wanted: list[Subject], fps: float, seconds: float, seed: int
) -> tuple[list[Line], dict[str, dict[int, str]]]:
    """Frames of nobody who joined, and by pipeline the n-th one's picture."""
    lines, files = [], {}
    for plain in pipelines.lines(wanted, fps, 1):
        rng = random.Random(f"{seed}/{plain.name}")
        times_s = list(poisson_times(rng, plain.fps, seconds))
        counts = [min(plain.pictures, key=lambda one: abs(int(one) - rng.randint(0, 8))) for _ in times_s]
        files[plain.name] = {n: rng.choice(plain.pictures[count]) for n, count in enumerate(counts)}
        by_number = {str(n): [path] for n, path in files[plain.name].items()}
        lines.append(Line(plain.name, plain.slo_ms, by_number, times_s=times_s, counts=list(range(len(times_s)))))
    return lines, files


def _near(line: Line, wanted: int) -> str:
    """The number of items next to it that there is a picture with."""
    return min(line.pictures, key=lambda count: (abs(int(count) - wanted), int(count)))


def _moved(at_s: float, slice_s: float) -> float:
    """When it comes where the slices that are compared follow one another."""
    number, rest_s = divmod(at_s, slice_s)
    return round(number // 2 * slice_s + rest_s, 6)


class _Ear(threading.Thread):
    """Hears what runs took in the slices between, of those that the box keeps."""

    def __init__(self, box: subjects.LiveBox, slice_s: float, seconds: float) -> None:
        super().__init__(daemon=True)
        self._box = box
        self._slice_s, self._seconds = slice_s, seconds
        self.runs: Runs = defaultdict(list)

    def run(self) -> None:
        """Until the frames end."""
        begin_s = time.monotonic() + 0.5  # about when the other process has begun
        before = self._asked()
        for number in range(int(self._seconds / self._slice_s)):
            time.sleep(max(0.0, begin_s + (number + 1) * self._slice_s - time.monotonic()))
            now = self._asked()
            if number % 2 == 0:
                self._hear({name: count - before.get(name, 0) for name, count in now.items()})
            before = now

    def _hear(self, counts: dict[str, int]) -> None:
        with Client(self._box.url, self._box.key) as client:
            for name, count in counts.items():
                if count > 0:
                    for variant, times_ms in client.run_times(name).items():
                        self.runs[name, variant] += times_ms[-min(count, RUNS_KEPT) :]

    def _asked(self) -> dict[str, int]:
        """Application → items that it was asked."""
        found: dict[str, int] = defaultdict(int)
        with Client(self._box.url, self._box.key) as client:
            for row in client.pipelines():
                status = client.pipeline(row.name)
                for stage in status.stages:
                    if (application := getattr(stage, "application", None)) and stage.name in status.figures:
                        found[application] += status.figures[stage.name].items
        return dict(found)


def _with_runs(document: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """The scenario with these run times in place of the box's latest; applications are called as their models."""
    processor = document["box"]["processors"][0]["name"]
    models = [
        {
            **model,
            "variants": [
                {**v, "served_ms": served_ms(processor, runs.get((model["name"], v["name"]), []))}
                for v in model["variants"]
            ],
        }
        for model in document["models"]
    ]
    return {**document, "models": models}


def _put(document: dict[str, Any], name: str, facts: dict[str, Any]) -> None:
    """In place of the rate and the clients of a pipeline."""
    entry = _entry(document, name)
    entry.pop("rate_rps", None)
    entry |= {"clients": [], **facts}


def _items(document: dict[str, Any], name: str, crop: str, items: list[int]) -> None:
    stage = next(one for one in _entry(document, name)["stages"] if one["name"] == crop)
    stage.pop("fan_out", None)
    stage["items"] = items


def _entry(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["pipelines"] if one["name"].rpartition("/")[2] == name)
    return found


def _of(document: dict[str, Any], name: str) -> Any:
    return next(value for key, value in document["pipelines"].items() if key.rpartition("/")[2] == name)


def _sum(document: dict[str, Any], key: str) -> float:
    return float(sum(one[key] for one in document["pipelines"].values()))


def _mean(frames: list[list[float]]) -> tuple[float, float]:
    """Part that was in time, and seconds a frame."""
    count = max(1, len(frames))
    return sum(one[0] for one in frames) / count, sum(one[1] for one in frames) / count


def _told(name: str, count: int, lab: tuple[float, float], box: tuple[float, float]) -> str:
    points = 100 * (lab[0] - box[0])
    return (
        f"  {name:10} {count:6} frames {'':20} {lab[0]:6.3f} {box[0]:6.3f} {points:+7.1f} (≤ 2) {1e3 * lab[1]:12.1f} "
        f"{1e3 * box[1]:7.1f} {box[1] / max(lab[1], 1e-9):6.2f} (0.85-1.15)"
    )


if __name__ == "__main__":
    main()
