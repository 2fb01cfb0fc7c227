"""From profiles to what the algorithms choose from: configurations with the cost of an instance, ballooning applied,
in a canonical order.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation.base import (
    TOLERANCE,
    AllocationInput,
    BatchWait,
    Module,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.dag import Edge, critical_path_ms


@dataclass(frozen=True, slots=True)
class Drawn:
    """What an instance takes of workers of another type, which are of this pool."""

    worker: str
    pool: str
    share: float


@dataclass(frozen=True, slots=True)
class Configuration:
    """A worker type with a batch size and a concurrency for one module."""

    worker: str
    batch: int
    concurrency: int
    latency_ms: float
    throughput_rps: float
    cost: float
    """Of one whole instance."""
    awaited: int
    """Items that a batch waits for."""
    unit_cost: float
    """Of one item a second."""
    full_latency_ms: float
    """W (SC-07): forming a batch at full rate, then running it."""
    pool: str
    """What its instances take workers of: the group of the worker type, or the type."""
    draws: tuple["Drawn", ...] = ()
    """What each of them takes of others."""
    of_prices: float = 0.0
    """Of the cost, what stands for scarce workers: nobody pays it."""

    def taken_of(self, pool: str) -> float:
        """Workers of a pool that an instance takes."""
        return float(pool == self.pool) + sum(one.share for one in self.draws if one.pool == pool)

    @property
    def pools(self) -> tuple[str, ...]:
        """All that it takes workers of."""
        return (self.pool, *(one.pool for one in self.draws))

    def latency_at(self, rate_rps: float) -> float:
        """W* (eq. 3): a lower rate fills a batch more slowly."""
        return self.latency_ms + 1000.0 * self.awaited / rate_rps


def configuration(
    worker: str,
    batch: int,
    concurrency: int,
    latency_ms: float,
    throughput_rps: float,
    cost: float,
    awaited: int,
    pool: str | None = None,
    draws: tuple[Drawn, ...] = (),
) -> Configuration:
    """With what follows from the rest worked out once: they are compared often. `pool` None: the worker's own."""
    unit_cost, full_latency_ms = cost / throughput_rps, latency_ms + 1000.0 * awaited / throughput_rps
    return Configuration(
        worker,
        batch,
        concurrency,
        latency_ms,
        throughput_rps,
        cost,
        awaited,
        unit_cost,
        full_latency_ms,
        pool or worker,
        draws,
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """A module with a rate; configurations by unit cost, then W, worker, batch and concurrency."""

    name: str
    rate_rps: float
    configurations: tuple[Configuration, ...]

    @property
    def fastest_ms(self) -> float:
        """No instance of the stage is faster, full or partial; infinite without configurations."""
        return min((c.latency_at(min(c.throughput_rps, self.rate_rps)) for c in self.configurations), default=math.inf)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages by name; edges between those that need instances, with paths through those that do not kept."""

    slo_ms: float
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def fits(self, latency_ms: float) -> bool:
        return latency_ms <= self.slo_ms * (1.0 + TOLERANCE)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """How one stage is served: whole instances by configuration, and at most one partial one with its rate."""

    fulls: tuple[tuple[Configuration, int], ...]
    partial: tuple[Configuration, float] | None

    @property
    def cost(self) -> float:
        whole = sum(count * configuration.cost for configuration, count in self.fulls)
        return whole + (self.partial[1] * self.partial[0].unit_cost if self.partial else 0.0)

    @property
    def latency_ms(self) -> float:
        worst = max((configuration.full_latency_ms for configuration, _ in self.fulls), default=0.0)
        return max(worst, self.partial[0].latency_at(self.partial[1])) if self.partial else worst

    @property
    def share(self) -> float:
        """Of a worker, that the partial instance takes."""
        return self.partial[1] / self.partial[0].throughput_rps if self.partial else 0.0


Plans = tuple[StagePlan, ...]
"""One for each stage of a pipeline, in its order."""


def pipeline_of(
    problem: AllocationInput, missing: Collection[str] = (), concurrency_max: int | None = None
) -> Pipeline:
    """What is to be decided. `missing` worker types or groups are left out (SC-16), and profiles above
    `concurrency_max`.
    """
    workers = {
        worker.name: worker for worker in problem.workers if worker.pool not in missing and worker.available != 0
    }
    modules = sorted((m for m in problem.modules if m.rate_rps > 0.0), key=lambda m: m.name)
    stages = tuple(_stage(module, workers, problem, concurrency_max) for module in modules)
    return Pipeline(problem.slo_ms, stages, _edges([stage.name for stage in stages], problem))


def priced(stage: Stage, prices: Mapping[str, float]) -> Stage:
    """The stage with `prices` added to the cost of an instance, by the pools that it takes workers of."""
    changed = [
        _dearer(c, sum(price * c.taken_of(pool) for pool, price in prices.items())) for c in stage.configurations
    ]
    return Stage(stage.name, stage.rate_rps, tuple(sorted(changed, key=_rank)))


def _dearer(c: Configuration, price: float) -> Configuration:
    cost = c.cost + price
    return replace(c, cost=cost, unit_cost=cost / c.throughput_rps, of_prices=c.of_prices + price)


def critical_ms(pipeline: Pipeline, plans: Plans) -> float:
    """The latency of the whole pipeline under `plans`."""
    return critical_path_ms([plan.latency_ms for plan in plans], pipeline.edges)


def total_cost(plans: Plans) -> float:
    return sum(plan.cost for plan in plans)


def _stage(
    module: Module, workers: Mapping[str, WorkerType], problem: AllocationInput, concurrency_max: int | None
) -> Stage:
    usable = [
        _configuration(profile, workers, module.ballooning, problem.cost_by, problem.batch_wait)
        for profile in module.profiles
        if profile.worker in workers
        and all(one.worker in workers for one in profile.draws)
        and (concurrency_max is None or profile.concurrency <= concurrency_max)
    ]
    return Stage(module.name, module.rate_rps, tuple(sorted(usable, key=_rank)))


def _configuration(
    profile: Profile, workers: Mapping[str, WorkerType], ballooning: float, cost_by: CostBy, batch_wait: BatchWait
) -> Configuration:
    worker = workers[profile.worker]
    latency_ms = profile.latency_ms * ballooning
    if profile.throughput_rps is None:
        throughput_rps = 1000.0 * profile.batch * profile.concurrency / latency_ms
    else:
        throughput_rps = profile.throughput_rps / ballooning
    draws = tuple(Drawn(one.worker, workers[one.worker].pool, one.share) for one in profile.draws)
    cost = {
        CostBy.PRICE: worker.cost + sum(one.share * workers[one.worker].cost for one in draws),
        CostBy.ENERGY: profile.power_w or 0.0,
        CostBy.SECONDS: 1.0 + sum(one.share for one in draws),
    }[cost_by]
    awaited = batch_wait.items(profile.batch)
    return configuration(
        worker.name,
        profile.batch,
        profile.concurrency,
        latency_ms,
        throughput_rps,
        cost,
        awaited,
        worker.pool,
        draws,
    )


def _rank(c: Configuration) -> tuple[float, float, str, int, int]:
    return c.unit_cost, c.full_latency_ms, c.worker, c.batch, c.concurrency


def _edges(names: Sequence[str], problem: AllocationInput) -> tuple[Edge, ...]:
    """Edges by index; an edge through a module without rate joins its neighbours."""
    after: dict[str, set[str]] = {}
    for source, target in problem.edges:
        after.setdefault(source, set()).add(target)
    index = {name: i for i, name in enumerate(names)}

    def reached(name: str) -> set[int]:
        found: set[int] = set()
        seen: set[str] = set()
        waiting = list(after.get(name, ()))
        while waiting:
            target = waiting.pop()
            if target in seen:
                continue
            seen.add(target)
            if target in index:
                found.add(index[target])
            else:
                waiting.extend(after.get(target, ()))
        return found

    return tuple(sorted((i, target) for name, i in index.items() for target in reached(name)))
