"""Adaptation (Jellyfish): clients mapped and Σ accuracy·rate against the optimum and against bounds, and the time of a
decision as things grow.

Times are CPU time of the decision alone. Asked, beside `exact`: never fewer clients, mean ratio ≥ 0.999, worst ≥ 0.99;
8 × 48 and 16 × 160: ≥ 0.98 of a bound in ≤ 60 and ≤ 400 ms. `--seeds N` instances of each size and family from seed
`--first` on (the policy was tuned on seeds 0 to 2, 100 to 115, 200 to 211 and 600 to 607, and 500 to 503, 602, 700 and
701 were looked at); `--limit S` seconds for each optimum or bound, `--longer S` where that leaves one open.
"""

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.lab.problems import adaptation
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.matching import names, prefetch
from appliance.policies.adaptation.options import options_of
from appliance.policies.adaptation.zoo import by_size
from reproduce.baselines import ADAPTATION
from reproduce.baselines.exact import model_of
from tests.checkers.adaptation import faults
from tests.instances.adaptation import ZOOS, drawn, overloaded, shaded, yolo
from tests.instances.adaptation.written import written

FAST = tuple(name for name in ADAPTATION if name != "exact")
EACH = (4, 6, 8, 10)
"""Clients a worker in the problems that `exact` solves."""
LINKS_BPS = (20e6, 15e6, 10e6, 7.5e6)
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


@dataclass
class Compared:
    """What a policy lost against the optimum, or the best plan known: clients, ratio of the objectives where it lost
    none, ms.
    """

    fewer: int
    ratios: list[float]
    times: list[float]

    def add(self, plan: AdaptationPlan, best: AdaptationPlan, spent: float) -> None:
        self.times.append(spent)
        if len(plan.unmapped) > len(best.unmapped):
            self.fewer += 1
        else:
            self.ratios.append(plan.objective / best.objective if best.objective else 1.0)


def against_exact(seeds: Sequence[int], each: Sequence[int], limit_s: float, longer_s: float) -> None:
    """Every policy against the optimum; where it was not proven in time, against the best plan known, and `exchange`
    against bounds.
    """
    found = {policy: Compared(0, [], []) for policy in (*FAST, "exact")}
    chosen = cases((2, 4), each, seeds)
    open_cases: list[str] = []
    for case in chosen:
        problem = replace(case.problem(), time_limit_s=limit_s)
        best, spent = decide(problem, "exact")
        plans = {policy: decide(problem, policy) for policy in FAST} | {"exact": (best, spent)}
        for policy, (plan, ms) in plans.items():
            found[policy].add(plan, best, ms)
        if best.facts["proven"] < 1.0:
            open_cases.append(f"| {_named(case)} | {_closed(problem, plans['exchange'][0], best, limit_s, longer_s)} |")
    print(f"## {{2, 4}} workers × {{{', '.join(map(str, each))}}} clients each, against `exact`\n")
    print(
        f"{len(chosen)} problems of {len(ZOOS)} zoos, half of them overloaded; {len(open_cases)} optima not proven in "
        f"{limit_s:g} s.\n"
    )
    print("| policy | fewer mapped than the optimum | of the others: mean ratio | worst | median ms | worst ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for policy, compared in found.items():
        print(f"| {policy} | {compared.fewer} | {_ratios(compared.ratios, ' | ')} | {_times(compared.times)} |")
    print(
        f"\n| not proven in {limit_s:g} s | `exchange` / bound | / bound after at most {longer_s:g} s |\n| --- | --- "
        f"| --- |"
    )
    print("\n".join(open_cases), end="\n\n")


def _named(case: Case) -> str:
    return f"{case.family}, {case.zoo}, {case.workers} × {case.each}, seed {case.seed}"


def _closed(
    problem: AdaptationInput, plan: AdaptationPlan, best: AdaptationPlan, limit_s: float, longer_s: float
) -> str:
    """The ratio to the bound found within the limit, and, where that is below 0.9999, with more time."""
    ratios = []
    for limit in (limit_s, longer_s):
        ratios.append(f"{plan.objective / _bounds(problem, best, limit)[2]:.4f}")
        if float(ratios[-1]) >= 0.9999:
            break
    return " | ".join([*ratios, "the same"][:2])


def against_bounds(seeds: Sequence[int], limit_s: float) -> None:
    """Large problems against the linear relaxation of the program of `exact`, and against what HiGHS proves of it
    within the limit.
    """
    print("## Large problems, against bounds\n")
    print(
        f"Two bounds on the program of `exact`: its linear relaxation, and what HiGHS proves in {limit_s:g} s. "
        "Ratios of Σ accuracy·rate at an equal count.\n"
    )
    print(
        "| workers × clients | family, zoo | policy | mapped / bound | of relaxed: mean, worst | of proven: mean, "
        "worst | median ms | worst ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for workers, each in ((8, 6), (16, 10)):
        for family in FAMILIES:
            for zoo in ZOOS:
                _bounded_rows([Case(family, zoo, workers, each, seed) for seed in seeds], limit_s)
    print()


def _bounded_rows(chosen: list[Case], limit_s: float) -> None:
    problems = [case.problem() for case in chosen]
    plans = {policy: [decide(problem, policy) for problem in problems] for policy in ("exchange", "jellyfish")}
    best = [max((plans[n][i][0] for n in plans), key=_rank) for i in range(len(problems))]
    bounds = [_bounds(problem, plan, limit_s) for problem, plan in zip(problems, best, strict=True)]
    size = f"{chosen[0].workers} × {chosen[0].workers * chosen[0].each}"
    for policy, answers in plans.items():
        rows = [i for i, (plan, _) in enumerate(answers) if len(plan.unmapped) == len(best[i].unmapped)]
        relaxed = [answers[i][0].objective / bounds[i][1] for i in rows]
        proven = [answers[i][0].objective / bounds[i][2] for i in rows]
        mapped = sum(len(p.clients) - len(plan.unmapped) for p, (plan, _) in zip(problems, answers, strict=True))
        print(
            f"| {size} | {chosen[0].family}, {chosen[0].zoo} | {policy} | {mapped} / "
            f"{sum(bound[0] for bound in bounds)} | "
            f"{_ratios(relaxed)} | {_ratios(proven)} | {_times([spent for _, spent in answers])} |",
            flush=True,
        )


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


def _rank(plan: AdaptationPlan) -> tuple[int, float]:
    return -len(plan.unmapped), plan.objective


def times(seeds: Sequence[int]) -> None:
    """Time of a decision on large problems, the default alone: median and worst over the seeds."""
    print(
        "## Times of `exchange`\n\n| workers × clients | family, zoo | median ms | worst ms |\n| --- | --- | --- | "
        "--- |"
    )
    for workers, each in ((8, 6), (16, 10)):
        for family in FAMILIES:
            for zoo in ZOOS:
                spent = [decide(Case(family, zoo, workers, each, seed).problem(), "exchange")[1] for seed in seeds]
                print(f"| {workers} × {workers * each} | {family}, {zoo} | {_times(spent)} |", flush=True)
    print()


def baselines(seeds: Sequence[int]) -> None:
    """Every policy on large problems: clients mapped and Σ accuracy·rate, in the mean."""
    print(f"## Clients mapped, Σ accuracy·rate\n\n| workers × clients | family, zoo | {' | '.join(FAST)} |")
    print("| --- | --- |" + " --- |" * len(FAST))
    for workers, each in ((8, 6), (16, 10)):
        for family in FAMILIES:
            for zoo in ZOOS:
                problems = [Case(family, zoo, workers, each, seed).problem() for seed in seeds]
                columns = [_mean_of([decide(p, policy)[0] for p in problems], workers * each) for policy in FAST]
                print(f"| {workers} × {workers * each} | {family}, {zoo} | {' | '.join(columns)} |", flush=True)
    print()


def _mean_of(plans: Sequence[AdaptationPlan], clients: int) -> str:
    mapped = statistics.mean(clients - len(plan.unmapped) for plan in plans)
    return f"{mapped:.1f}, {statistics.mean(plan.objective for plan in plans):.1f}"


def growth(seeds: Sequence[int]) -> None:
    """Time of a decision as workers, clients, networks and distinct rates grow, one at a time."""
    print(
        "## Growth\n\n| what | workers × clients, networks | exchange median ms | worst ms | jellyfish median ms | "
        "worst ms |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for workers in (1, 2, 4, 8, 16, 32):
        _grown("workers", [Case("drawn", "yolo", workers, 6, seed).problem() for seed in seeds])
    for each in (2, 4, 6, 10, 20):
        _grown("clients", [Case("drawn", "yolo", 8, each, seed).problem() for seed in seeds])
    for kept, shades in ((4, 1), (2, 1), (1, 1), (1, 2), (1, 4)):
        problems = [Case("drawn", "yolo", 8, 6, seed).problem() for seed in seeds]
        _grown("networks", [replace(p, networks=shaded(p.networks[::kept], shades)) for p in problems])
    for count in (3, 6, 12, 24):
        rates = tuple(10.0 + 15.0 * i / (count - 1) for i in range(count))
        _grown(f"{count} distinct rates", [drawn(seed, 8, 6, rates=rates) for seed in seeds])


def _grown(what: str, problems: Sequence[AdaptationInput]) -> None:
    columns = [_times([decide(p, policy)[1] for p in problems]) for policy in ("exchange", "jellyfish")]
    first = problems[0]
    size = f"{first.workers} × {len(first.clients)}, {len(first.networks)}"
    print(f"| {what} | {size} | {columns[0]} | {columns[1]} |", flush=True)


def prefetched(seeds: Sequence[int]) -> None:
    """How many switches on a trace find their network among the neighbours kept loaded (JF-19), and what warm starts
    leave in place.
    """
    print(
        "## Prefetch on a trace of 80 s: a plan each 0.5 s, links of 20, 15, 10 and 7.5 Mbit/s ± 10 %, "
        "4 workers × 4 clients\n"
    )
    print("| policy | switches in 100 worker plans | of them among 5 | among 3 |\n| --- | --- | --- | --- |")
    for policy in ("exchange", "jellyfish"):
        switches = [switch for seed in seeds for switch in _switches(seed, policy)]
        order = names(by_size(yolo()))
        near = {n: [k in (old, *prefetch(active, order, n)) for old, k, active in switches] for n in (5, 3)}
        shares = " | ".join(f"{100 * sum(hits) / max(1, len(hits)):.1f} %" for hits in near.values())
        print(f"| {policy} | {100 * len(switches) / (len(seeds) * 160 * 4):.1f} | {shares} |")


def _switches(seed: int, policy: str) -> list[tuple[str, str, list[str]]]:
    """Old and new network of each worker that changes, with all that were active before."""
    dice = random.Random(seed)
    problem = drawn(seed, 4, 4)
    begins = [dice.uniform(0.0, 80.0) for _ in problem.clients]
    held: list[str | None] = [None] * problem.workers
    found: list[tuple[str, str, list[str]]] = []
    for step in range(160):
        links = [LINKS_BPS[int((0.5 * step + begin) / 20.0) % 4] * dice.uniform(0.9, 1.1) for begin in begins]
        clients = tuple(replace(c, bandwidth_bps=bps) for c, bps in zip(problem.clients, links, strict=True))
        plan, _ = decide(replace(problem, clients=clients, previous=tuple(held)), policy)
        active = [network for network in held if network]
        for worker in plan.workers:
            old = held[worker.worker]
            if old and old != worker.network:
                found.append((old, worker.network, active))
            held[worker.worker] = worker.network
    return found


def _ratios(ratios: Sequence[float], between: str = ", ") -> str:
    """Mean and worst; nothing where none counts."""
    return f"{statistics.mean(ratios):.4f}{between}{min(ratios):.4f}" if ratios else between.rstrip(" ,")


def _times(spent: list[float]) -> str:
    return f"{statistics.median(spent):.1f} | {max(spent):.1f}"


TABLES: Mapping[str, Callable[[argparse.Namespace, Sequence[int]], None]] = {
    "exact": lambda options, seeds: against_exact(seeds, options.each or EACH, options.limit, options.longer),
    "bounds": lambda options, seeds: against_bounds(seeds, options.limit),
    "times": lambda _, seeds: times(seeds),
    "baselines": lambda _, seeds: baselines(seeds),
    "growth": lambda _, seeds: growth(seeds),
    "prefetch": lambda _, seeds: prefetched(seeds),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=800)
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--longer", type=float, default=120.0)
    parser.add_argument("--quick", action="store_true", help="one seed, 3 s for each optimum or bound")
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one, or these")
    parser.add_argument("--each", type=int, action="append", help="clients a worker beside `exact`, only so many")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.limit, options.longer = 1, 3.0, 3.0
    seeds = range(options.first, options.first + options.seeds)
    decide(Case("overloaded", "yolo", 2, 4, 0).problem(), "exact")  # what the first call imports is nobody's time
    for name in options.table or TABLES:
        TABLES[name](options, seeds)


if __name__ == "__main__":
    main()
