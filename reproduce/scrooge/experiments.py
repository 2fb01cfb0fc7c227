"""Scrooge's experiments (SoCC 2021, §4.2 to §4.4), one number a name: what each measures is said in `stated`.

A repetition is a seed: other clients, rates, scenes and objects. All planners of a repetition have the same ones, the
same windows, headroom, early drop, loading times and turn-off delay. Nexus has the machines for its CPU stages that the
paper found it to need, for all the time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean

from reproduce.baselines import ALLOCATION
from reproduce.claims import Experiment, Numbers, named
from reproduce.scrooge.applications import APPLICATIONS, SLO_MS, Application
from reproduce.scrooge.decisions import compared, configured
from reproduce.scrooge.planning import Planner
from reproduce.scrooge.runs import Conditions, Figures, run
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


def planner_of(application: Application, policy: str, slo_ms: float, front_ends: int | None = None) -> Planner:
    """Make a planner; Nexus with its front ends, where the application has a CPU stage."""
    made = ALLOCATION[OURS if policy == FORESIGHT else policy]()
    if policy == NEXUS and application.front_ends:
        return Planner(application, made, slo_ms, front_ends or application.front_ends)
    return Planner(application, made, slo_ms)


def run_with(
    application: Application, workload: Workload, policy: str, conditions: Conditions, front_ends: int | None = None
) -> Figures:
    """Run one planner."""
    planner = planner_of(application, policy, conditions.slo_ms, front_ends)
    return run(application, workload, planner, replace(conditions, foresight=policy == FORESIGHT))


def numbers_of(figures: Figures) -> Numbers:
    """`finish` of all frames; `windows`: the mean over seconds; costs in USD."""
    shares = [in_time / sent for sent, in_time in figures.windows.values()]
    return {
        "finish": figures.finish,
        "windows": fmean(shares) if shares else 1.0,
        "cost": figures.cost,
        "rented": figures.rented,
        "plans": figures.plans,
    }


def name_of(application: str, policy: str, conditions: Conditions) -> str:
    """The name of an experiment, with which its numbers begin."""
    at = f"{conditions.slo_ms:g} ms/{conditions.off_delay_s:g} s/{conditions.headroom:g}"
    return f"{application}/{policy}/{at}" + ("" if conditions.hands_over else "/at once")


def experiments_of(
    application: Application, conditions: Iterable[tuple[str, Conditions]], duration_s: float
) -> dict[str, Experiment]:
    """One planner's numbers by name, for each policy and its conditions."""

    def experiment(name: str, policy: str, at: Conditions) -> Experiment:
        return lambda seed: named(
            name, numbers_of(run_with(application, draw(application, seed, duration_s), policy, at))
        )

    named_conditions = [(name_of(application.name, policy, at), policy, at) for policy, at in conditions]
    return {name: experiment(name, policy, at) for name, policy, at in named_conditions}


def _front_ends(application: Application, machines: int, duration_s: float) -> Experiment:
    def experiment(seed: int) -> Numbers:
        figures = run_with(application, draw(application, seed, duration_s), NEXUS, Conditions(), machines)
        return named(f"{application.name}/front ends {machines}", numbers_of(figures))

    return experiment


def _decisions(application: Application, duration_s: float) -> Experiment:
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
            found[f"{name}/front ends {machines}"] = _front_ends(application, machines, duration_s)
        found[f"{name}/decisions"] = _decisions(application, duration_s)
    return found


EXPERIMENTS: Mapping[str, Experiment] = experiments()
