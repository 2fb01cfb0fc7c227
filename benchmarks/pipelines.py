"""The demo's pipelines under load, against the box's capacity and other planners; and how long a planning takes.

A real box in a process of its own with `signs`, `people` and `street`, which take as much of the processors each; their
clients, in a third process, join, send frames with 0 to 8 items at their rate, and leave. First the box's capacity: the
most frames in time a second at any of a row of rising rates. Then

  load      70 % of it for `--seconds`, clients coming and going: frames in time >= 0.98;
  over      150 % of it for `--overload` seconds, weights equal: frames in time a second / the best at any load >= 0.9;
            then `street` with twice the weight of the others: what each pipeline does in time / its fair share of all
            that is done, by weights and by what it asks for, >= 0.7;
  cost      processor-seconds of a frame in time, boxes in turns at the same 70 %: / batch 1, concurrency 1 and ONNX
            Runtime only <= 0.85; / each planner to compare with <= 1.02.

Without a box: `planning` of eight pipelines <= 150 ms of processor time, and the event loop's P99 lateness meanwhile,
with the planning in a thread and in the process that a box has for it, <= 1.05 of that without. With `--state` networks
and pictures are made once and kept. Where something else takes the machine, figures are worth nothing: rows say what
was stolen.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from appliance.policies.allocation import ALLOCATION_POLICIES, DEFAULT
from appliance.policies.allocation.several import Demand, plan_several
from appliance.runtime.pipelines.process_background import ProcessBackground
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerNotBegun, PlannerProcess
from benchmarks import _box as boxes
from benchmarks import _pipelines as pipelines
from benchmarks import _results as results
from benchmarks import _zoo
from benchmarks._pipelines import Run, Subject
from tests.instances.pipelines import demands

SHARES = (0.35, 0.5, 0.65, 0.8, 0.95, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0)
"""Of what the processors would do by what single frames take: rates that are tried for the capacity."""
FALLS = 2
"""Rates in a row with fewer in time than the best, after which no higher one is tried."""
LOAD, OVERLOAD = 0.7, 1.5
WEIGHTS = {"signs": 1.0, "people": 1.0, "street": 2.0}
PARTS = ("planning", "load", "over", "cost")
PLANNERS = ("nexus-like", "greedy", "concurrency-1")
TICK_S = 0.001


def main() -> None:
    """Run the parts that are asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--state", type=Path, help="folder that keeps networks and pictures for the next run")
    parser.add_argument("--seconds", type=float, default=600, help="of the part `load`")
    parser.add_argument("--overload", type=float, default=60, help="seconds of each half of the part `over`")
    parser.add_argument("--step", type=float, default=15, help="seconds of each rate that is tried for the capacity")
    parser.add_argument("--round", type=float, default=40, help="seconds of each round of the other parts")
    parser.add_argument("--rounds", type=int, default=3, help="of the part `cost`; 20 plannings in each of `planning`")
    parser.add_argument("--clients", type=int, default=4, help="of each pipeline at once")
    parser.add_argument("--stay", type=float, default=30, help="seconds, mean, that clients stay in the part `load`")
    parser.add_argument("--planners", nargs="*", default=PLANNERS, help="that the part `cost` compares with")
    parser.add_argument("--capacity", type=float, help="frames a second, where it is known")
    parser.add_argument("--kinds", choices=("both", "cpu"), default="both", help="of processors: cpu and openvino")
    parser.add_argument("--precisions", nargs="*", default=["int8"], help="beside fp32, when networks are imported")
    parser.add_argument("--slo-factor", type=float, default=1.0, help="of the demo's SLOs, on a machine that is slower")
    parser.add_argument("--pipelines", type=int, default=8, help="of the part `planning`")
    options = results.options(parser)
    if "planning" in options.part:
        _planning(options)
    if set(options.part) - {"planning"}:
        with _zoo.kept(options.state) as state:
            Bench(state.parent, options).run()


# -- planning ----------------------------------------------------------------------------------------------------------


def _planning(options: argparse.Namespace) -> None:
    count, workers = options.pipelines, pipelines.workers()
    names = ("planned", "problems", "processor ms", "worst", "wall ms", "feasible", "of", "on cheaper variants")
    results.head(*names, title=f"{count} pipelines, {workers} workers")
    for title, load, is_kept in (
        ("(not counted)", 0.5, False),
        ("one changed, at 50 %", 0.5, True),
        ("all anew, at 70 %", 0.7, False),
        ("too much, at 110 %", 1.1, False),
        ("too much, at 300 %", 3.0, False),
    ):
        _planned(title, demands(count, workers, load), 20 * options.rounds, is_kept=is_kept)
    for where in ("nowhere", "thread", "process") * 2:
        late_ms = asyncio.run(_loop_lag(demands(count, workers, 0.7), options.round / 2, where))
        results.row(f"event loop, planned twice a second: {where}", late_P99_ms=late_ms)


def _planned(title: str, wanted: Sequence[Demand], rounds: int, *, is_kept: bool) -> None:
    policy = ALLOCATION_POLICIES[DEFAULT]()
    kept = {}
    if is_kept:
        first = plan_several(wanted, policy)
        kept = {name: one.plan.placement for name, one in list(first.served.items())[1:]}
    walls, spent = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        found = plan_several(wanted, policy, kept)
        walls.append(1e3 * (time.perf_counter() - wall))
        spent.append(1e3 * (time.process_time() - cpu))
    feasible = sum(one.plan.feasible for one in found.served.values())
    cheaper = sum(one.level > one.first for one in found.served.values())
    times = (statistics.median(spent), max(spent), statistics.median(walls))
    results.cells(title, found.solved, *times, feasible, len(found.served), cheaper)


async def _loop_lag(wanted: Sequence[Demand], seconds: float, where: str) -> float:
    """P99 of how late a timer of a millisecond is, milliseconds; with a planning twice a second in a thread, or in the
    process that a box has for it, or with none.
    """
    asked = ALLOCATION_POLICIES[DEFAULT]()
    process = PlannerProcess()
    background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, asyncio.to_thread)
    if where == "process":
        await process.call(partial(plan_several, wanted, asked))
    late: list[float] = []
    end = time.perf_counter() + seconds

    async def plan() -> None:
        while time.perf_counter() < end:
            if where == "process":
                await background(partial(plan_several, wanted, asked))
            elif where == "thread":
                await asyncio.to_thread(plan_several, wanted, asked)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(plan())
    while time.perf_counter() < end:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append(1e3 * (time.perf_counter() - begun - TICK_S))
    await task
    await process.close()
    return statistics.quantiles(late, n=100)[98]


# -- load --------------------------------------------------------------------------------------------------------------


class Bench:
    """All parts on a box."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._options = options
        self._folder = folder
        self._kinds = pipelines.BOTH if options.kinds == "both" else pipelines.CPU
        self._state, self._zoo = pipelines.imported(folder, options.precisions, self._kinds)
        self._subjects: list[Subject] = []
        self._capacity = 0.0

    def run(self) -> None:
        """Every part that is asked for."""
        with self._box() as box:
            self._prepare(box)
            for name, part in (("load", self._load), ("over", self._over)):
                if name in self._options.part:
                    part(box)
        if "cost" in self._options.part:
            self._cost()

    def _box(self, state: Path | None = None, **environment: str) -> AbstractContextManager[boxes.LiveBox]:
        return pipelines.box(state or self._state, **{"APPLIANCE_PROCESSORS": self._kinds, **environment})

    def _prepare(self, box: boxes.LiveBox) -> None:
        pipelines.define(box, self._options.slo_factor)
        found = pipelines.pictures(box, self._zoo, self._folder)
        pipelines.settled(box, 30)
        self._subjects = pipelines.measured(box, found)
        for one in self._subjects:
            results.row(one.name, pictures_with_items=", ".join(one.pictures), frame_ms=1e3 * one.cost_s)
        self._capacity = self._options.capacity or max(run.fps for run in self._searched(box))
        results.row("capacity", in_time_per_s=self._capacity)

    def _searched(self, box: boxes.LiveBox) -> list[Run]:
        """Runs at rising rates."""
        runs: list[Run] = []
        guess, best, falls = pipelines.estimated_fps(self._subjects), 0.0, 0
        for share in SHARES:
            wanted = pipelines.lines(self._subjects, share * guess, self._options.clients)
            runs.append(pipelines.run(box, f"{share:.0%} of the estimate", wanted, self._options.step))
            falls = falls + 1 if runs[-1].fps < best else 0
            best = max(best, runs[-1].fps)
            if falls >= FALLS:
                break
        return runs

    def _load(self, box: boxes.LiveBox) -> None:
        options = self._options
        wanted = pipelines.lines(self._subjects, LOAD * self._capacity, options.clients, stay_s=options.stay)
        found = pipelines.run(box, "70 %", wanted, options.seconds)
        worst = min(one.in_time / one.sent for one in found.result.lines.values() if one.sent)
        said = found.result.total("said_in_time") / max(1.0, found.result.total("sent"))
        results.row("load: in time", share=found.share, worst_pipeline=worst, as_the_box_says=said, asked="≥ 0.98")

    def _over(self, box: boxes.LiveBox) -> None:
        options = self._options
        rate = OVERLOAD * self._capacity
        at_most = pipelines.lines(self._subjects, self._capacity, options.clients)
        before = pipelines.run(box, "100 %", at_most, options.step)
        wanted = pipelines.lines(self._subjects, rate, options.clients)
        found = pipelines.run(box, "150 %", wanted, options.overload)
        per_free = (found.fps / found.free) / (before.fps / before.free)
        ratio = found.fps / max(self._capacity, before.fps)
        results.row("over: in time a second / the best", ratio=ratio, per_free_processor=per_free, asked="≥ 0.9")
        self._shares(found, dict.fromkeys(WEIGHTS, 1.0), "equal weights")
        pipelines.weigh(box, WEIGHTS)
        weighed = pipelines.run(box, "150 %, weights 1, 1, 2", wanted, options.overload)
        pipelines.weigh(box, dict.fromkeys(WEIGHTS, 1.0))
        self._shares(weighed, WEIGHTS, "weights 1, 1, 2")

    def _shares(self, found: Run, weights: Mapping[str, float], title: str) -> None:
        costs = {one.name: one.cost_s for one in self._subjects}
        done = {name: one.in_time * costs[name] for name, one in found.result.lines.items()}
        asked = {name: one.sent * costs[name] for name, one in found.result.lines.items()}
        fair = fair_shares(sum(done.values()), asked, weights)
        shares = {name: done[name] / max(fair[name], 1e-9) for name in done}
        results.row(f"over, {title}: done in time / fair share", **shares, least=min(shares.values()), asked="≥ 0.7")

    def _cost(self) -> None:
        """Boxes in turns; each has a state of its own: a box without a kind of processor forgets what was measured
        there, and the next box with it would measure again meanwhile.
        """
        base = {
            "APPLIANCE_PROCESSORS": pipelines.CPU,
            "APPLIANCE_POLICIES__BATCHING": "none",
            "APPLIANCE_POLICIES__ALLOCATION": "single",
        }
        ways: dict[str, dict[str, str]] = {"ours": {}, "batch 1, concurrency 1, ORT only": base}
        ways |= {planner: {"APPLIANCE_POLICIES__ALLOCATION": planner} for planner in self._options.planners}
        names = list(ways)
        states = {name: _zoo.copied(self._state, str(number)) for number, name in enumerate(names)}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for number in range(self._options.rounds):
            at = number % len(names)
            for name in names[at:] + names[:at]:
                with self._box(states[name], **ways[name]) as box:
                    found[name].append(self._cost_of(box, name, number))
        for name in names[1:]:
            asked = "≤ 0.85" if name.startswith("batch 1") else "≤ 1.02"
            for column, what in enumerate(("runs", "all of the box")):
                ratios = [one[column] / other[column] for one, other in zip(found["ours"], found[name], strict=True)]
                what = f"cost of a frame in time, {what}: ours / {name}"
                results.row(what, **results.spread(ratios), asked=asked)

    def _cost_of(self, box: boxes.LiveBox, name: str, number: int) -> tuple[float, float]:
        """Seconds of runs and of the whole box for a frame in time."""
        options = self._options
        pipelines.define(box, options.slo_factor)
        wanted = pipelines.lines(self._subjects, LOAD * self._capacity, options.clients)
        pipelines.run(box, f"{name} (not counted)", wanted, options.round / 4, seed=100)
        found = pipelines.run(box, name, wanted, options.round, seed=number + 1)
        count = max(1.0, found.in_time)
        return sum(found.stage_s.values()) / count, found.box_s / count


def fair_shares(done: float, asked: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """What each would have of all that is done, by weight; what asks for less than its share leaves the rest."""
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


if __name__ == "__main__":
    main()
