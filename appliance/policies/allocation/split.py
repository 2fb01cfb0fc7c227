"""Splitting the SLO over the stages (SC-08): the cheapest pipeline, by a search for each stage under bounds from the
others. No limits on workers here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.choose import Choice, choose
from appliance.policies.allocation.configurations import Pipeline, Plans, total_cost
from appliance.policies.allocation.dag import (
    Series,
    Tree,
    critical_path_ms,
    decompose,
    levels,
    longest_through,
    loosened,
)
from appliance.policies.allocation.fronts import Floats, Front, combine, leaf, lowered, sampled
from appliance.policies.allocation.stage_plans import StagePlans, floor_of, joined, simple_plans, table_of
from appliance.policies.allocation.stage_search import Rest, StageSearch

REORDERED_MAX = 6
"""Stages up to which their order is settled anew after each; a longer pipeline keeps its first order."""
UNTHINNED_MAX = 16
"""Stages up to which fronts are merged point by point."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """`plans` is None when nothing fits. No pipeline costs less than `bound`. `rows`: ways looked at in the end."""

    plans: Plans | None
    is_exact: bool
    rows: int
    bound: float


def split(pipeline: Pipeline) -> Splitting:
    """The cheapest plans, exact unless a stage has more promising ways than the search keeps."""
    if not pipeline.stages:
        return Splitting((), True, 0, 0.0)
    if not pipeline.fits(critical_path_ms([stage.fastest_ms for stage in pipeline.stages], pipeline.edges)):
        return Splitting(None, True, 0, np.inf)
    return Splitter(pipeline).run()


class Splitter:
    """The search of one pipeline: by stage its table, a front that no plan beats (`lower`) and ways that are known
    (`known`, `upper` their front).
    """

    def __init__(self, pipeline: Pipeline) -> None:
        fastest = [stage.fastest_ms for stage in pipeline.stages]
        self._pipeline, self._fastest = pipeline, fastest
        count = len(pipeline.stages)
        through = longest_through(fastest, pipeline.edges)
        self._caps = [pipeline.slo_ms - (t - f) for t, f in zip(through, fastest, strict=True)]
        self._tables = [table_of(stage, cap) for stage, cap in zip(pipeline.stages, self._caps, strict=True)]
        self._exact_tree = decompose(count, pipeline.edges)
        self._tree = self._exact_tree or levels(count, pipeline.edges)
        self._lower = [leaf(i, count, *floor_of(table)) for i, table in enumerate(self._tables)]
        self._known = [simple_plans(table, cap) for table, cap in zip(self._tables, self._caps, strict=True)]
        self._upper = [self._front(i) for i in range(count)]

    def run(self) -> Splitting:
        """Stage by stage: all ways that could beat the best pipeline so far, then the best pipeline again.

        Stages with little to try come first:
        what they need at least then prunes the others."""
        best = self._best()
        floor = self._floor()
        exact = len(self._known) <= UNTHINNED_MAX
        waiting = list(range(len(self._known)))
        is_small = len(waiting) <= REORDERED_MAX
        while waiting:
            cutoff = best.cost * (1.0 - TOLERANCE)
            if is_small or len(waiting) == len(self._known):
                breadths = {i: self._search(i, cutoff).breadth for i in waiting}
                waiting.sort(key=lambda i: (breadths[i], i))
            i = waiting.pop(0)
            found = self._search(i, cutoff).run()
            exact &= found.is_complete
            if not len(found.cost) and found.is_complete:
                break
            self._known[i] = joined(self._known[i], found)
            self._upper[i] = self._front(i)
            if found.is_complete:
                self._lower[i] = leaf(i, len(self._known), found.latency_ms, found.cost)
            best = min(best, self._best(), key=lambda choice: choice.cost)
        if self._exact_tree is None:
            chosen = choose(self._pipeline, self._known, {})
            best = min(best, chosen, key=lambda choice: choice.cost)
            exact &= chosen.is_optimal
        rows = sum(len(known.cost) for known in self._known)
        if best.picks is None:
            return Splitting(None, exact, rows, np.inf if exact else floor)
        plans = tuple(k.plan(p) for k, p in zip(self._known, best.picks, strict=True))
        return Splitting(plans, exact, rows, total_cost(plans) if exact else floor)

    def _floor(self) -> float:
        """What every stage costs at least within the SLO, were instances divisible."""
        tree = self._exact_tree if self._exact_tree is not None else loosened(0, self._fastest, self._pipeline.edges)
        front = combine(tree, self._lower, self._pipeline.slo_ms, lowered)
        return np.inf if front.is_empty else float(front.cost[-1])

    def ways(self, index: int, cutoff: float) -> StagePlans:
        """Of one stage, those that could be part of a pipeline that costs less than `cutoff`, also those that take more
        of one worker type to take
        less of another."""
        return self._search(index, cutoff, keep_all=True).run()

    def _search(self, index: int, cutoff: float, keep_all: bool = False) -> StageSearch:
        return StageSearch(self._tables[index], self._rest(index), cutoff, self._caps[index], keep_all)

    def _front(self, index: int) -> Front:
        known = self._known[index]
        return leaf(index, len(self._tables), known.latency_ms, known.cost)

    def _best(self) -> Choice:
        if len(self._upper) <= UNTHINNED_MAX:
            front = combine(self._tree, self._upper, self._pipeline.slo_ms)
        else:
            front = combine(self._tree, self._upper, self._pipeline.slo_ms, sampled)
        if front.is_empty:
            return Choice(None, np.inf, True)
        return Choice(tuple(int(p) for p in front.picks[-1]), float(front.cost[-1]), True)

    def _rest(self, index: int) -> Rest:
        """The least that the other stages cost when this one takes a latency: exact bounds in a chain, at the steps
        of its own floor elsewhere.
        """
        tree = (
            self._exact_tree if self._exact_tree is not None else loosened(index, self._fastest, self._pipeline.edges)
        )
        slo_ms = self._pipeline.slo_ms
        if tree == index:
            return np.zeros_like
        if isinstance(tree, Series) and index in tree.parts:
            others = combine(Series(tuple(part for part in tree.parts if part != index)), self._lower, slo_ms, lowered)
            return _lookup(slo_ms * (1.0 + 2.0 * TOLERANCE) - others.latency_ms[::-1], others.cost[::-1])
        steps = floor_of(self._tables[index])[0]
        return _lookup_steps(steps, [self._rest_at(index, tree, float(latency)) for latency in steps])

    def _rest_at(self, index: int, tree: Tree, latency_ms: float) -> float:
        leaves = list(self._lower)
        leaves[index] = leaf(index, len(leaves), np.array([latency_ms]), np.zeros(1))
        front = combine(tree, leaves, self._pipeline.slo_ms, lowered)
        return np.inf if front.is_empty else float(front.cost[-1])


def _lookup(latest: Floats, costs: Floats) -> Rest:
    """`latest[i]`, ascending, is the most latency for this stage at which the others get by with `costs[i]`, which
    rise.
    """
    padded = np.append(costs, np.inf)
    return lambda latency: padded[np.searchsorted(latest, latency, side="left")]


def _lookup_steps(steps: Floats, costs: Sequence[float]) -> Rest:
    values = np.array(costs)
    return lambda latency: values[np.maximum(np.searchsorted(steps, latency, side="right") - 1, 0)]
