"""Adaptation (Jellyfish): clients mapped and Σ accuracy·rate against the optimum and against bounds, and the time of a decision as things grow.

Times are CPU time of the decision alone. Asked, beside `exact`: never fewer clients, mean ratio ≥ 0.999, worst ≥ 0.99; 8 × 48 and 16 × 160: ≥ 0.98 of a
bound in ≤ 60 and ≤ 400 ms. `--seeds N` instances of each size and family from seed `--first` on (the policy was tuned on seeds 0 to 2 of these families, so
the default is others); `--limit S` seconds for each optimum or bound.
"""

import argparse
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from appliance.lab.problems import adaptation
from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.exact import model_of
from appliance.policies.adaptation.options import options_of
from tests.checkers.adaptation import faults
from tests.instances.adaptation import ZOOS, drawn, overloaded
from tests.instances.adaptation.written import written

FAST = tuple(name for name in ADAPTATION_POLICIES if name != "exact")
FAMILIES = {"drawn": drawn, "overloaded": overloaded}


@dataclass(frozen=True)
class Case:
    family: str
    zoo: str
    workers: int
    each: int
    seed: int

    def problem(self) -> AdaptationInput:
        return FAMILIES[self.family](self.seed, self.workers, self.each, zoo=self.zoo)


def decide(problem: AdaptationInput, policy: str) -> tuple[AdaptationPlan, float]:
    """The plan and the CPU milliseconds it took; the answer is checked."""
    document = written(problem, policy)
    question = adaptation.read(document)
    start = time.process_time()
    plan = question.decide()
    spent = time.process_time() - start
    broken = faults(document, question.answer(plan))
    assert not broken, broken
    return plan, spent * 1e3


def cases(workers: Iterable[int], each: Iterable[int], seeds: Sequence[int]) -> list[Case]:
    return [Case(f, z, k, n, s) for k in workers for n in each for z in ZOOS for f in FAMILIES for s in seeds]


def against_exact(seeds: Sequence[int], limit_s: float) -> None:
    """Every policy against the optimum; where it was not proven in time, against the best plan known."""
    found: dict[str, list[tuple[int, float]]] = {policy: [] for policy in FAST}
    times: dict[str, list[float]] = {policy: [] for policy in (*FAST, "exact")}
    unproven = 0
    chosen = cases((2, 4), (4, 6, 8, 10), seeds)
    for case in chosen:
        problem = replace(case.problem(), time_limit_s=limit_s)
        best, spent = decide(problem, "exact")
        times["exact"].append(spent)
        unproven += best.facts["proven"] < 1.0
        for policy in FAST:
            plan, spent = decide(problem, policy)
            times[policy].append(spent)
            fewer = len(plan.unmapped) - len(best.unmapped)
            found[policy].append((fewer, plan.objective / best.objective if best.objective else 1.0))
    print("## {2, 4} workers × {4, 6, 8, 10} clients each, against `exact`\n")
    print(
        f"{len(chosen)} problems of {len(ZOOS)} zoos, half of them overloaded; {unproven} optima not proven in {limit_s:g} s.\n"
    )
    print("| policy | fewer mapped than the optimum | of the others: mean ratio | worst | median ms | worst ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for policy in FAST:
        same = [ratio for fewer, ratio in found[policy] if fewer <= 0] or [math.nan]
        short = sum(fewer > 0 for fewer, _ in found[policy])
        print(f"| {policy} | {short} | {statistics.mean(same):.5f} | {min(same):.4f} | {_times(times[policy])} |")
    print(f"| exact | 0 | 1 | 1 | {_times(times['exact'])} |\n")


def against_bounds(seeds: Sequence[int], limit_s: float) -> None:
    """Large problems: the relaxation's bound (that of column generation), and what branching adds to it within the limit."""
    print("## Large problems, against bounds\n")
    print(
        f"`relaxed`: linear program over all patterns; `branched`: after {limit_s:g} s of HiGHS. Ratios of Σ accuracy·rate at an equal count.\n"
    )
    print(
        "| workers × clients | family, zoo | policy | mapped / bound | of relaxed: mean, worst | of branched: mean, worst | median ms | worst ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for workers, each in ((8, 6), (16, 10)):
        for family in FAMILIES:
            for zoo in ZOOS:
                chosen = [Case(family, zoo, workers, each, seed) for seed in seeds]
                _bounded_rows(chosen, limit_s)
    print()


def _bounded_rows(chosen: list[Case], limit_s: float) -> None:
    problems = [case.problem() for case in chosen]
    plans = {policy: [decide(problem, policy) for problem in problems] for policy in ("exchange", "jellyfish")}
    counts = [max(len(p.clients) - len(plans[n][i][0].unmapped) for n in plans) for i, p in enumerate(problems)]
    bounds = [_bounds(problem, count, limit_s) for problem, count in zip(problems, counts, strict=True)]
    size = f"{chosen[0].workers} × {chosen[0].workers * chosen[0].each}"
    for policy, answers in plans.items():
        mapped = [
            len(problem.clients) - len(plan.unmapped) for problem, (plan, _) in zip(problems, answers, strict=True)
        ]
        rows = [i for i, n in enumerate(mapped) if n == counts[i]]
        relaxed = [answers[i][0].objective / bounds[i][1] for i in rows] or [math.nan]
        branched = [answers[i][0].objective / bounds[i][2] for i in rows] or [math.nan]
        share = f"{sum(mapped)} / {sum(bound[0] for bound in bounds)}"
        print(
            f"| {size} | {chosen[0].family}, {chosen[0].zoo} | {policy} | {share} | {statistics.mean(relaxed):.4f}, {min(relaxed):.4f} | "
            f"{statistics.mean(branched):.4f}, {min(branched):.4f} | {_times([spent for _, spent in answers])} |",
            flush=True,
        )


def _bounds(problem: AdaptationInput, count: int, limit_s: float) -> tuple[int, float, float]:
    """Most clients by the relaxation, and with at least `count` of them the objective relaxed and branched."""
    model = model_of(options_of(problem), problem.workers)
    most = math.floor(model.program.solve(model.mapped, limit_s, relaxed=True).bound + 1e-6)
    model.program.at_least(count, model.mapped)
    relaxed = model.program.solve(model.objective, limit_s, relaxed=True).bound
    return most, relaxed, min(relaxed, model.program.solve(model.objective, limit_s).bound)


def growth(seeds: Sequence[int]) -> None:
    """Time of a decision as workers and clients grow."""
    print(
        "## Growth\n\n| workers × clients | exchange median ms | worst ms | jellyfish median ms | worst ms |\n| --- | --- | --- | --- | --- |"
    )
    for workers, each in ((1, 6), (2, 6), (4, 6), (8, 4), (8, 6), (8, 10), (16, 6), (16, 10), (32, 10)):
        problems = [Case("drawn", "yolo", workers, each, seed).problem() for seed in seeds]
        columns = [_times([decide(p, policy)[1] for p in problems]) for policy in ("exchange", "jellyfish")]
        print(f"| {workers} × {workers * each} | {columns[0]} | {columns[1]} |", flush=True)


def _times(spent: list[float]) -> str:
    return f"{statistics.median(spent):.1f} | {max(spent):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=500)
    parser.add_argument("--limit", type=float, default=30.0)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    against_exact(seeds, options.limit)
    against_bounds(seeds, options.limit / 2)
    growth(seeds)


if __name__ == "__main__":
    main()
