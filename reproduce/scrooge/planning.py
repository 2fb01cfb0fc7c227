"""From rates to instances on workers: a policy's plan, and where its parts go (SC-14)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation.base import (
    Allocation,
    AllocationInput,
    AllocationPlan,
    AllocationPolicy,
    BatchWait,
    Existing,
    Module,
    Placed,
    WorkerType,
)
from appliance.policies.allocation.configurations import Pipeline, Stage, StagePlan, configuration
from appliance.policies.allocation.placement import Missing, place
from reproduce.scrooge.applications import CPU, Application, CpuStage

GRID = 1.02
"""Rates are planned for on a grid, up to 2 % above what is asked: plans for nearly the same are the same."""
FULL = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Spot:
    """One instance of a plan on its worker."""

    stage: str
    worker: str
    index: int
    batch: int
    concurrency: int
    share: float
    """Of the worker; 1: it is a full instance."""
    wait_ms: float
    """For company, at most."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """`cost_h`: USD an hour of the shares. `behind_ms`: by stage, what the slowest way behind it runs."""

    spots: tuple[Spot, ...]
    cost_h: float
    behind_ms: Mapping[str, float]


class Planner:
    """One policy for one application and SLO. With `front_ends` that many machines run its CPU stages, which the policy
    does not see then, but for what they take of the SLO (Nexus, §4.2).
    """

    def __init__(
        self, application: Application, policy: AllocationPolicy, slo_ms: float, front_ends: int | None = None
    ) -> None:
        self._application, self._policy = application, policy
        cpu = {name: made for name, made in application.stages.items() if isinstance(made, CpuStage)}
        self._in_front = cpu if front_ends is not None else {}
        self._front_ends = front_ends or 0
        self._slo_ms = slo_ms - sum(made.item_ms for made in self._in_front.values())
        self._profiles = {name: application.profiles(name) for name in application.stages if name not in self._in_front}
        self._edges = self._bridged()
        self._known: dict[tuple[int, ...], tuple[AllocationInput, AllocationPlan]] = {}

    def deployment(self, rates: Mapping[str, float], existing: Collection[Existing]) -> Deployment | None:
        """For items a second by stage; of workers, those that have a stage loaded come first (SC-22). None: nothing
        fits.
        """
        plan = self._allocated(rates)
        if not plan.feasible:
            return None
        placed = _placed(plan.allocations, self._application.workers, existing)
        spots = [*_spots(plan.allocations, placed), *self._front()]
        cost_h = (plan.cost or 0.0) + (self._front_ends * self._application.prices[CPU] if self._in_front else 0.0)
        return Deployment(tuple(spots), cost_h, self._behind(spots))

    def _allocated(self, rates: Mapping[str, float]) -> AllocationPlan:
        """Remembered: placement alone depends on which workers there are."""
        key = tuple(_step(rates.get(name, 0.0)) for name in self._profiles)
        if key not in self._known:
            modules = tuple(
                Module(name, GRID**step if step > _NOTHING else 0.0, profiles)
                for step, (name, profiles) in zip(key, self._profiles.items(), strict=True)
            )
            left_ms = max(1.0, self._slo_ms - self._together_ms(modules))
            problem = AllocationInput(
                left_ms,
                self._application.workers,
                modules,
                self._edges,
                cost_by=CostBy.PRICE,
                batch_wait=BatchWait.REST,
            )
            self._known[key] = problem, self._policy.plan(problem)
        return self._known[key][1]

    def known(self) -> list[tuple[AllocationInput, AllocationPlan]]:
        """What was decided so far, that was feasible."""
        return [(problem, plan) for problem, plan in self._known.values() if plan.allocations]

    def _together_ms(self, modules: Sequence[Module]) -> float:
        """What the last item of a frame waits for the others of it, on the slowest way: they come at once, which no
        policy knows, and so it is taken off the SLO, as the box does.
        """
        first, waits = self._application.root, dict[str, float]()
        frames_rps = next(module.rate_rps for module in modules if module.name == first)
        for module in modules:
            each_ms = min(p.latency_ms / (p.batch * p.concurrency) for p in module.profiles)
            workers = max(1.0, module.rate_rps * each_ms / 1000.0)
            waits[module.name] = max(0.0, module.rate_rps / frames_rps - 1.0) * each_ms / workers if frames_rps else 0.0
        return waits[first] + _behind(first, self._edges, waits)

    def _bridged(self) -> tuple[tuple[str, str], ...]:
        """Edges between the stages that the policy sees."""
        found = set()
        for name in self._profiles:
            ahead = [edge.target for edge in self._application.after[name]]
            while ahead:
                target = ahead.pop()
                if target in self._profiles:
                    found.add((name, target))
                else:
                    ahead += [edge.target for edge in self._application.after[target]]
        return tuple(sorted(found))

    def _front(self) -> list[Spot]:
        return [Spot(name, CPU, index, 1, 1, 1.0, 0.0) for name in self._in_front for index in range(self._front_ends)]

    def _behind(self, spots: Sequence[Spot]) -> dict[str, float]:
        """By stage, what the slowest way behind it runs."""
        runs: dict[str, float] = dict.fromkeys(self._application.stages, 0.0)
        for spot in spots:
            takes_ms = self._application.run_ms(spot.stage, spot.worker, spot.batch, spot.concurrency)
            runs[spot.stage] = max(runs[spot.stage], takes_ms)
        edges = [(edge.source, edge.target) for edge in self._application.edges]
        return {stage: _behind(stage, edges, runs) for stage in runs}


def _behind(stage: str, edges: Sequence[tuple[str, str]], takes_ms: Mapping[str, float]) -> float:
    """What the slowest way behind a stage takes."""
    after = [target for source, target in edges if source == stage]
    return max((takes_ms[name] + _behind(name, edges, takes_ms) for name in after), default=0.0)


_NOTHING = -10_000


def _step(rate: float) -> int:
    return math.ceil(math.log(rate, GRID) - 1e-9) if rate > 0.0 else _NOTHING


def _placed(
    rows: Sequence[Allocation], workers: Sequence[WorkerType], existing: Collection[Existing]
) -> tuple[Placed, ...]:
    """By the box's own placement; configurations matter to it by worker type and share only."""
    stages = tuple(dict.fromkeys(row.module for row in rows))
    plans = []
    for stage in stages:
        fulls, rest = [], None
        for row in (row for row in rows if row.module == stage):
            throughput = row.rate_rps / row.instances
            made = configuration(row.worker, row.batch, row.concurrency, 1.0, throughput, 1.0, 0)
            if row.instances >= FULL:
                fulls.append((made, round(row.instances)))
            else:
                rest = made, row.rate_rps
        plans.append(StagePlan(tuple(fulls), rest))
    pipeline = Pipeline(1.0, tuple(Stage(name, 1.0, ()) for name in stages), ())
    found = place(pipeline, tuple(plans), tuple(workers), existing)
    assert not isinstance(found, Missing), "there are as many workers as wanted"
    return found


def _spots(rows: Sequence[Allocation], placed: Sequence[Placed]) -> list[Spot]:
    """Rows beside the parts that were placed for them."""
    rooms: dict[tuple[str, str, bool], list[tuple[int, float]]] = {}
    for one in placed:
        for part in one.parts:
            rooms.setdefault((part.module, one.worker, part.share >= FULL), []).append((one.index, part.share))
    spots = []
    for row in rows:
        is_full = row.instances >= FULL
        for _ in range(round(row.instances) if is_full else 1):
            index, share = rooms[row.module, row.worker, is_full].pop(0)
            rate = row.rate_rps / (row.instances if is_full else 1.0)
            wait_ms = 1000.0 * (row.batch - 1) / rate
            spots.append(Spot(row.module, row.worker, index, row.batch, row.concurrency, share, wait_ms))
    return spots
