"""Pipelines (Scrooge): the paper's example, cost against exhaustive search and yardsticks, times as things grow."""

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from appliance.lab.problems import pipeline
from appliance.lab.registry import add_policies
from appliance.policies.allocation.base import AllocationPlan
from benchmarks import _results as results
from reproduce.baselines import ALLOCATION
from tests.checkers.exhaustive_search import BruteForce
from tests.checkers.pipeline import broken
from tests.instances import allocation as instances

SEEDS, QUICK, FIRST = 20, 5, 0
Problem = dict[str, Any]
SHAPES = ("single", "chain2", "chain3", "fork", "join")
FINE: dict[str, Any] = {"batches": (1, 2, 4, 8, 16, 32), "concurrencies": (1, 2, 4), "instances": 6.0}
add_policies("allocation", {"brute-force": BruteForce})
YARDSTICKS = ("frontier", "scrooge", "greedy", "concurrency-1", "nexus-like")


def decide(problem: Problem, policy: str = "frontier") -> tuple[AllocationPlan, float]:
    """The plan and the CPU milliseconds it took; the answer is checked."""
    question = pipeline.read({**problem, "policy": policy})
    plan, spent_ms = results.spent(question.decide)
    if plan.feasible:
        faults = broken(problem, question.answer(plan))
        assert not faults, faults
    return plan, spent_ms


def _paper(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """The worked example and its sweep of SLOs."""
    assert set(YARDSTICKS) < set(ALLOCATION)
    decide(instances.paper(), "scrooge")  # imports numpy and HiGHS
    plan, spent = decide(instances.paper())
    results.row("the paper's example", cost=plan.cost, latency_ms=plan.latency_ms, ms=spent, asked="7.5407 at 273.0 ms")
    wrong = 0
    for step in instances.paper_sweep():
        plan, _ = decide(instances.paper(step["slo_ms"]))
        wrong += plan.cost is None or abs(plan.cost - step["cost"]) > 5e-5
    results.row("its SLO sweep", not_at_the_optimum=wrong, of=len(instances.paper_sweep()), asked="none")


def _against(title: str, problems: Sequence[Problem], reference: str) -> None:
    """A table of every yardstick's cost over the reference's."""
    costs = [decide(problem, reference)[0].cost for problem in problems]
    names = ("policy", "mean", "worst", "share within 0.01 %", "refused", "median ms", "worst ms")
    results.head(*names, title=f"{title}: cost over that of `{reference}`, {len(problems)} problems")
    for policy in YARDSTICKS:
        answers = [decide(problem, policy) for problem in problems]
        pairs = list(zip(answers, costs, strict=True))
        ratios = [plan.cost / cost for (plan, _), cost in pairs if plan.cost is not None and cost]
        refused = sum(not plan.feasible and cost is not None for (plan, _), cost in pairs)
        times = [spent for _, spent in answers]
        same = sum(ratio <= 1.0001 for ratio in ratios) / len(ratios)
        mean = statistics.fmean(ratios)
        results.cells(policy, mean, max(ratios), same, refused, statistics.median(times), max(times))


def _cost(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    few: dict[str, Any] = {"instances": 1.2, "batches": (1, 4), "concurrencies": (1, 3)}
    small = [p for shape in SHAPES for p in _many(instances.drawn, shape, seeds, instances=2.0)]
    _against("Two worker types, up to three modules", small, "brute-force")
    scarce = [p for shape in ("single", "chain2", "fork") for p in _many(instances.scarce, shape, seeds, **few)]
    _against("The same with few workers, others' among them", scarce, "brute-force")
    large = [p for shape in ("chain3", "fork", "diamond") for p in _many(instances.drawn, shape, seeds, **FINE)]
    _against("Two worker types, 18 configurations on each, up to six workers a module", large, "frontier")


def _many(draw: Callable[..., Problem], shape: str, seeds: Sequence[int], **more: Any) -> list[Problem]:
    return [draw(seed, shape, **more) for seed in seeds]


def _types(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """Time of the default policy by worker types, four modules with 24 configurations on each."""
    names = ("worker types", "median ms", "P95 ms", "worst ms", "proven", "of")
    results.head(*names, title="Time of a decision")
    more: dict[str, Any] = {"batches": tuple(2**i for i in range(8)), "concurrencies": (1, 2, 4), "instances": 6.0}
    rows = {types: _many(instances.drawn, "chain4", seeds, types=types, **more) for types in (2, 4, 8, 16)}
    for types, problems in (rows | {30: [instances.thirty(seed) for seed in seeds]}).items():
        answers = [decide(problem) for problem in problems]
        times = [spent for _, spent in answers]
        proven = sum(bool(plan.facts["is_optimal"]) for plan, _ in answers)
        figures = (statistics.median(times), results.percentile(times, 95), max(times))
        results.cells(types, *figures, proven, len(times))


TABLES = {"paper": _paper, "cost": _cost, "types": _types}
