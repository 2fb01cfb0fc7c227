"""When workers are scarce: stages compete for them.

Prices on scarce workers give a good pipeline and a bound; a small program over what could beat it
gives the best one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from appliance.policies.allocation.base import TOLERANCE, AllocationInput, Placed
from appliance.policies.allocation.choose import choose
from appliance.policies.allocation.configurations import (
    Configuration,
    Pipeline,
    Plans,
    StagePlan,
    pipeline_of,
    priced,
    total_cost,
)
from appliance.policies.allocation.fronts import Bools, Floats, Ints
from appliance.policies.allocation.placement import Missing, capacity, place
from appliance.policies.allocation.split import Splitter, Splitting, split
from appliance.policies.allocation.stage_plans import StagePlans

RAISES_MAX = 9
GROWTH = 3.0
"""Prices are raised so often at most, by this factor; where that is not enough, shares do not pack, and no price
helps.
"""
HALVINGS = 3
"""Steps between the last price that was too low and the first that was enough."""
ROWS_MAX = 1_500
"""Ways over all stages that the program chooses from; beyond it the dearest are left out and the answer is not
proven.
"""
BLOCK = 256
"""Ways compared with all better ones in one go."""
PACKINGS_MAX = 30
"""Choices whose shares did not pack and were forbidden one by one."""


@dataclass(frozen=True, slots=True)
class Limited:
    """The best plans found with their placement; None when there are none. No pipeline costs less than `bound`."""

    plans: Plans | None
    placement: tuple[Placed, ...]
    is_exact: bool
    rows: int
    bound: float = 0.0

    @property
    def cost(self) -> float:
        return np.inf if self.plans is None else total_cost(self.plans)


def limited(problem: AllocationInput, pipeline: Pipeline, scarce: str) -> Limited:
    """The cheapest plans that can be placed, when without limits too many workers of the pool `scarce` were taken."""
    return _Scarcity(problem, pipeline, scarce).run()


class _Scarcity:
    """`_best` is the cheapest pipeline so far that can be placed; `_prices` of scarce pools, by name."""

    def __init__(self, problem: AllocationInput, pipeline: Pipeline, scarce: str) -> None:
        self._problem, self._pipeline = problem, pipeline
        self._unpriced = {
            (stage.name, c.worker, c.batch, c.concurrency): c for stage in pipeline.stages for c in stage.configurations
        }
        self._dearest = max(c.cost for c in self._unpriced.values()) or 1.0
        self._prices = {scarce: 0.0}
        self._best = Limited(None, (), True, 0)
        self._bound, self._bound_prices = 0.0, dict(self._prices)
        self._ceiling = sum(stage.rate_rps * stage.configurations[-1].unit_cost for stage in pipeline.stages)
        """No pipeline costs more."""

    def run(self) -> Limited:
        self._raise_prices()
        self._without()
        if self._best.plans is None:
            if self._bound <= self._ceiling * (1.0 + TOLERANCE):  # alike where all workers cost the same
                self._search()
        elif self._best.cost > self._bound * (1.0 + TOLERANCE):
            self._search()
        else:
            self._best = replace(self._best, is_exact=True)
        return replace(self._best, bound=self._best.cost if self._best.is_exact else min(self._bound, self._best.cost))

    def _raise_prices(self) -> None:
        """Prices until the pipeline can be placed, then as low as it still can."""
        for _ in range(RAISES_MAX):
            missing = self._try(self._prices)
            if missing is None:
                break
            if self._bound > self._ceiling * (1.0 + TOLERANCE):
                return
            price = self._prices.get(missing, 0.0)
            self._prices[missing] = GROWTH * price if price else 0.1 * self._dearest
        else:
            return
        low, high = 1.0 / GROWTH, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            if self._try({pool: price * middle for pool, price in self._prices.items()}) is None:
                high = middle
            else:
                low = middle

    def _without(self) -> None:
        """SC-16: the pipeline without the pools that are short."""
        pipeline = pipeline_of(self._problem, tuple(self._prices))
        self._keep(split(pipeline), pipeline)

    def _try(self, prices: Mapping[str, float]) -> str | None:
        """The pool that is short at these prices, None when all can be placed.

        Keeps what is better, and the better bound.
        """
        found = split(self._at(prices))
        bound = found.bound - sum(price * self._limit(pool) for pool, price in prices.items())
        if bound > self._bound:
            self._bound, self._bound_prices = bound, dict(prices)
        return self._keep(found, self._pipeline)

    def _at(self, prices: Mapping[str, float]) -> Pipeline:
        stages = tuple(priced(stage, prices) for stage in self._pipeline.stages)
        return Pipeline(self._pipeline.slo_ms, stages, self._pipeline.edges)

    def _keep(self, found: Splitting, pipeline: Pipeline) -> str | None:
        if found.plans is None:
            return None
        plans = tuple(self._true(stage.name, plan) for stage, plan in zip(pipeline.stages, found.plans, strict=True))
        placement = place(self._pipeline, plans, self._problem.workers, self._problem.existing)
        if isinstance(placement, Missing):
            return placement.pool
        if total_cost(plans) < self._best.cost:
            self._best = Limited(plans, placement, False, found.rows)
        return None

    def _true(self, stage: str, plan: StagePlan) -> StagePlan:
        """The plan with configurations at what they really cost."""

        def unpriced(c: Configuration) -> Configuration:
            return self._unpriced[stage, c.worker, c.batch, c.concurrency]

        partial = (unpriced(plan.partial[0]), plan.partial[1]) if plan.partial else None
        return StagePlan(tuple((unpriced(c), count) for c, count in plan.fulls), partial)

    def _limit(self, pool: str) -> float:
        limit = capacity(pool, self._problem.workers, self._problem.existing)
        assert limit is not None, "a pool without limit is never short"
        return limit

    def _search(self) -> None:
        """All ways that could beat the best pipeline at the prices of the best bound, and the best choice among them
        that packs.
        """
        prices = {**dict.fromkeys(self._prices, 0.0), **self._bound_prices}
        while True:
            missing = self._choose(prices)
            if missing is None or missing in prices:
                return
            prices[missing] = 0.0

    def _choose(self, prices: Mapping[str, float]) -> str | None:
        """The best choice with `prices`; or the first pool that is short and has no price yet."""
        ways, exact = self._ways(prices)
        limits = {pool: self._limit(pool) for pool in prices}
        forbidden: list[tuple[int, ...]] = []
        while len(forbidden) < PACKINGS_MAX:
            choice = choose(self._pipeline, ways, limits, forbidden)
            exact &= choice.is_optimal
            if choice.picks is None or choice.cost >= self._best.cost * (1.0 - TOLERANCE):
                self._best = replace(self._best, is_exact=exact)
                return None
            found = tuple(way.plan(pick) for way, pick in zip(ways, choice.picks, strict=True))
            plans = tuple(
                self._true(stage.name, plan) for stage, plan in zip(self._pipeline.stages, found, strict=True)
            )
            placement = place(self._pipeline, plans, self._problem.workers, self._problem.existing)
            if not isinstance(placement, Missing):
                self._best = Limited(plans, placement, exact, sum(len(way.cost) for way in ways))
                return None
            if placement.pool not in prices:
                return placement.pool
            forbidden.append(choice.picks)
        self._best = replace(self._best, is_exact=False)
        return None

    def _ways(self, prices: Mapping[str, float]) -> tuple[list[StagePlans], bool]:
        """By stage, the ways that could be part of something better, at their true cost; and whether these are all."""
        paid = sum(price * self._limit(pool) for pool, price in prices.items())
        cutoff = min(self._best.cost * (1.0 - TOLERANCE), self._ceiling * (1.0 + 2.0 * TOLERANCE)) + paid
        splitter = Splitter(self._at(prices))
        most = ROWS_MAX // len(self._pipeline.stages)
        ways: list[StagePlans] = []
        exact = True
        for index in range(len(self._pipeline.stages)):
            found = splitter.ways(index, cutoff)
            usage = {pool: found.usage(pool) for pool in prices}
            found = found.at_cost(found.cost - sum(price * usage[pool] for pool, price in prices.items()))
            kept = _unbeaten(np.column_stack((found.latency_ms, found.cost, *usage.values())), most)
            exact &= found.is_complete and len(kept) < most
            ways.append(found.rows(kept))
        return ways, exact


def _unbeaten(points: Floats, most: int) -> Ints:
    """Rows that no other row is at most in every column; by the second column, at most `most`; of equal rows the
    first.
    """
    order: Ints = np.lexsort(points.T[[0, 1]])
    points = points[order]
    kept: list[int] = []
    for start in range(0, len(points), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(points)))
        block = block[~_beaten(points[block], points[kept])]
        fresh = len(kept)
        for row in block:
            if not _beaten(points[row : row + 1], points[kept[fresh:]])[0]:
                kept.append(int(row))
                if len(kept) == most:
                    return order[np.array(kept, dtype=np.int64)]
    return order[np.array(kept, dtype=np.int64)]


def _beaten(points: Floats, by: Floats) -> Bools:
    """Which points have a row of `by` that is at most theirs in every column."""
    level = points[:, None, :] + TOLERANCE * np.abs(points[:, None, :])
    beaten: Bools = np.any(np.all(by[None, :, :] <= level, axis=2), axis=1)
    return beaten
