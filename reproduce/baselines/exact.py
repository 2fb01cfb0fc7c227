"""The yardstick: P1 as a mixed-integer program for HiGHS, with a time limit and the bound that it proved."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.exchange import PairwiseExchange
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.options import Options, options_of
from appliance.policies.adaptation.patterns import Patterns, coarse_rates, patterns_of
from appliance.policies.milp import Program

PATTERNS_MAX = 30_000
"""More patterns (many distinct rates) than this and the program is written client by client."""
SEATS_LIMIT_S = 60.0
"""Many times what it takes to seat the clients of the instances."""
Seats = Mapping[int, tuple[int, int, int]]
"""Column → the worker, option and client of a seat."""


class Exact:
    """First the most clients, then, with that many, the largest Σ accuracy·rate.

    The paper's program has a copy of everything per worker, which solvers drown in (20 s to 15 min for 4 workers and 16
    clients). Workers are alike, and rates are few: here an integer counts the instances of an option that have a given
    number of places for each rate (`patterns`); who takes the places is then a transport problem, which needs no
    integers. Many distinct rates fall back to the paper's program over undominated options. Not bounded by anything but
    `problem.time_limit_s`; `facts` has the bounds proven and whether the plan is optimal.
    """

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        options = options_of(problem)
        if not options.batches:
            return assemble(problem, (), "exact", {"proven": 1.0, "bound_mapped": 0.0, "bound_objective": 0.0})
        model = model_of(options, problem.workers)
        most = model.program.most(model.mapped, problem.time_limit_s / 2)
        most_bound = math.floor(most.bound + 1e-6) if math.isfinite(most.bound) else len(options.clients)
        count = round(most.value) if most.values else 0
        model.program.at_least(count, model.mapped)
        best = model.program.most(model.objective, problem.time_limit_s / 2)
        chosen = best if best.values else most
        proven = most.is_optimal and best.is_optimal
        facts = {"proven": float(proven), "bound_mapped": float(most_bound)}
        if most.is_optimal and math.isfinite(
            best.bound
        ):  # without a proven count it would be no bound for other counts
            facts["bound_objective"] = best.bound
        how = "exact" if proven else "exact, stopped by its time limit"
        plan = assemble(problem, model.mapping(chosen.values) if chosen.values else (), how, facts)
        return plan if proven else _better(plan, PairwiseExchange().plan(problem))


def _better(stopped: AdaptationPlan, other: AdaptationPlan) -> AdaptationPlan:
    """What was found until the time limit, or the heuristic's plan where that is better, with what was proven either
    way.
    """
    if (len(other.unmapped), -other.objective) < (len(stopped.unmapped), -stopped.objective):
        return replace(
            other, facts=stopped.facts, reason=f"exact, stopped by its time limit with less than {other.reason}"
        )
    return stopped


@dataclass(frozen=True, slots=True)
class Model:
    """P1 as a program: what to maximise, and how values are read as a mapping."""

    options: Options
    program: Program
    mapped: Mapping[int, float]
    objective: Mapping[int, float]
    patterns: Patterns | None
    """Column p counts the instances of pattern p."""
    seats: Seats
    """Without patterns."""

    def mapping(self, values: Sequence[float]) -> tuple[Mapped, ...]:
        """The instances with their clients, from the values of a solution."""
        seats = self.seats
        if self.patterns is not None:
            seats, values = _seated(self.options, self.patterns, values)
        members: dict[tuple[int, int], list[int]] = {}
        for column, (worker, option, client) in seats.items():
            if round(values[column]):
                members.setdefault((worker, option), []).append(client)
        found = []
        for (_, option), clients in members.items():
            made = tuple(self.options.clients[i] for i in clients)
            found.append(Mapped(self.options.networks[option], self.options.batches[option], made))
        return tuple(found)


def _seated(options: Options, patterns: Patterns, values: Sequence[float]) -> tuple[Seats, Sequence[float]]:
    """Clients to the places of the instances that were chosen: a transport problem, whose relaxation is whole.

    Which places can be filled together is a matroid for each rate, so the largest Σ (1 + accuracy)·rate fills the most
    places and has the largest Σ accuracy·rate at once.
    """
    program, seats = Program(), dict[int, tuple[int, int, int]]()
    chosen = [pattern for pattern in range(len(patterns.option)) for _ in range(round(values[pattern]))]
    of_client: dict[int, dict[int, float]] = defaultdict(dict)
    for worker, pattern in enumerate(chosen):
        option = int(patterns.option[pattern])
        for kind, places in enumerate(patterns.places[pattern]):
            of_place = {}
            for client in ((patterns.kind == kind) & options.tolerated[:, option]).nonzero()[0]:
                column = program.column(1.0, whole=True)
                seats[column] = worker, option, int(client)
                of_place[column] = of_client[int(client)][column] = 1.0
            program.at_most(float(places), of_place)
    for terms in of_client.values():
        program.at_most(1.0, terms)
    worth = {seat: float((1.0 + options.accuracy[o]) * options.rates[i]) for seat, (_, o, i) in seats.items()}
    return seats, program.most(worth, SEATS_LIMIT_S).values


def model_of(options: Options, workers: int) -> Model:
    """The program with patterns, or client by client when they are too many."""
    patterns = patterns_of(options, coarse_rates(options, len(options.clients)), PATTERNS_MAX)
    return _by_client(options, workers) if patterns is None else _by_pattern(options, workers, patterns)


def _by_pattern(options: Options, workers: int, patterns: Patterns) -> Model:
    """z[pattern] instances and n[option] workers, whole; x[class, option] clients of a class (equal rate and tolerance)
    in an option's places,
    continuous; s[class] clients seated, whole. Two kinds of rows are needless but make the relaxation tighter, in which
    z may be half a worker: x[class, option] ≤ size·n[option], so that no client fills several places of it, and those
    of `_room`."""
    program = Program()
    instances = [program.column(workers, whole=True) for _ in patterns.option]
    running = [program.column(workers, whole=True) for _ in options.batches]
    program.at_most(workers, dict.fromkeys(running, 1.0))
    for option, runs in enumerate(running):
        program.exactly(0.0, {runs: -1.0} | {instances[p]: 1.0 for p in (patterns.option == option).nonzero()[0]})
    classes = Counter((float(rate), row.tobytes()) for rate, row in zip(options.rates, options.tolerated, strict=True))
    places: dict[tuple[int, float], dict[int, float]] = {}
    seated: dict[tuple[float, bytes], int] = {}
    objective: dict[int, float] = {}
    for (rate, tolerance), count in sorted(classes.items()):
        taken = {}
        for option in (o for o, tolerated in enumerate(tolerance) if tolerated):
            column = program.column(count)
            taken[column] = 1.0
            objective[column] = rate * float(options.accuracy[option])
            program.at_most(0.0, {column: 1.0, running[option]: -float(count)})
            places.setdefault((option, rate), {})[column] = 1.0
        seated[rate, tolerance] = program.column(count, whole=True)
        program.exactly(0.0, {seated[rate, tolerance]: -1.0, **taken})
    for column, option, seats in zip(instances, patterns.option, patterns.places, strict=True):
        for rate in seats.nonzero()[0]:
            places[int(option), float(patterns.rates[rate])][column] = -float(seats[rate])
    for terms in places.values():
        program.at_most(0.0, terms)
    _room(program, patterns, running, seated)
    return Model(options, program, dict.fromkeys(seated.values(), 1.0), objective, patterns, {})


def _room(
    program: Program, patterns: Patterns, running: Sequence[int], seated: Mapping[tuple[float, bytes], int]
) -> None:
    """For each set of options that is all some class tolerates: its workers carry those who tolerate nothing beside it.

    In workers and clients alone,
    so that a solver, rounding, sees how many workers that takes."""
    carried = np.zeros(len(running))
    np.maximum.at(carried, patterns.option, patterns.places @ patterns.rates)
    for within in sorted({tolerance for _, tolerance in seated}):
        inside = np.frombuffer(within, dtype=np.bool_)
        load = {
            column: rate
            for (rate, tolerance), column in seated.items()
            if not (np.frombuffer(tolerance, dtype=np.bool_) & ~inside).any()
        }
        program.at_most(0.0, load | {running[int(o)]: -float(carried[o]) for o in inside.nonzero()[0]})


def _by_client(options: Options, workers: int) -> Model:
    """The paper's program, linear: z[k, o] worker k runs option o; u[k, o, i] client i is served there.

    Workers are ordered by option.
    """
    program = Program()
    seats: dict[int, tuple[int, int, int]] = {}
    of_client: dict[int, dict[int, float]] = {i: {} for i in range(len(options.clients))}
    ranks: list[dict[int, float]] = []
    for worker in range(workers):
        runs = {o: program.column(1.0, whole=True) for o in range(len(options.batches))}
        program.at_most(1.0, dict.fromkeys(runs.values(), 1.0))
        ranks.append({column: float(o + 1) for o, column in runs.items()})
        for option, column in runs.items():
            load = {column: -float(options.capacity[option])}
            for i in (int(i) for i in options.tolerated[:, option].nonzero()[0]):
                seat = program.column(1.0, whole=True)
                seats[seat] = (worker, option, i)
                of_client[i][seat] = 1.0
                load[seat] = float(options.rates[i])
                program.at_most(0.0, {seat: 1.0, column: -1.0})
            program.at_most(0.0, load)
    for terms in of_client.values():
        program.at_most(1.0, terms)
    for left, right in itertools.pairwise(ranks):
        program.at_most(0.0, {**left, **{column: -rank for column, rank in right.items()}})
    objective = {seat: float(options.accuracy[o] * options.rates[i]) for seat, (_, o, i) in seats.items()}
    return Model(options, program, dict.fromkeys(seats, 1.0), objective, None, seats)
