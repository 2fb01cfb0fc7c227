"""The demo's pipelines under load: frames in time, shares, what frames cost beside other ways, what a kill leaves.

A real box in a process of its own with `signs`, `people` and `street`, which take as much of the processors each; their
clients, in a third process, join, send frames with 0 to 8 items at their rate, and leave. First the box's capacity: the
most frames in time a second at any of a row of rising rates. Then

  load     70 % of it for `--seconds` (600), clients coming and going: frames in time ≥ 0.98;
  over     150 % of it for `--overload` seconds, weights equal: frames in time a second against the best at any load
           ≥ 0.9; then `street` with twice the weight of the others: what each pipeline does in time against its fair
           share of all that is done, by weights and by what it asks for, ≥ 0.7;
  items    from 0 to 8 at once, at 70 % of what the box does with 8: late frames ≤ 1 s worth of them;
  cost     processor-seconds of a frame in time, boxes in turns at the same 70 %: against batch 1, concurrency 1 and
           ONNX Runtime only ≤ 0.85; against each planner to compare with ≤ 1.02;
  loop     the event loop's P99 lateness while clients join and leave eight pipelines, against the same frames without
           ≤ 1.05; a planning ≤ 150 ms;
  kill     all runs in processes of their owners (guards), one of which is killed every two seconds: frames without an
           answer, with two, or with that of another frame: 0.

With `--state` networks and pictures are made once and kept. Where something else takes the machine, figures are worth
nothing: each line says what was stolen and the load.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import psutil

from benchmarks import _box as boxes
from benchmarks import _pipelines as pipelines
from benchmarks import _zoo
from benchmarks._pipelines import ITEMS_MAX, Run, Subject
from benchmarks._watched_box import lateness_ms

SHARES = (0.35, 0.5, 0.65, 0.8, 0.95, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0)
"""Of what the processors would do by what single frames take: rates that are tried for the capacity."""
FALLS = 2
"""Rates in a row with fewer in time than the best, after which no higher one is tried."""
LOAD, OVERLOAD, LIGHT = 0.7, 1.5, 0.3
WEIGHTS = {"signs": 1.0, "people": 1.0, "street": 2.0}
PARTS = ("load", "over", "items", "cost", "loop", "kill")
PLANNERS = ("nexus-like", "greedy", "concurrency-1")
COPIES = 3
"""Of the three pipelines, less one: eight."""
KILL_EVERY_S = 2.0


def main() -> None:
    """Print a table of what was found beside what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, help="folder that keeps networks and pictures for the next run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=600, help="of the part `load`")
    parser.add_argument("--overload", type=float, default=60, help="seconds of each half of the part `over`")
    parser.add_argument("--step", type=float, default=15, help="seconds of each rate that is tried for the capacity")
    parser.add_argument("--round", type=float, default=40, help="seconds of each round of the other parts")
    parser.add_argument("--rounds", type=int, default=3, help="of the parts `cost` and `loop`")
    parser.add_argument("--clients", type=int, default=4, help="of each pipeline at once")
    parser.add_argument("--stay", type=float, default=30, help="seconds, mean, that clients stay in the part `load`")
    parser.add_argument("--planners", nargs="*", default=PLANNERS, help="that the part `cost` compares with")
    parser.add_argument("--capacity", type=float, help="frames a second, where it is known")
    parser.add_argument("--kinds", choices=("both", "cpu"), default="both", help="of processors: cpu and openvino")
    parser.add_argument("--precisions", nargs="*", default=["int8"], help="beside fp32, when networks are imported")
    parser.add_argument("--slo-factor", type=float, default=1.0, help="of the demo's SLOs, on a machine that is slower")
    options = parser.parse_args()
    with _zoo.kept(options.state) as state:
        Bench(state.parent, options).run()


class Bench:
    """All parts, and what they found."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._options = options
        self._folder = folder
        self._kinds = pipelines.BOTH if options.kinds == "both" else pipelines.CPU
        self._state, self._zoo = pipelines.imported(folder, options.precisions, self._kinds)
        self._rows: list[tuple[str, str, str]] = []
        self._subjects: list[Subject] = []
        self._capacity = self._best = 0.0

    def run(self) -> None:
        """Every part that is asked for."""
        parts: Mapping[str, Callable[[boxes.LiveBox], None]] = {
            "load": self._load,
            "over": self._over,
            "items": self._items,
        }
        asked = self._options.parts
        with self._box() as box:
            self._prepare(box)
            for name in (name for name in parts if name in asked):
                print(f"-- {name}")
                parts[name](box)
        for name, part in (("cost", self._cost), ("loop", self._loop), ("kill", self._kill)):
            if name in asked:
                print(f"-- {name}")
                part()
        print(f"\n{_zoo.machine()}; {self._options.kinds}, capacity {self._capacity:.1f} frames/s")
        wide = max(len(what) for what, _, _ in self._rows)
        for what, value, is_asked in self._rows:
            print(f"{what:{wide}}  {value:>12}  {is_asked}")

    def _box(self, **environment: str) -> AbstractContextManager[boxes.LiveBox]:
        return pipelines.box(self._state, **{"APPLIANCE_PROCESSORS": self._kinds, **environment})

    def _row(self, what: str, value: str, is_asked: str = "") -> None:
        self._rows.append((what, value, is_asked))
        print(f"   {what}: {value} {is_asked and f'(asked {is_asked})'}", flush=True)

    # -- capacity ------------------------------------------------------------------------------------------------------

    def _prepare(self, box: boxes.LiveBox) -> None:
        options = self._options
        pipelines.define(box, options.slo_factor)
        found = pipelines.pictures(box, self._zoo, self._folder)
        print("pictures: " + "; ".join(f"{name} with {', '.join(counts)} items" for name, counts in found.items()))
        pipelines.settled(box, 30)
        self._subjects = pipelines.measured(box, found)
        for one in self._subjects:
            print(f"{one.name}: {1e3 * one.cost_s:.1f} ms a frame with 0 to 8 items, {1e3 * one.full_s:.1f} with most")
        if options.capacity:
            self._capacity = self._best = options.capacity
            return
        runs = self._searched(box, full=False)
        best = max(runs, key=lambda run: run.fps)
        self._capacity = self._best = best.fps
        self._row("capacity, frames in time a second", f"{best.fps:.1f}")
        print("\n".join([*best.by_line(), *best.plans]))

    def _searched(self, box: boxes.LiveBox, *, full: bool) -> list[Run]:
        """Runs at rising rates."""
        runs: list[Run] = []
        guess, best, falls = pipelines.estimated_fps(self._subjects, full=full), 0.0, 0
        for share in SHARES:
            wanted = pipelines.lines(self._subjects, share * guess, self._options.clients, full=full)
            items = [(0.0, ITEMS_MAX if full else 0, ITEMS_MAX)]
            runs.append(pipelines.run(box, wanted, self._options.step, items=items))
            falls = falls + 1 if runs[-1].fps < best else 0
            best = max(best, runs[-1].fps)
            if falls >= FALLS:
                break
        return runs

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _load(self, box: boxes.LiveBox) -> None:
        options = self._options
        wanted = pipelines.lines(self._subjects, LOAD * self._capacity, options.clients, stay_s=options.stay)
        found = pipelines.run(box, wanted, options.seconds)
        print("\n".join([*found.by_line(), *found.plans]))
        self._row(f"70 % for {options.seconds:g} s: frames in time", f"{found.share:.4f}", "≥ 0.98")
        worst = min(one.in_time / one.sent for one in found.result.lines.values() if one.sent)
        self._row("… of the worst pipeline", f"{worst:.4f}")
        said = found.result.total("said_in_time") / max(1.0, found.result.total("sent"))
        self._row("… as the box says, without the way to it", f"{said:.4f}")

    def _over(self, box: boxes.LiveBox) -> None:
        options = self._options
        rate = OVERLOAD * self._capacity
        before = pipelines.run(box, pipelines.lines(self._subjects, self._capacity, options.clients), options.step)
        best = max(self._best, before.fps)
        found = pipelines.run(box, pipelines.lines(self._subjects, rate, options.clients), options.overload)
        print("\n".join([*found.by_line(), *found.plans]))
        self._row("150 %: frames in time a second / the best", f"{found.fps / best:.3f}", "≥ 0.9")
        per_free = (found.fps / found.free) / (before.fps / before.free)
        self._row("… per processor that was left to the box, / at 100 %", f"{per_free:.3f}")
        self._shares(found, dict.fromkeys(WEIGHTS, 1.0), "equal weights")
        pipelines.weigh(box, WEIGHTS)
        weighed = pipelines.run(box, pipelines.lines(self._subjects, rate, options.clients), options.overload)
        print("\n".join([*weighed.by_line(), *weighed.plans]))
        pipelines.weigh(box, dict.fromkeys(WEIGHTS, 1.0))
        self._shares(weighed, WEIGHTS, "weights 1, 1, 2")

    def _shares(self, found: Run, weights: Mapping[str, float], title: str) -> None:
        costs = {one.name: one.cost_s for one in self._subjects}
        done = {name: one.in_time * costs[name] for name, one in found.result.lines.items()}
        asked = {name: one.sent * costs[name] for name, one in found.result.lines.items()}
        fair = fair_shares(sum(done.values()), asked, weights)
        shares = {name: done[name] / max(fair[name], 1e-9) for name in done}
        told = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        self._row(f"150 %, {title}: least share done in time / fair", f"{min(shares.values()):.3f}", f"≥ 0.7 ({told})")

    def _items(self, box: boxes.LiveBox) -> None:
        runs = self._searched(box, full=True)
        capacity = max(run.fps for run in runs)
        seconds = max(10.0, self._options.round)
        at_s = seconds / 2
        rate = LOAD * capacity
        wanted = pipelines.lines(self._subjects, rate, self._options.clients, full=True)
        found = pipelines.run(box, wanted, seconds, items=[(0.0, 0, 0), (at_s, ITEMS_MAX, ITEMS_MAX)])
        lines = [one.seconds for one in found.result.lines.values()]
        late = [sum(line[s][0] - line[s][1] for line in lines) for s in range(int(seconds))]
        before, after = sum(late[: int(at_s)]), sum(late[int(at_s) :])
        print(f"   not in time, by second: {late}")
        self._row(f"0 → 8 items at {rate:.1f} fps: late frames, in seconds of them", f"{after / rate:.2f}", "≤ 1")
        self._row("… in the half before that", f"{before / rate:.2f}")

    # -- boxes in turns ------------------------------------------------------------------------------------------------

    def _cost(self) -> None:
        base = {
            "APPLIANCE_PROCESSORS": pipelines.CPU,
            "APPLIANCE_POLICIES__BATCHING": "none",
            "APPLIANCE_POLICIES__ALLOCATION": "single",
        }
        ways: dict[str, dict[str, str]] = {"ours": {}, "batch 1, concurrency 1, ORT only": base}
        ways |= {planner: {"APPLIANCE_POLICIES__ALLOCATION": planner} for planner in self._options.planners}
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        names = list(ways)
        states = {name: self._folder / f"state-{number}" for number, name in enumerate(names)}
        for state in states.values():
            # Each has its own: a box without a kind of processor forgets what was measured there, and the next one with
            # it would measure again meanwhile.
            shutil.rmtree(state, ignore_errors=True)
            shutil.copytree(self._state, state)
        for number in range(self._options.rounds):
            at = number % len(names)
            for name in names[at:] + names[:at]:
                with pipelines.box(states[name], **{"APPLIANCE_PROCESSORS": self._kinds, **ways[name]}) as box:
                    found[name].append(self._cost_of(box, name, number))
        for name, rows in found.items():
            stage, all_, share = (statistics.median(row[column] for row in rows) for column in range(3))
            print(
                f"   {name}: {1e3 * stage:.1f} ms of runs, {1e3 * all_:.1f} ms of the box a frame in time; {share:.1%}"
            )
        for name in names[1:]:
            limit = "≤ 0.85" if name.startswith("batch 1") else "≤ 1.02"
            for column, what in ((0, "runs"), (1, "all of the box")):
                ratios = [one[column] / other[column] for one, other in zip(found["ours"], found[name], strict=True)]
                told = f"{limit} ({min(ratios):.3f} to {max(ratios):.3f})"
                self._row(f"cost a frame in time, {what}: ours / {name}", f"{statistics.median(ratios):.3f}", told)

    def _cost_of(self, box: boxes.LiveBox, name: str, number: int) -> tuple[float, float, float]:
        """Seconds of runs and of the whole box a frame in time, and the part of the frames that was."""
        options = self._options
        pipelines.define(box, options.slo_factor)
        wanted = pipelines.lines(self._subjects, LOAD * self._capacity, options.clients)
        print(f"{name}, round {number + 1}; first without counting")
        pipelines.run(box, wanted, options.round / 4, seed=100)
        found = pipelines.run(box, wanted, options.round, seed=number + 1)
        if number == 0:
            print("\n".join([*found.by_line(), *found.plans]))
        count = max(1.0, found.in_time)
        return sum(found.stage_s.values()) / count, found.box_s / count, found.share

    def _loop(self) -> None:
        """Frames without and with clients that come and go, in turns."""
        options = self._options
        told = self._folder / "lateness.jsonl"
        told.unlink(missing_ok=True)
        slowest_ms = 0.0
        rounds: list[tuple[float, float]] = []
        with pipelines.box(self._state, told, APPLIANCE_PROCESSORS=self._kinds) as box:
            names = pipelines.define(box, options.slo_factor, COPIES)
            with box.http() as http:
                http.delete(f"/v1/pipelines/{names.pop()}").raise_for_status()
            alike = {one.name: one for one in self._subjects}
            wanted = [
                Subject(name, one.slo_ms, one.pictures, one.cost_s, one.full_s)
                for name in names
                for one in [alike[name.rpartition("-")[0]]]
            ]
            fps = LIGHT * self._capacity
            pipelines.run(box, pipelines.lines(wanted, fps, 1), options.round / 2, seed=100)
            for number in range(options.rounds):
                p99_ms = []
                for churn_s in (0.0, 0.2):
                    before = pipelines.metrics(box, "appliance_pipeline_problems_total")
                    with _Slowest(box) as slowest:
                        found = pipelines.run(
                            box, pipelines.lines(wanted, fps, 1), options.round, churn_s=churn_s, seed=number + 1
                        )
                    late_ms = sorted(lateness_ms(told, found.began_s + 1.0, found.ended_s))
                    p99_ms.append(late_ms[len(late_ms) * 99 // 100])
                    solved = sum(pipelines.metrics(box, "appliance_pipeline_problems_total").values())
                    print(
                        f"   {'joins and leaves' if churn_s else 'without'}: P50 {late_ms[len(late_ms) // 2]:.2f}, P99 "
                        f"{p99_ms[-1]:.2f} ms late, {solved - sum(before.values()):.0f} problems solved, longest "
                        f"planning {slowest.ms:.0f} ms"
                    )
                    slowest_ms = max(slowest_ms, slowest.ms)
                rounds.append((p99_ms[0], p99_ms[1]))
        ratios = [many / few for few, many in rounds]
        limit = f"≤ 1.05 ({min(ratios):.2f} to {max(ratios):.2f})"
        self._row("event loop's P99, planning 8 pipelines / not", f"{statistics.median(ratios):.3f}", limit)
        self._row("a planning of 8 pipelines, longest, ms", f"{slowest_ms:.0f}", "≤ 150")

    def _kill(self) -> None:
        options = self._options
        kills = 0
        with self._box(APPLIANCE_GUARD__ISOLATION="process") as box:
            pipelines.define(box, options.slo_factor)
            wanted = pipelines.lines(self._subjects, LIGHT * self._capacity, options.clients)
            pipelines.run(box, wanted, options.round / 4, seed=100)
            with _Killer(box) as killer:
                found = pipelines.run(box, wanted, options.round)
            kills = killer.kills
            print("\n".join(found.by_line()))
            count = pipelines.metrics(box, "appliance_pipeline_frames_total")
        one = found.result
        print(f"   frames of the box's metrics: {count}")
        wrong = one.total("lost") + one.total("twice") + one.total("wrong")
        self._row(f"{kills} processes killed: frames without, with two, with a wrong answer", f"{wrong:.0f}", "0")
        self._row("… frames with an item that failed", f"{one.total('with_errors'):.0f}")


def fair_shares(done: float, asked: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """What each would have of all that is done, by weight; who asks for less than its share leaves the rest."""
    found: dict[str, float] = {}
    waiting, left = set(asked), done
    while waiting:
        total = sum(weights[name] for name in waiting)
        content = {name for name in waiting if asked[name] <= left * weights[name] / total}
        if not content:
            return found | {name: left * weights[name] / total for name in waiting}
        found |= {name: asked[name] for name in content}
        left -= sum(asked[name] for name in content)
        waiting -= content
    return found


class _Watch:
    """A thread beside a load."""

    every_s = 0.5

    def __init__(self, box: boxes.LiveBox) -> None:
        self._box = box
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)

    def __enter__(self):  # type: ignore[no-untyped-def]  # itself
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _turn(self) -> None:
        while not self._ended.wait(self.every_s):
            self.look()

    def look(self) -> None:
        """Once."""
        raise NotImplementedError


class _Slowest(_Watch):
    """The longest planning."""

    ms = 0.0

    def look(self) -> None:
        found = pipelines.metrics(self._box, "appliance_pipeline_planning_seconds")
        self.ms = max(self.ms, 1e3 * sum(found.values()))


class _Killer(_Watch):
    """Kills a guard now and then."""

    every_s = KILL_EVERY_S
    kills = 0

    def look(self) -> None:
        guards = guards_of(self._box)
        if guards:
            with suppress(ProcessLookupError):
                os.kill(random.Random(self.kills).choice(guards), signal.SIGKILL)
                self.kills += 1


def guards_of(box: boxes.LiveBox) -> list[int]:
    """Processes that the fork server has forked."""
    found = []
    for child in psutil.Process(box.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            if any("forkserver" in word for word in child.cmdline()):
                found += [one.pid for one in child.children()]
    return sorted(found)


if __name__ == "__main__":
    main()
