"""Several pipelines on one machine: each sees what the others take (`existing`), and where not all fit, all are planned
anew by weight and the rest is degraded: the next cheaper variants first, then fewer frames.

Pure, as the policies that it asks.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation.base import (
    TOLERANCE,
    AllocationInput,
    AllocationPlan,
    AllocationPolicy,
    BatchWait,
    Existing,
    Module,
    Part,
    Placed,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.placement import available_of

SOLD_MAX = 0.95
"""Of the scarcest workers so much is divided where not all fit: shares seldom pack without a rest."""
BUSY_SHARE = 0.5
"""Of the workers: where all plans without company take less, and processor time is what they cost, nobody waits for
company. An idle worker costs nothing, and who sends its next frame after the answer would only get fewer of them."""
RUNS_FIRST = 2
"""Runs that a wait leaves time for, each as long as the longest of all plans: one is under way when the wait is over,
and another tenant's may be next. Of the frames at 70 % of a real box's capacity 0.90 were in time where a wait left
time for none, 0.97 and 0.98 with two; of the pipeline with the longest runs 0.59 and 0.94.
"""
LIMIT_STEP = 0.8
"""Each limit of run times that is tried is at most this share of the one before, because each costs a plan."""
SHRINKS = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05)
"""Parts of the frames that are tried in turn where shares do not pack."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A pipeline that wants to be served.

    `levels`: its problem without `existing`, for one frame a second, the wanted variants first, then cheaper ones.
    """

    name: str
    fps: float
    levels: tuple[AllocationInput, ...]
    weight: float = 1.0
    loaded: tuple[str, ...] = ()
    """Modules of it whose builds are in memory (SC-22)."""


@dataclass(frozen=True, slots=True)
class Served:
    """How one is served: with its level's variants, for so many frames a second, beside what is `existing`.

    `first`: the first level that keeps the SLO by itself; a later one serves because not all fits. Not `is_possible`:
    however many workers there were, it would not be served. Not `waits`: no item waits for those of other frames.
    `run_ms_max`: as of `patient`; 0: the plan leaves no time for runs that go first.
    """

    name: str
    level: int
    first: int
    fps: float
    existing: tuple[Existing, ...]
    plan: AllocationPlan
    is_possible: bool = True
    waits: bool = True
    run_ms_max: float = 0.0

    def problem(self, levels: Sequence[AllocationInput]) -> AllocationInput:
        """What `plan` answers; `levels`: those of its demand. It is made where it is needed: an answer that comes from
        another process has nothing in it that is known here.
        """
        level = levels[self.level]
        if self.run_ms_max:
            level = patient(level, self.run_ms_max)
        return at_rate(level if self.waits else without_company(level), self.fps, self.existing)


@dataclass(frozen=True, slots=True)
class Several:
    """Plans by pipeline. `is_anew`: those that had a plan were planned again, too. `solved`: problems asked for."""

    served: Mapping[str, Served]
    is_anew: bool
    solved: int


def plan_several(
    demands: Sequence[Demand],
    policy: AllocationPolicy,
    kept: Mapping[str, tuple[Placed, ...]] | None = None,
    busy: Sequence[Existing] = (),
    *,
    may_degrade: bool = True,
) -> Several:
    """Plan the pipelines that have no place in `kept` beside those that have; where they do not fit, all of them anew.

    `busy`: what others than pipelines take. Not `may_degrade`: a plan that does not fit is one that is not feasible.
    """
    planner = _Planner(demands, policy, busy)
    beside = dict(kept or {})
    found = planner.in_turn([one for one in planner.demands if one.name not in beside], beside)
    if found is not None:
        return Several(found, False, planner.solved)
    if planner.gives_up_idle_workers() or beside:
        found = planner.in_turn(planner.demands, {})
        if found is not None:
            return Several(found, bool(beside), planner.solved)
    if not may_degrade:
        return Several(planner.as_far_as_they_fit(), True, planner.solved)
    return Several(planner.degraded(), True, planner.solved)


def plan_beside(
    demands: Sequence[Demand],
    policy: AllocationPolicy,
    kept: Mapping[str, tuple[Placed, ...]],
    busy: Sequence[Existing] = (),
) -> Several | None:
    """Plan some pipelines beside those that have a place in `kept`, of which nothing else need be known; None where
    they do not fit.
    """
    planner = _Planner(demands, policy, busy)
    found = planner.in_turn(planner.demands, kept)
    return None if found is None else Several(found, False, planner.solved)


def at_rate(problem: AllocationInput, fps: float, existing: Iterable[Existing] = ()) -> AllocationInput:
    """A problem of one frame a second at another rate, beside others."""
    modules = tuple(_at_rate(module, fps) for module in problem.modules)
    return replace(problem, modules=modules, existing=tuple(existing))


def without_company(problem: AllocationInput) -> AllocationInput:
    """A problem of one frame a second where no item waits for those of other frames: batches are of items that come
    together, with one frame.
    """
    modules = tuple(_without_company(module) for module in problem.modules)
    return replace(problem, modules=modules, batch_wait=BatchWait.NONE)


def patient(problem: AllocationInput, run_ms_max: float) -> AllocationInput:
    """Return a problem whose batches take at most `run_ms_max`, and whose SLO leaves time for the runs that go first
    when a wait is over. Items wait no longer than that leaves time for; a plan that ignored it would count on larger
    batches than form.
    """
    modules = tuple(_with_short_batches(module, run_ms_max) for module in problem.modules)
    longest_ms = max((min(_runs_ms(module, one_item=True), default=0.0) for module in modules), default=0.0)
    return replace(problem, modules=modules, slo_ms=problem.slo_ms - RUNS_FIRST * max(run_ms_max, longest_ms))


def _has_time_to_wait(plan: AllocationPlan, problem: AllocationInput) -> bool:
    """Return whether a plan waits for no company, or leaves time for the runs that go first when a wait is over."""
    if plan.latency_ms is None or all(one.batch == 1 for one in plan.allocations):
        return True
    runs_ms = {
        (module.name, one.worker, one.batch, one.concurrency): one.latency_ms * module.ballooning
        for module in problem.modules
        for one in module.profiles
    }
    longest_ms = max(runs_ms[one.module, one.worker, one.batch, one.concurrency] for one in plan.allocations)
    return plan.latency_ms + RUNS_FIRST * longest_ms <= problem.slo_ms


def _limits_ms(problem: AllocationInput) -> list[float]:
    """Return the longest runs of batches that are tried, from the longest on, each noticeably shorter than the last."""
    found: list[float] = []
    for run_ms in sorted({ms for one in problem.modules for ms in _runs_ms(one, one_item=False)}, reverse=True):
        if not found or run_ms <= LIMIT_STEP * found[-1]:
            found.append(run_ms)
    return found


def _with_short_batches(module: Module, run_ms_max: float) -> Module:
    kept = (one for one in module.profiles if one.batch == 1 or one.latency_ms * module.ballooning <= run_ms_max)
    return replace(module, profiles=tuple(kept))


def _runs_ms(module: Module, *, one_item: bool) -> list[float]:
    """Return the times of a module's runs of one item, or of several."""
    return [one.latency_ms * module.ballooning for one in module.profiles if (one.batch == 1) is one_item]


def _without_company(module: Module) -> Module:
    together = max(1.0, module.rate_rps * (1.0 + TOLERANCE))
    return replace(module, profiles=tuple(one for one in module.profiles if one.batch <= together))


def least_workers(problem: AllocationInput) -> float:
    """Workers that it takes at least, whatever the waits: by throughput alone."""
    return sum(
        module.rate_rps * min((_takes_s(profile, module.ballooning) for profile in module.profiles), default=0.0)
        for module in problem.modules
    )


def _takes_s(profile: Profile, ballooning: float) -> float:
    """Seconds of workers that an item takes."""
    workers = 1.0 + sum(one.share for one in profile.draws)
    if profile.throughput_rps is not None:
        return ballooning * workers / profile.throughput_rps
    return ballooning * workers * profile.latency_ms / (1000.0 * profile.batch * profile.concurrency)


def _at_rate(module: Module, fps: float) -> Module:
    return replace(module, rate_rps=module.rate_rps * fps)


def _only_on(module: Module, workers: Collection[str]) -> Module:
    profiles = tuple(profile for profile in module.profiles if profile.worker in workers)
    return replace(module, profiles=profiles) if profiles else module


def existing_of(
    placements: Mapping[str, Sequence[Placed]],
    busy: Iterable[Existing],
    workers: Collection[WorkerType],
    loaded: Collection[str],
) -> tuple[Existing, ...]:
    """What runs already, as one of several pipelines sees it: of each other one a share of a worker under its own name,
    whatever its stages there, and `loaded` where any of it runs. A worker that is not there any more is left out.
    """
    parts: dict[tuple[str, int], list[Part]] = {}
    for one in busy:
        parts.setdefault((one.worker, one.index), []).extend(one.parts)
    for name, placed in placements.items():
        for place in placed:
            own = parts.setdefault((place.worker, place.index), [])
            own.append(Part(name, sum(part.share for part in place.parts)))
    known = {worker.name: available_of(worker.pool, workers) for worker in workers}
    return tuple(
        Existing(worker, index, tuple(own), tuple(loaded))
        for (worker, index), own in sorted(parts.items())
        if worker in known and (known[worker] is None or index < (known[worker] or 0))
    )


@dataclass(slots=True)
class _Planner:
    """`demands` by falling weight, then by name."""

    demands: Sequence[Demand]
    policy: AllocationPolicy
    busy: Sequence[Existing]
    solved: int = 0
    _may_idle: bool = True
    """Whether a plan may be one by which nobody waits for company."""
    _alone: dict[tuple[str, int, str], AllocationPlan] = field(default_factory=dict)
    _shares: dict[tuple[str, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.demands = sorted(self.demands, key=lambda one: (-one.weight, one.name))

    def gives_up_idle_workers(self) -> bool:
        """From now on all plans take what they save by company: without that not all fit. False: none did otherwise."""
        before, self._may_idle = self._may_idle, False
        return before and any(level.cost_by is CostBy.SECONDS for one in self.demands for level in one.levels)

    def in_turn(self, demands: Sequence[Demand], beside: Mapping[str, tuple[Placed, ...]]) -> dict[str, Served] | None:
        """Each at its first level that keeps the SLO, and its full rate; None where one does not fit."""
        if self._are_too_many(demands, beside):
            return None
        found: dict[str, Served] = {}
        placements = dict(beside)
        for demand in demands:
            served = self._full(demand, placements)
            if not served.plan.feasible:
                return None
            found[demand.name] = served
            placements[demand.name] = served.plan.placement
        return found

    def _are_too_many(self, demands: Sequence[Demand], beside: Mapping[str, tuple[Placed, ...]]) -> bool:
        """Whether they would take more than all workers, each stage where an item takes least: then no policy has a
        plan, and none need be asked.
        """
        if not demands:
            return False
        workers = demands[0].levels[0].workers
        if any(one.levels[0].workers != workers for one in demands):
            return False
        limits = [available_of(pool, workers) for pool in sorted({worker.pool for worker in workers})]
        taken = sum(part.share for one in self.busy for part in one.parts)
        taken += sum(part.share for placed in beside.values() for place in placed for part in place.parts)
        if None in limits:
            return False
        most = sum(limit or 0 for limit in limits) * (1.0 + 1e-6)
        if taken + sum(least_workers(one.levels[0]) * one.fps for one in demands) <= most:
            return False
        return taken + sum(least_workers(one.levels[self._first_possible(one)]) * one.fps for one in demands) > most

    def as_far_as_they_fit(self) -> dict[str, Served]:
        """Each at its first level that keeps the SLO, and its full rate, beside those that fit."""
        found: dict[str, Served] = {}
        placements: dict[str, tuple[Placed, ...]] = {}
        for demand in self.demands:
            served = found[demand.name] = self._full(demand, placements)
            placements[demand.name] = served.plan.placement
        return found

    def _full(self, demand: Demand, placements: Mapping[str, tuple[Placed, ...]]) -> Served:
        served = self._plan(demand, 0, demand.fps, placements)
        first = 0 if served.plan.feasible else self._first_possible(demand)
        return served if not first else self._plan(demand, first, demand.fps, placements)

    def degraded(self) -> dict[str, Served]:
        """Each at a level and a rate that its share allows; those first that ask for the least of it: what others ask
        for beyond theirs may have no end, and whole instances leave gaps.
        """
        levels = self._levels()
        rates = self._rates(levels)
        found: dict[str, Served] = {}
        placements: dict[str, tuple[Placed, ...]] = {}
        asked = {one.name: self._takes(one, levels[one.name]) * one.fps / one.weight for one in self.demands}
        for demand in sorted(self.demands, key=lambda one: asked[one.name]):
            served = self._shrunk(demand, levels[demand.name], rates[demand.name], placements)
            found[demand.name] = served
            placements[demand.name] = served.plan.placement
        return found

    def _shrunk(self, demand: Demand, level: int, fps: float, placements: Mapping[str, tuple[Placed, ...]]) -> Served:
        """At the level, or the next one that has room; then for fewer and fewer frames. Where nothing can be, what the
        cheapest variants lack for all of them.
        """
        for part in SHRINKS if self._by_itself(demand, level).feasible else ():
            for tried in range(level, len(demand.levels)):
                served = self._plan(demand, tried, fps * part, placements)
                if served.plan.feasible:
                    return served
        return self._plan(demand, len(demand.levels) - 1, fps, placements)

    def _levels(self) -> dict[str, int]:
        """Who takes most beyond its share goes to the next cheaper variants, until all fits or nobody can; who takes no
        more than its share does not.
        """
        levels = {one.name: self._first_possible(one) for one in self.demands}
        total, sold = sum(one.weight for one in self.demands), self._sold_max()
        while True:
            takes = {one.name: self._takes(one, levels[one.name]) * one.fps for one in self.demands}
            if sum(takes.values()) <= sold:
                return levels
            able = [
                one
                for one in self.demands
                if levels[one.name] + 1 < len(one.levels)
                and takes[one.name] > sold * one.weight / total
                and self._takes(one, levels[one.name] + 1) * one.fps < takes[one.name]
            ]
            if not able:
                return levels
            worst = max(able, key=lambda one: (takes[one.name] - one.weight / total, one.name))
            levels[worst.name] += 1

    def _first_possible(self, demand: Demand) -> int:
        """The first level that keeps the SLO by itself; 0 where none does."""
        levels = range(len(demand.levels))
        return next((level for level in levels if self._by_itself(demand, level).feasible), 0)

    def _rates(self, levels: Mapping[str, int]) -> dict[str, float]:
        """Frames a second by shares: who wants less than its share leaves the rest to the others."""
        rates = {one.name: one.fps for one in self.demands}
        waiting = [one for one in self.demands if self._takes(one, levels[one.name]) * one.fps > 0.0]
        left = self._sold_max()
        while waiting:
            total = sum(one.weight for one in waiting)
            content = [
                one
                for one in waiting
                if self._takes(one, levels[one.name]) * one.fps <= left * one.weight / total * (1.0 + 1e-9)
            ]
            if not content:
                for one in waiting:
                    rates[one.name] = left * one.weight / total / self._takes(one, levels[one.name])
                return rates
            left -= sum(self._takes(one, levels[one.name]) * one.fps for one in content)
            waiting = [one for one in waiting if one not in content]
        return rates

    def _sold_max(self) -> float:
        """Part of all workers that pipelines may take together: not what others take, but always a little."""
        workers = self.demands[0].levels[0].workers if self.demands else ()
        limits = [available_of(pool, workers) for pool in sorted({worker.pool for worker in workers})]
        most = sum(limit for limit in limits if limit is not None)
        if not most or None in limits:
            return SOLD_MAX
        taken = sum(part.share for one in self.busy for part in one.parts)
        return max(1.0 - SOLD_MAX, SOLD_MAX - taken / most)

    def _takes(self, demand: Demand, level: int) -> float:
        """Part of the machine that a frame a second takes; 0 where nothing is scarce, or nobody knows.

        What the machine can do: frames are served by each pool by itself until that is full, the cheapest way by what
        is left. Ways that mix pools otherwise may do a little more.
        """
        known = self._shares.get((demand.name, level))
        if known is None:
            known = self._shares[demand.name, level] = self._share(demand, level)
        return known

    def _share(self, demand: Demand, level: int) -> float:
        if demand.fps <= 0.0:
            return 0.0
        workers = demand.levels[level].workers
        limits = {pool: available_of(pool, workers) for pool in sorted({worker.pool for worker in workers})}
        left = {pool: float(limit) for pool, limit in limits.items() if limit is not None}
        cheapest = self._pools_taken(demand, level, left)
        if not cheapest:
            return 0.0
        frames = 0.0
        others = sorted(left.keys() - cheapest.keys())
        for taken in (*(self._pools_taken(demand, level, left, pool) for pool in others), cheapest):
            more = min((left[pool] / part for pool, part in taken.items()), default=0.0)
            frames += more
            for pool, part in taken.items():
                left[pool] = max(0.0, left[pool] - more * part)
        return 1.0 / frames if frames else math.inf

    def _pools_taken(self, demand: Demand, level: int, pools: Collection[str], only: str = "") -> dict[str, float]:
        """Workers of each of the pools for one frame a second; empty where nothing keeps the SLO, or none is taken."""
        plan = self._by_itself(demand, level, only)
        pool_of = {worker.name: worker.pool for worker in demand.levels[level].workers}
        found: dict[str, float] = {}
        for place in plan.placement if plan.feasible else ():
            pool = pool_of[place.worker]
            if pool in pools:
                found[pool] = found.get(pool, 0.0) + sum(part.share for part in place.parts) / demand.fps
        return found

    def _by_itself(self, demand: Demand, level: int, only: str = "") -> AllocationPlan:
        """As if it had as many workers as it wants. `only`: of this pool, but for modules that it cannot run."""
        known = self._alone.get((demand.name, level, only))
        if known is None:
            problem = demand.levels[level]
            endless = tuple(replace(one, available=0 if one.available == 0 else None) for one in problem.workers)
            if only:
                own = {one.name for one in problem.workers if one.pool == only}
                problem = replace(problem, modules=tuple(_only_on(module, own) for module in problem.modules))
            problem = at_rate(replace(problem, workers=endless), demand.fps)
            known = self._alone[demand.name, level, only] = self._ask(problem)
        return known

    def _plan(self, demand: Demand, level: int, fps: float, placements: Mapping[str, tuple[Placed, ...]]) -> Served:
        problem = demand.levels[level]
        others = {name: placed for name, placed in placements.items() if name != demand.name}
        existing = existing_of(others, self.busy, problem.workers, demand.loaded)
        plan, waits, run_ms_max = self._without_company(problem, fps, existing, others), False, 0.0
        if plan is None:
            plan, waits, run_ms_max = self._with_company(problem, fps, existing)
        first = 0 if not level else self._first_possible(demand)
        is_possible = plan.feasible or self._by_itself(demand, level).feasible
        return Served(demand.name, level, first, fps, existing, plan, is_possible, waits, run_ms_max)

    def _with_company(
        self, problem: AllocationInput, fps: float, existing: tuple[Existing, ...]
    ) -> tuple[AllocationPlan, bool, float]:
        """Return a plan, whether items wait for company by it, and the longest run that it leaves time for.

        Where the SLO leaves no time for the waits of the cheapest plan, its batches would not form, and what it takes
        would be more than it says (SC-09): the cheapest plan is taken of those whose waits there is time for, or by
        which none waits. Where there is none of these, the first one: items then wait for workers.
        """
        plan = self._ask(at_rate(problem, fps, existing))
        if problem.batch_wait is not BatchWait.REST or _has_time_to_wait(plan, problem):
            return plan, True, 0.0
        problems = [(patient(problem, run_ms), True, run_ms) for run_ms in _limits_ms(problem)]
        tried = [
            (self._ask(at_rate(one, fps, existing)), waits, run_ms)
            for one, waits, run_ms in [*problems, (without_company(problem), False, 0.0)]
            if one.slo_ms > 0.0
        ]
        able = [one for one in tried if one[0].feasible]
        return min(able, key=lambda one: one[0].cost or 0.0, default=(plan, True, 0.0))

    def _without_company(
        self,
        problem: AllocationInput,
        fps: float,
        existing: tuple[Existing, ...],
        others: Mapping[str, tuple[Placed, ...]],
    ) -> AllocationPlan | None:
        """The plan by which nobody waits for company; None where it would leave too little of the workers idle, or
        where an idle one costs something, too.
        """
        if not self._may_idle or problem.cost_by is not CostBy.SECONDS:
            return None
        limits = [available_of(pool, problem.workers) for pool in {worker.pool for worker in problem.workers}]
        idle = math.inf if None in limits else BUSY_SHARE * sum(limit or 0 for limit in limits)
        idle -= sum(part.share for placed in others.values() for place in placed for part in place.parts)
        if least_workers(at_rate(without_company(problem), fps)) >= idle:
            return None
        plan = self._ask(at_rate(without_company(problem), fps, existing))
        taken = sum(part.share for place in plan.placement for part in place.parts)
        return plan if plan.feasible and taken < idle else None

    def _ask(self, problem: AllocationInput) -> AllocationPlan:
        self.solved += 1
        return self.policy.plan(problem)
