"""Pipelines (Scrooge): cost against exhaustive search and the yardsticks, and the time of a decision as things grow.

Times are CPU time of the decision alone, after the first call. Asked: cost / exhaustive mean ≤ 1.005, worst ≤ 1.01; 2
worker types ≤ 100 ms, 30 types × 4 modules ≤ 150 ms. `--quick` takes a quarter of the seeds.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from appliance.lab.problems import pipeline
from appliance.policies.allocation.base import AllocationPlan
from reproduce.baselines import ALLOCATION
from tests.checkers.pipeline import broken
from tests.instances import allocation as instances

Problem = dict[str, Any]
SHAPES = ("single", "chain2", "chain3", "fork", "join")
YARDSTICKS = ("frontier", "scrooge", "greedy", "concurrency-1", "nexus-like")


def decide(problem: Problem, policy: str = "frontier") -> tuple[AllocationPlan, float]:
    """The plan and the CPU milliseconds it took; the answer is checked."""
    question = pipeline.read({**problem, "policy": policy})
    start = time.process_time()
    plan = question.decide()
    spent = time.process_time() - start
    if plan.feasible:
        faults = broken(problem, question.answer(plan))
        assert not faults, faults
    return plan, spent * 1e3


def paper() -> None:
    """The worked example and its sweep."""
    print("## The paper's example\n")
    plan, spent = decide(instances.paper())
    print(f"{plan.cost:.4f} at {plan.latency_ms:.1f} ms (asked 7.5407 at 273.0), in {spent:.1f} ms")
    wrong = 0
    for step in instances.paper_sweep():
        plan, _ = decide(instances.paper(step["slo_ms"]))
        wrong += plan.cost is None or abs(plan.cost - step["cost"]) > 5e-5
    print(f"SLO sweep: {len(instances.paper_sweep()) - wrong} of {len(instances.paper_sweep())} at the optimum\n")


def against(title: str, problems: Sequence[Problem], reference: str) -> None:
    """A table of every yardstick's cost over the reference's."""
    costs = [decide(problem, reference)[0].cost for problem in problems]
    feasible = [cost for cost in costs if cost is not None]
    print(f"## {title}\n\n{len(problems)} problems, {len(feasible)} feasible; cost over that of `{reference}`.\n")
    print("| policy | mean | worst | within 0.01 % | refused | median ms | worst ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for policy in YARDSTICKS:
        answers = [decide(problem, policy) for problem in problems]
        pairs = list(zip(answers, costs, strict=True))
        ratios = [plan.cost / cost for (plan, _), cost in pairs if plan.cost is not None and cost]
        refused = sum(not plan.feasible and cost is not None for (plan, _), cost in pairs)
        times = [spent for _, spent in answers]
        same = sum(ratio <= 1.0001 for ratio in ratios) / len(ratios)
        print(
            f"| {policy} | {statistics.fmean(ratios):.4f} | {max(ratios):.4f} | {same:.0%} | {refused} "
            f"| {statistics.median(times):.1f} | {max(times):.1f} |"
        )
    print()


def growth(title: str, rows: Iterable[tuple[str, list[Problem]]]) -> None:
    """Time of the default policy by size."""
    print(f"## {title}\n\n| | median ms | 95 % ms | worst ms | proven |\n| --- | --- | --- | --- | --- |")
    for name, problems in rows:
        answers = [decide(problem) for problem in problems]
        times = sorted(spent for _, spent in answers)
        proven = sum(bool(plan.facts["is_optimal"]) for plan, _ in answers)
        late = times[-(-95 * len(times) // 100) - 1]
        print(f"| {name} | {statistics.median(times):.1f} | {late:.1f} | {times[-1]:.1f} | {proven} of {len(times)} |")
    print()


def many(draw: Callable[..., Problem], shape: str, seeds: int, **more: Any) -> list[Problem]:
    return [draw(seed, shape, **more) for seed in range(seeds)]


def slo_sweep(seeds: int) -> None:
    """Figure 12: what patience saves, and Figure 13: what concurrency saves."""
    print("## Cost by SLO, mean over chains of three, against the SLO as drawn\n")
    print("| SLO | cost | concurrency 1 |\n| --- | --- | --- |")
    drawn = many(instances.drawn, "chain3", seeds, batches=(1, 2, 4, 8, 16, 32), concurrencies=(1, 2, 4))
    base = [decide(problem)[0].cost for problem in drawn]
    for factor in (1.0, 1.5, 2.0, 2.5):
        longer = [{**problem, "slo_ms": problem["slo_ms"] * factor} for problem in drawn]
        cells = [
            statistics.fmean(
                cost / first
                for problem, first in zip(longer, base, strict=True)
                if first and (cost := decide(problem, policy)[0].cost) is not None
            )
            for policy in ("frontier", "concurrency-1")
        ]
        print(f"| × {factor:g} | {cells[0]:.3f} | {cells[1]:.3f} |")
    print()


def main() -> None:
    """Print all tables, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the seeds")
    share = 4 if parser.parse_args().quick else 1
    assert set(YARDSTICKS) < set(ALLOCATION)
    decide(instances.paper(), "scrooge")  # imports numpy and HiGHS
    paper()
    small = [p for shape in SHAPES for p in many(instances.drawn, shape, 20 // share, instances=2.0)]
    against("Two worker types, up to three modules, against exhaustive search", small, "brute-force")
    few: dict[str, Any] = {"instances": 1.2, "batches": (1, 4), "concurrencies": (1, 3)}
    scarce = [p for shape in ("single", "chain2", "fork") for p in many(instances.scarce, shape, 20 // share, **few)]
    against("The same with few workers, others' among them, against exhaustive search", scarce, "brute-force")
    fine: dict[str, Any] = {"batches": (1, 2, 4, 8, 16, 32), "concurrencies": (1, 2, 4), "instances": 6.0}
    large = [p for shape in ("chain3", "fork", "diamond") for p in many(instances.drawn, shape, 20 // share, **fine)]
    against("Two worker types, 18 configurations on each, up to six workers a module", large, "frontier")
    slo_sweep(20 // share)
    seeds = 20 // share
    growth("By worker types, four modules, 24 configurations on each", _by_types(seeds))
    growth("By modules, two worker types, 18 configurations on each", _by_modules(seeds, fine))
    growth("By workers a module needs", _by_rate(seeds, fine))
    growth("With few workers", _scarce(seeds))


def _by_types(seeds: int) -> Iterable[tuple[str, list[Problem]]]:
    batches = tuple(2**i for i in range(8))
    for types in (2, 4, 8, 16):
        more: dict[str, Any] = {"types": types, "batches": batches, "concurrencies": (1, 2, 4), "instances": 6.0}
        yield f"{types} types", many(instances.drawn, "chain4", seeds, **more)
    yield "30 types", [instances.thirty(seed) for seed in range(seeds)]


def _by_modules(seeds: int, fine: dict[str, Any]) -> Iterable[tuple[str, list[Problem]]]:
    for shape in ("chain1", "chain2", "chain4", "chain8", "diamond", "zigzag"):
        yield shape, many(instances.drawn, shape, seeds, **fine)


def _by_rate(seeds: int, fine: dict[str, Any]) -> Iterable[tuple[str, list[Problem]]]:
    for most in (2.0, 10.0, 50.0, 250.0):
        yield f"up to {most:g}", many(instances.drawn, "chain3", seeds, **{**fine, "instances": most})


def _scarce(seeds: int) -> Iterable[tuple[str, list[Problem]]]:
    for shape in ("chain2", "chain3", "fork", "chain4", "diamond", "zigzag"):
        yield shape, many(instances.scarce, shape, seeds, instances=2.0)


if __name__ == "__main__":
    main()
