"""Scrooge's experiments (SoCC 2021, §4.2 to §4.4), one number a name, and what it states in numbers, or what is
asked of us, beside ours (SC-27 to SC-29).

A repetition is a seed: other clients, rates, scenes and objects. All planners of a repetition have the same ones, the
same windows, headroom, early drop, loading times and turn-off delay. Nexus has the machines for its CPU stages that the
paper found it to need, for all the time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from reproduce.baselines import ALLOCATION
from reproduce.claims import UNSAID, Claim, Claims, Experiment, Numbers, Paper, named, over
from reproduce.scrooge.applications import APPLICATIONS, SLO_MS, Application
from reproduce.scrooge.planning import Planner
from reproduce.scrooge.runs import Conditions, run
from reproduce.scrooge.workload import Workload, draw

OURS, NEXUS, GREEDY, ALONE = "frontier", "nexus-like", "greedy", "concurrency-1"
BASELINES = (NEXUS, GREEDY, ALONE)
FORESIGHT = "foresight"
"""Ours, told every second what the next one will have."""
DURATION_S = 1000.0
SLOS_MS = (400.0, 600.0, 800.0, 1000.0)
OFF_DELAYS_S = (0.0, 30.0, 120.0)
HEADROOMS = (1.45, 1.6, 1.8)
"""Beyond the usual one: until a baseline keeps as many frames as ours."""
LEANER = (1.0, 1.1)
"""Below it: what is planned beyond the rates that are seen hides loads as a turn-off delay does."""
Decisions = Sequence[tuple[AllocationInput, AllocationPlan]]
SAME = 1.0 + 1e-6
DECISIONS_MAX = 150
"""Looked at; evenly spread over those of a run."""


def planner_of(application: Application, policy: str, slo_ms: float, front_ends: int | None = None) -> Planner:
    """Make a planner; Nexus with its front ends, where the application has a CPU stage."""
    made = ALLOCATION[OURS if policy == FORESIGHT else policy]()
    machines = (front_ends or application.front_ends) if policy == NEXUS else 0
    return Planner(application, made, slo_ms, machines or None)


def run_with(
    application: Application, workload: Workload, policy: str, conditions: Conditions, front_ends: int | None = None
) -> Numbers:
    """Run one planner."""
    planner = planner_of(application, policy, conditions.slo_ms, front_ends)
    return run(application, workload, planner, replace(conditions, foresight=policy == FORESIGHT))


def name_of(application: str, policy: str, conditions: Conditions) -> str:
    """The name of an experiment, with which its numbers begin."""
    at = f"{conditions.slo_ms:g} ms/{conditions.off_delay_s:g} s/{conditions.headroom:g}"
    return f"{application}/{policy}/{at}" + ("" if conditions.hands_over else "/at once")


def experiments_of(
    application: Application, conditions: Iterable[tuple[str, Conditions]], duration_s: float
) -> dict[str, Experiment]:
    """One planner's numbers by name, for each policy and its conditions."""
    return {
        name: _experiment(name, application, duration_s, policy, at)
        for policy, at in conditions
        for name in [name_of(application.name, policy, at)]
    }


def _experiment(
    name: str, application: Application, duration_s: float, policy: str, at: Conditions, front_ends: int | None = None
) -> Experiment:
    return lambda seed: named(name, run_with(application, draw(application, seed, duration_s), policy, at, front_ends))


def compared(decisions: Decisions, policies: Iterable[str]) -> Numbers:
    """By policy: `same` share of decisions at no more than our cost, `worst` cost over ours.

    Of `optimal`, the share that ours has proven.
    """
    decisions = decisions[:: 1 + len(decisions) // DECISIONS_MAX]
    found = {"optimal": fmean(bool(plan.facts.get("is_optimal")) for _, plan in decisions)}
    for name in policies:
        policy = ALLOCATION[name]()
        costs = [(policy.plan(problem).cost, plan.cost) for problem, plan in decisions]
        ratios = [theirs / ours for theirs, ours in costs if theirs and ours]
        found[f"{name}/same"] = sum(ratio <= SAME for ratio in ratios) / len(decisions)
        found[f"{name}/worst"] = max(ratios, default=1.0)
    return found


def configured(decisions: Decisions, stage: str) -> Numbers:
    """Mean `batch`, `concurrency` and items a second of a worker (`throughput`) of a stage, by its rate."""
    rows = [row for _, plan in decisions for row in plan.allocations if row.module == stage]
    rate = sum(row.rate_rps for row in rows)
    return {
        "batch": sum(row.batch * row.rate_rps for row in rows) / rate,
        "concurrency": sum(row.concurrency * row.rate_rps for row in rows) / rate,
        "throughput": rate / sum(row.instances for row in rows),
    }


def _decided(application: Application, duration_s: float) -> Experiment:
    def experiment(seed: int) -> Numbers:
        found: dict[str, float] = {}
        for slo_ms in (SLOS_MS[0], SLOS_MS[-1]):
            planner = planner_of(application, OURS, slo_ms)
            run(application, draw(application, seed, duration_s), planner, Conditions(slo_ms=slo_ms))
            plans = planner.known()
            found.update(named(f"{application.name}/{slo_ms:g} ms", configured(plans, application.root)))
            if slo_ms == SLO_MS:
                found.update(named(application.name, compared(plans, (GREEDY, "scrooge"))))
        return found

    return experiment


FRONT_ENDS: Mapping[str, tuple[int, ...]] = {"face": (1, 3), "tracker": (1, 3)}
"""Fewer than Nexus needs (§4.2)."""


def compared_conditions() -> list[tuple[str, Conditions]]:
    """(policy, conditions) of the comparison of all planners."""
    usual = Conditions()
    found = [(policy, usual) for policy in (OURS, *BASELINES, FORESIGHT)]
    return found + [(NEXUS, replace(usual, headroom=headroom)) for headroom in HEADROOMS]


def all_conditions() -> list[tuple[str, Conditions]]:
    """(policy, conditions) that each application is run under."""
    usual, found = Conditions(), compared_conditions()
    found += [(policy, replace(usual, slo_ms=slo_ms)) for slo_ms in SLOS_MS[1:] for policy in (OURS, ALONE)]
    found += [(OURS, replace(usual, off_delay_s=delay)) for delay in OFF_DELAYS_S if delay != usual.off_delay_s]
    others = [replace(usual, hands_over=False), *(replace(usual, headroom=headroom) for headroom in LEANER)]
    return found + [(OURS, replace(one, off_delay_s=delay)) for one in others for delay in OFF_DELAYS_S[:2]]


def experiments(
    duration_s: float = DURATION_S, applications: Iterable[str] = tuple(APPLICATIONS)
) -> dict[str, Experiment]:
    """All of these applications, by name."""
    found: dict[str, Experiment] = {}
    for name in applications:
        application = APPLICATIONS[name]
        found |= experiments_of(application, all_conditions(), duration_s)
        for machines in FRONT_ENDS.get(name, ()):
            title = f"{name}/front ends {machines}"
            found[title] = _experiment(title, application, duration_s, NEXUS, Conditions(), machines)
        found[f"{name}/decisions"] = _decided(application, duration_s)
    return found


EXPERIMENTS: Mapping[str, Experiment] = experiments()


# -- what the paper states ---------------------------------------------------------------------------------------------

FINISH = {"traffic": "0.977", "face": "0.982"}
HOURLY_COST = {"traffic": "11.1"}
NEXUS_FINISH = {"traffic": "0.863", "face": "0.905", "tracker": "0.976"}
FEWER = {("face", 1): "0.306", ("face", 3): "0.757", ("tracker", 1): "0.319", ("tracker", 3): UNSAID}
NEXUS_COST = {"traffic": "1.218", "face": "1.319", "tracker": "1.160"}
ALONE_COST = {"traffic": "1.17-1.32", "face": "2.38-2.40", "tracker": "1.41-1.64"}
"""From the savings of 14.48-24.36, 57.90-58.28 and 29.16-39.10 %."""
SLOWER = {"traffic": "18.14", "face": "4.63", "tracker": "25.59"}
WITHOUT_DELAY = 0.9285
"""Frames in time without a turn-off delay, the middle of the paper's."""
DELAYS = {0.0: "0.919-0.938", 30.0: "> 0.97", 120.0: "> 0.98"}
ROOTS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("traffic", "batch"): ("1.91", "7.78"),
    ("traffic", "concurrency"): ("2.77", "2.06"),
    ("traffic", "throughput"): ("24.9", "33.6"),
    ("tracker", "throughput"): ("27.9", "38.2"),
}
EQUAL = 0.005
"""Finish rates this far apart are equal."""


def statements(
    repetitions: Sequence[Numbers], applications: Sequence[str] = tuple(APPLICATIONS), *, only_compares: bool = False
) -> list[Claim]:
    """All of them, or only the comparison of all planners, for applications of which the paper says nothing."""
    claims = Claims(repetitions)
    for part in (_compare,) if only_compares else (_compare, _sweep, _delays, _decisions):
        for name in applications:
            part(claims, name)
    return claims.found


def _compare(claims: Claims, name: str) -> None:
    ours, nexus, greedy, alone, best = (
        name_of(name, policy, Conditions()) for policy in (OURS, NEXUS, GREEDY, ALONE, FORESIGHT)
    )
    finish = FINISH.get(name, UNSAID)
    claims.say("4.2", f"{name}: frames in time", finish, f"{ours}/finish", least=0.98)
    claims.say("4.1", f"{name}: the same, mean of windows of 1 s", finish, f"{ours}/windows")
    what = f"{name}: cost of ours, USD an hour"
    claims.say("4.2", what, HOURLY_COST.get(name, UNSAID), lambda numbers: 3.6 * numbers[f"{ours}/cost"])
    for policy, theirs in ((NEXUS, nexus), (GREEDY, greedy), (ALONE, alone), (FORESIGHT, best)):
        paper = NEXUS_FINISH.get(name, UNSAID) if policy == NEXUS else UNSAID
        claims.say("4.2", f"{name}: frames in time, {policy}", paper, f"{theirs}/finish")
        if policy in (NEXUS, GREEDY):
            claims.say("4.2", f"{name}: cost of {policy} / ours", UNSAID, over(f"{theirs}/cost", f"{ours}/cost"))
    for machines in FRONT_ENDS.get(name, ()):
        what = f"{name}: frames in time, {NEXUS}, {machines} for the CPU stage"
        claims.say("4.2", what, FEWER[name, machines], f"{name}/front ends {machines}/finish")
    what = f"{name}: cost of {NEXUS} / ours, as many frames in time"
    claims.say("4.2", what, NEXUS_COST.get(name, UNSAID), _equal_cost(name, "cost"), least=1.16)
    claims.say("4.2", f"{name}: the same in whole workers", UNSAID, _equal_cost(name, "rented"))
    ratio = over(f"{alone}/cost", f"{ours}/cost")
    claims.say("4.4", f"{name}: cost of {ALONE} / ours", ALONE_COST.get(name, UNSAID), ratio, least=1.1)
    ratio = over(f"{ours}/cost", f"{best}/cost")
    claims.say(UNSAID, f"{name}: cost / who knows every second beforehand", UNSAID, ratio, most=1.1)


def _sweep(claims: Claims, name: str) -> None:
    usual = Conditions()
    first = name_of(name, OURS, usual)
    for slo_ms in SLOS_MS[1:]:
        later, alone = (name_of(name, policy, replace(usual, slo_ms=slo_ms)) for policy in (OURS, ALONE))
        paper = SLOWER[name] if slo_ms == SLOS_MS[-1] else UNSAID
        claims.say("4.3", f"{name}: cost saved at {slo_ms:g} ms, %", paper, _saved(later, first))
        claims.say("4.3", f"{name}: frames in time at {slo_ms:g} ms", UNSAID, f"{later}/finish")
        what = f"{name}: cost of {ALONE} / ours at {slo_ms:g} ms"
        claims.say("4.4", what, ALONE_COST[name], over(f"{alone}/cost", f"{later}/cost"))
    for (application, key), papers in ROOTS.items():
        if application == name:
            for slo_ms, paper in zip((SLOS_MS[0], SLOS_MS[-1]), papers, strict=True):
                what = f"{name}: mean {key} of the first stage at {slo_ms:g} ms"
                claims.say("4.3", what, paper, f"{name}/{slo_ms:g} ms/{key}")


def _delays(claims: Claims, name: str) -> None:
    usual = Conditions()

    def at(delay_s: float, **more: float | bool) -> str:
        return name_of(name, OURS, replace(usual, off_delay_s=delay_s, **more))  # type: ignore[arg-type]

    def lean(numbers: Numbers) -> float:
        """The headroom with which, without a turn-off delay, about as many frames are in time as the paper had."""
        tried = (usual.headroom, *LEANER)
        return min(tried, key=lambda headroom: abs(numbers[f"{at(0.0, headroom=headroom)}/finish"] - WITHOUT_DELAY))

    def lean_points(numbers: Numbers) -> float:
        headroom = lean(numbers)
        return _points(at(30.0, headroom=headroom), at(0.0, headroom=headroom))(numbers)

    for delay, paper in DELAYS.items():
        claims.say("4.4", f"{name}: frames in time, turn-off delay {delay:g} s", paper, f"{at(delay)}/finish")
    what = f"{name}: turn-off delay 30 s against 0, points"
    claims.say("4.4", what, "3-5", _points(at(30.0), at(0.0)), least=3.0)
    gone, gone_late = at(0.0, hands_over=False), at(30.0, hands_over=False)
    what = f"{name}: frames in time, 0 s, where what a plan gives up does not go on during loads"
    claims.say("4.4", what, DELAYS[0.0], f"{gone}/finish")
    claims.say("4.4", f"{name}: 30 s against 0 so, points", "3-5", _points(gone_late, gone))
    what = f"{name}: not in time at 0 s, points: the most to gain"
    claims.say("4.4", what, "6.2-8.1", lambda numbers: 100.0 * (1.0 - numbers[f"{at(0.0)}/finish"]))
    claims.say("4.4", f"{name}: headroom at which 0 s is nearest to the paper's", UNSAID, lean)
    what = f"{name}: frames in time there, 0 s"
    claims.say("4.4", what, DELAYS[0.0], lambda numbers: numbers[f"{at(0.0, headroom=lean(numbers))}/finish"])
    claims.say("4.4", f"{name}: 30 s against 0 there, points", "3-5", lean_points)
    ratio = over(f"{at(30.0)}/rented", f"{at(0.0)}/rented")
    claims.say("4.4", f"{name}: the same, cost in whole workers", UNSAID, ratio)


def _decisions(claims: Claims, name: str) -> None:
    for policy, same, worst in ((GREEDY, "0.80", "1.05"), ("scrooge", "0.85", "1.03")):
        what = f"{name}: {policy}, share of decisions that cost no more than ours; the worst"
        claims.say("4.3", what, same, f"{name}/{policy}/same")
        claims.say("4.3", f"{name}: {policy}, the worst decision / ours", worst, f"{name}/{policy}/worst")
    claims.say("4.3", f"{name}: decisions of ours proven to be optimal", UNSAID, f"{name}/optimal")


def _saved(later: str, first: str) -> Callable[[Numbers], float]:
    ratio = over(f"{later}/cost", f"{first}/cost")
    return lambda numbers: 100.0 * (1.0 - ratio(numbers))


def _points(more: str, less: str) -> Callable[[Numbers], float]:
    return lambda numbers: 100.0 * (numbers[f"{more}/finish"] - numbers[f"{less}/finish"])


def _equal_cost(name: str, key: str) -> Callable[[Numbers], float]:
    """Of Nexus over ours, with the least headroom that gives Nexus as many frames in time, or the largest one tried."""
    usual = Conditions()
    ours = name_of(name, OURS, usual)
    ladder = [name_of(name, NEXUS, replace(usual, headroom=h)) for h in (usual.headroom, *HEADROOMS)]

    def ratio(numbers: Numbers) -> float:
        enough = [at for at in ladder if numbers[f"{at}/finish"] >= numbers[f"{ours}/finish"] - EQUAL]
        return numbers[f"{(enough or ladder[-1:])[0]}/{key}"] / numbers[f"{ours}/{key}"]

    return ratio


PAPER = Paper(
    EXPERIMENTS,
    statements,
    "The cluster and its clients are emulated; what is given, fitted and assumed stands in "
    "`reproduce/scrooge/applications.py`.",
)
