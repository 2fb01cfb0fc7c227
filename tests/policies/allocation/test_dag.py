"""Order, critical path and nesting of graphs."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.allocation.base import AllocationInput, Module, Profile, WorkerType
from appliance.policies.allocation.configurations import pipeline_of
from appliance.policies.allocation.dag import (
    CyclicError,
    Edge,
    Parallel,
    Series,
    Tree,
    critical_path_ms,
    decompose,
    levels,
    longest_through,
    loosened,
    topological,
)
from appliance.policies.allocation.fronts import POINTS_MAX, combine, leaf, lowered, sampled


def _length(tree: Tree, latencies: list[float]) -> float:
    if isinstance(tree, int):
        return latencies[tree]
    parts = [_length(part, latencies) for part in tree.parts]
    return sum(parts) if isinstance(tree, Series) else max(parts)


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[float], list[Edge]]:
    count = draw(st.integers(1, 6))
    pairs = [(m, n) for m in range(count) for n in range(m + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return draw(st.lists(st.floats(0.1, 9.0), min_size=count, max_size=count)), edges


def test_critical_path_of_a_fork_takes_the_slower_branch() -> None:
    """A → {B, C}: A and the slower of the two (SC-08)."""
    assert critical_path_ms([10.0, 20.0, 35.0], [(0, 1), (0, 2)]) == 45.0
    assert longest_through([10.0, 20.0, 35.0], [(0, 1), (0, 2)]) == (45.0, 30.0, 45.0)


def test_graph_decomposes_into_series_and_parallel_parts() -> None:
    """A chain, a fork with a join, and an N, which has no nesting."""
    assert decompose(2, [(0, 1)]) == Series((0, 1))
    assert decompose(4, [(0, 1), (0, 2), (1, 3), (2, 3)]) == Series((0, Parallel((1, 2)), 3))
    assert decompose(4, [(0, 2), (0, 3), (1, 3)]) is None


def test_modules_without_rate_leave_edges_between_their_neighbours_once() -> None:
    """Three modules that need no instance lead from a to b, and each to one of its own."""
    between = {"off0": "c0", "off1": "c1", "off2": "c2"}
    edges = [edge for off, own in between.items() for edge in (("a", off), (off, "b"), (off, own))]
    rates = {"a": 1.0, "b": 1.0, **dict.fromkeys(between.values(), 1.0), **dict.fromkeys(between, 0.0)}
    modules = tuple(Module(name, rate, (Profile("w", 1, 1, 10.0),)) for name, rate in rates.items())
    pipeline = pipeline_of(AllocationInput(100.0, (WorkerType("w", 1.0),), modules, tuple(edges)))
    assert [stage.name for stage in pipeline.stages] == ["a", "b", "c0", "c1", "c2"]
    assert pipeline.edges == ((0, 1), (0, 2), (0, 3), (0, 4))


def test_cyclic_graph_is_refused() -> None:
    """A cycle names a module on it or behind it."""
    with pytest.raises(CyclicError) as caught:
        topological(3, [(0, 1), (1, 2), (2, 1)])
    assert caught.value.index in {1, 2}


@given(_graphs())
def test_nestings_bound_the_critical_path(graph: tuple[list[float], list[Edge]]) -> None:
    """An exact nesting has the graph's critical path; the strict one at least it, the loose ones at most it."""
    latencies, edges = graph
    path = critical_path_ms(latencies, edges)
    tree = decompose(len(latencies), edges)
    if tree is not None:
        assert _length(tree, latencies) == pytest.approx(path)
    assert _length(levels(len(latencies), edges), latencies) >= path - 1e-9
    for index in range(len(latencies)):
        loose = loosened(index, latencies, edges)
        assert _length(loose, latencies) <= path + 1e-9


@given(st.integers(0, 10_000))
def test_combined_front_holds_the_cheapest_combination(seed: int) -> None:
    """The merged front holds the cheapest of all combinations for every limit."""
    dice = random.Random(seed)
    tree = Series((0, Parallel((1, Series((2, 3))))))
    points = [[(dice.uniform(1, 9), dice.uniform(1, 9)) for _ in range(4)] for _ in range(4)]
    fronts = [leaf(i, 4, *np.array(found).T) for i, found in enumerate(points)]
    limit = dice.uniform(4, 20)
    front = combine(tree, fronts, limit)
    fitting = [
        a[1] + b[1] + c[1] + d[1]
        for a in points[0]
        for b in points[1]
        for c in points[2]
        for d in points[3]
        if a[0] + max(b[0], c[0] + d[0]) <= limit
    ]
    assert front.is_empty == (not fitting)
    if fitting:
        assert front.cost[-1] == pytest.approx(min(fitting))
        picked = [points[i][p] for i, p in enumerate(front.picks[-1])]
        assert sum(cost for _, cost in picked) == pytest.approx(min(fitting))


@given(st.integers(0, 10_000))
def test_thinned_front_is_a_bound_or_made_of_the_fronts_points(seed: int) -> None:
    """A thinned front is never above the front for bounds, and made of its points for plans; both are short."""
    dice = random.Random(seed)
    latency = np.cumsum([dice.uniform(0.1, 1) for _ in range(2 * POINTS_MAX + seed % 300)])
    cost = np.cumsum([dice.uniform(0.1, 1) for _ in latency])[::-1]
    front = leaf(0, 1, latency, cost)
    below, some = lowered(front), sampled(front)
    assert len(below.cost) <= POINTS_MAX
    assert len(some.cost) <= POINTS_MAX + 1
    for ms in latency:
        exact, bound, other = (f.cheapest_within(float(ms)) for f in (front, below, some))
        assert exact is not None
        assert bound is not None
        assert below.cost[bound] <= front.cost[exact]
        assert other is None or some.cost[other] >= front.cost[exact]
    assert (some.latency_ms[0], some.cost[-1]) == (latency[0], cost[-1])
