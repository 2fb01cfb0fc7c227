"""Latency against cost: the points of a stage that no other point beats, and the cheapest choice of one for each
stage within the SLO.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.dag import Parallel, Tree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
POINTS_MAX = 256
"""Points of a thinned front."""


@dataclass(frozen=True, slots=True)
class Front:
    """`latency_ms` rises, `cost` falls strictly.

    `picks[i]` is what point i stands for: a row of each leaf below, -1 where the leaf is not below.
    """

    latency_ms: Floats
    cost: Floats
    picks: Ints

    @property
    def is_empty(self) -> bool:
        return not len(self.cost)

    def cheapest_within(self, latency_ms: float) -> int | None:
        """The point with the least cost among those that are fast enough."""
        found = int(np.searchsorted(self.latency_ms, latency_ms * (1.0 + TOLERANCE), side="right")) - 1
        return found if found >= 0 else None


def pareto(latency_ms: Floats, cost: Floats) -> Ints:
    """Indices of the points that none beats, by latency; of equal points the first."""
    order = np.lexsort((cost, latency_ms))
    sorted_cost = cost[order]
    if not len(order):
        return order
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_cost)[:-1]))
    return order[sorted_cost < best_before - TOLERANCE * np.abs(sorted_cost)]


def leaf(index: int, leaves: int, latency_ms: Floats, cost: Floats) -> Front:
    """The front of the leaf `index` of `leaves`, from points that need not be sorted; picks are the points' indices."""
    kept = pareto(latency_ms, cost)
    picks = np.full((len(kept), leaves), -1, dtype=np.int64)
    picks[:, index] = kept
    return Front(latency_ms[kept], cost[kept], picks)


Thinning = Callable[[Front], Front]


def combine(tree: Tree, leaves: Sequence[Front], slo_ms: float, thin: Thinning = lambda front: front) -> Front:
    """All choices of one point a leaf below `tree` that no other choice beats, within the SLO.

    Exact, unless `thin` takes points out between.
    """
    if isinstance(tree, int):
        front = leaves[tree]
        within = front.latency_ms <= slo_ms * (1.0 + TOLERANCE)
        return Front(front.latency_ms[within], front.cost[within], front.picks[within])
    merged: Front | None = None
    for part in tree.parts:
        front = combine(part, leaves, slo_ms, thin)
        if merged is None:
            merged = front
        else:
            merged = thin(_beside(merged, front) if isinstance(tree, Parallel) else _behind(merged, front, slo_ms))
    assert merged is not None, "a nesting has parts"
    return merged


def lowered(front: Front) -> Front:
    """At most `POINTS_MAX` points, none of them above the front: for bounds."""
    firsts, lasts = _groups(front)
    return Front(front.latency_ms[firsts], front.cost[lasts], front.picks[lasts])


def sampled(front: Front) -> Front:
    """Some `POINTS_MAX` points of the front, its first and its last one among them."""
    firsts, lasts = _groups(front)
    kept = np.unique(np.concatenate((firsts[:1], lasts)))
    return Front(front.latency_ms[kept], front.cost[kept], front.picks[kept])


def _groups(front: Front) -> tuple[Ints, Ints]:
    """The first and last point of at most `POINTS_MAX` groups of neighbours."""
    count = len(front.cost)
    if count <= POINTS_MAX:
        return np.arange(count), np.arange(count)
    ends = np.linspace(0, count, POINTS_MAX + 1).astype(np.int64)
    return ends[:-1], ends[1:] - 1


def _behind(left: Front, right: Front, slo_ms: float) -> Front:
    latency = (left.latency_ms[:, None] + right.latency_ms[None, :]).ravel()
    within = np.flatnonzero(latency <= slo_ms * (1.0 + TOLERANCE))
    latency = latency[within]
    cost = (left.cost[:, None] + right.cost[None, :]).ravel()[within]
    kept = pareto(latency, cost)
    rows, columns = np.divmod(within[kept], max(1, len(right.cost)))
    return Front(latency[kept], cost[kept], np.maximum(left.picks[rows], right.picks[columns]))


def _beside(left: Front, right: Front) -> Front:
    latency = np.union1d(left.latency_ms, right.latency_ms)
    rows = np.searchsorted(left.latency_ms, latency, side="right") - 1
    columns = np.searchsorted(right.latency_ms, latency, side="right") - 1
    both = (rows >= 0) & (columns >= 0)
    latency, rows, columns = latency[both], rows[both], columns[both]
    cost = left.cost[rows] + right.cost[columns]
    kept = pareto(latency, cost)
    rows, columns = rows[kept], columns[kept]
    return Front(latency[kept], cost[kept], np.maximum(left.picks[rows], right.picks[columns]))
