"""Adaptation (Jellyfish). The policy was tuned on seeds 0 to 2, 100 to 115, 200 to 211 and 600 to 607; 500 to 503, 602,
700 and 701 were looked at.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from appliance.lab.problems import adaptation
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.options import options_of
from benchmarks import _results as results
from reproduce.baselines import ADAPTATION
from reproduce.baselines.exact import model_of
from tests.checkers.adaptation import faults
from tests.instances.adaptation import ZOOS, drawn, overloaded
from tests.instances.adaptation.written import written

SEEDS, QUICK, FIRST = 2, 1, 800
FAST = tuple(name for name in ADAPTATION if name != "exact")
EACH = (4, 6, 8, 10)
"""Clients a worker in the problems that `exact` solves."""
LARGE = ((8, 6), (16, 10))
"""Workers, and clients each."""
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
    plan, spent_ms = results.spent(question.decide)
    broken = faults(document, question.answer(plan))
    assert not broken, broken
    return plan, spent_ms


def _exact(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """Every policy against the optimum; where it was not proven in time, against the best plan known, and `exchange`
    against bounds.
    """
    decide(Case("overloaded", "yolo", 2, 4, 0).problem(), "exact")  # the first call imports
    fewer = dict.fromkeys((*FAST, "exact"), 0)
    ratios: dict[str, list[float]] = {policy: [] for policy in fewer}
    spent: dict[str, list[float]] = {policy: [] for policy in fewer}
    chosen = [Case(f, z, k, n, s) for k in (2, 4) for n in EACH for z in ZOOS for f in FAMILIES for s in seeds]
    open_cases: list[tuple[object, ...]] = []
    for case in chosen:
        problem = replace(case.problem(), time_limit_s=options.limit)
        best, best_ms = decide(problem, "exact")
        plans = {policy: decide(problem, policy) for policy in FAST} | {"exact": (best, best_ms)}
        for policy, (plan, ms) in plans.items():
            spent[policy].append(ms)
            if len(plan.unmapped) > len(best.unmapped):
                fewer[policy] += 1
            else:
                ratios[policy].append(plan.objective / best.objective if best.objective else 1.0)
        if best.facts["proven"] < 1.0:
            limits = (options.limit, options.longer)
            to_bound = [plans["exchange"][0].objective / _bounds(problem, best, limit)[2] for limit in limits]
            open_cases.append((f"{case.family}, {case.zoo}, {case.workers} x {case.each}, {case.seed}", *to_bound))
    title = f"{len(chosen)} problems against `exact`, {len(open_cases)} optima not proven in {options.limit:g} s"
    names = ("policy", "fewer mapped than the optimum", "of the others: mean ratio", "worst", "median ms", "worst ms")
    results.head(*names, title=title)
    for policy in fewer:
        results.cells(policy, fewer[policy], *_mean_and_worst(ratios[policy]), *_median_and_worst(spent[policy]))
    results.head("not proven", "`exchange` / bound", f"/ bound after at most {options.longer:g} s")
    for row in open_cases:
        results.cells(*row)


def _bounded(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    """Large problems against the linear relaxation of the program of `exact`, and against what HiGHS proves of it
    within the limit: ratios of the objective at an equal count.
    """
    names = ("workers x clients", "family, zoo", "policy", "mapped", "at most", "/ relaxed: mean", "worst")
    results.head(
        *names, "/ proven: mean", "worst of those", "median ms", "worst ms", title="Large problems, against bounds"
    )
    for size, what, problems in _large(seeds):
        _bounded_rows(size, what, problems, options.limit)


def _large(seeds: Sequence[int]) -> Iterator[tuple[str, str, list[AdaptationInput]]]:
    """Size and kind of large problems, and one for each seed."""
    for (workers, each), family, zoo in product(LARGE, FAMILIES, ZOOS):
        problems = [Case(family, zoo, workers, each, seed).problem() for seed in seeds]
        yield f"{workers} x {workers * each}", f"{family}, {zoo}", problems


def _bounded_rows(size: str, what: str, problems: Sequence[AdaptationInput], limit_s: float) -> None:
    plans = {policy: [decide(problem, policy) for problem in problems] for policy in ("exchange", "jellyfish")}
    each_plans = zip(*([plan for plan, _ in answers] for answers in plans.values()), strict=True)
    best = [max(each, key=lambda plan: (-len(plan.unmapped), plan.objective)) for each in each_plans]
    bounds = [_bounds(problem, plan, limit_s) for problem, plan in zip(problems, best, strict=True)]
    for policy, answers in plans.items():
        rows = [i for i, (plan, _) in enumerate(answers) if len(plan.unmapped) == len(best[i].unmapped)]
        relaxed, proven = ([answers[i][0].objective / bounds[i][at] for i in rows] for at in (1, 2))
        mapped = sum(len(p.clients) - len(plan.unmapped) for p, (plan, _) in zip(problems, answers, strict=True))
        figures = (*_mean_and_worst(relaxed), *_mean_and_worst(proven), *_median_and_worst([ms for _, ms in answers]))
        results.cells(size, what, policy, mapped, sum(bound[0] for bound in bounds), *figures)


def _bounds(problem: AdaptationInput, best: AdaptationPlan, limit_s: float) -> tuple[int, float, float]:
    """Most clients, and with at least as many as `best` maps the objective: of the relaxation, and of the program
    within the limit.
    """
    model = model_of(options_of(problem), problem.workers)
    most = count = len(problem.clients) - len(best.unmapped)
    if best.unmapped:
        most = math.floor(model.program.most(model.mapped, limit_s).bound + 1e-6)
    model.program.at_least(count, model.mapped)
    relaxed, whole = (model.program.most(model.objective, limit_s, relaxed=r).bound for r in (True, False))
    return most, relaxed, min(relaxed, whole)


def _times(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    names = ("workers x clients", "family, zoo", "median ms", "worst ms")
    results.head(*names, title="Times of `exchange`")
    decide(Case("overloaded", "yolo", 2, 4, 0).problem(), "exchange")  # the first call imports
    for size, what, problems in _large(seeds):
        results.cells(size, what, *_median_and_worst([decide(problem, "exchange")[1] for problem in problems]))


def _mean_and_worst(ratios: Sequence[float]) -> tuple[float, float]:
    return (statistics.mean(ratios), min(ratios)) if ratios else (math.nan, math.nan)


def _median_and_worst(spent: Sequence[float]) -> tuple[float, float]:
    return statistics.median(spent), max(spent)


TABLES = {"exact": _exact, "bounds": _bounded, "times": _times}
