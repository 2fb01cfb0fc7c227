"""Scrooge's experiments (SoCC 2021, §4.2 to §4.4), one number a name: what each measures is said in `stated`.

A repetition is a seed: other clients, rates, scenes and objects. All planners of a repetition have the same ones, the
same windows, headroom, early drop, loading times and turn-off delay. Nexus has the machines for its CPU stages that the
paper found it to need, for all the time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import fmean

from reproduce.baselines import ALLOCATION
from reproduce.claims import Job, Numbers
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
    """Nexus with its front ends, where the application has a CPU stage."""
    if policy == NEXUS and application.front_ends:
        return Planner(application, ALLOCATION[policy](), slo_ms, front_ends or application.front_ends)
    return Planner(application, ALLOCATION[OURS if policy == FORESIGHT else policy](), slo_ms)


def run_with(application: Application, workload: Workload, policy: str, conditions: Conditions) -> Figures:
    """One planner."""
    conditions = replace(conditions, foresight=policy == FORESIGHT)
    return run(application, workload, planner_of(application, policy, conditions.slo_ms), conditions)


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
    """Of an experiment, and what its numbers begin with."""
    at = f"{conditions.slo_ms:g} ms/{conditions.off_delay_s:g} s/{conditions.headroom:g}"
    return f"{application}/{policy}/{at}" + ("" if conditions.hands_over else "/at once")


def experiment_of(
    application: Application, policy: str, conditions: Conditions, duration_s: float
) -> Callable[[int], Numbers]:
    """By seed: one planner's numbers, under the name of the experiment."""

    def experiment(seed: int) -> Numbers:
        figures = run_with(application, draw(application, seed, duration_s), policy, conditions)
        name = name_of(application.name, policy, conditions)
        return {f"{name}/{key}": value for key, value in numbers_of(figures).items()}

    return experiment


def _front_ends(application: str, machines: int, duration_s: float) -> Callable[[int], Numbers]:
    def experiment(seed: int) -> Numbers:
        made = APPLICATIONS[application]
        planner = planner_of(made, NEXUS, SLO_MS, machines)
        figures = run(made, draw(made, seed, duration_s), planner, Conditions())
        return {f"{application}/front ends {machines}/{key}": v for key, v in numbers_of(figures).items()}

    return experiment


def _decisions(application: str, duration_s: float) -> Callable[[int], Numbers]:
    def experiment(seed: int) -> Numbers:
        made = APPLICATIONS[application]
        found: dict[str, float] = {}
        for slo_ms in (SLOS_MS[0], SLOS_MS[-1]):
            planner = planner_of(made, OURS, slo_ms)
            run(made, draw(made, seed, duration_s), planner, Conditions(slo_ms=slo_ms))
            plans = planner.known()
            found |= {f"{application}/{slo_ms:g} ms/{key}": v for key, v in configured(plans, made.root).items()}
            if slo_ms == SLO_MS:
                found |= {f"{application}/{key}": v for key, v in compared(plans, (GREEDY, "scrooge")).items()}
        return found

    return experiment


FRONT_ENDS: Mapping[str, tuple[int, ...]] = {"face": (1, 3), "tracker": (1, 3)}
"""Fewer than Nexus needs (§4.2)."""


def conditions_of() -> list[tuple[str, Conditions]]:
    """(policy, conditions) that each application is run under."""
    usual = Conditions()
    found = [(policy, usual) for policy in (OURS, *BASELINES, FORESIGHT)]
    found += [(NEXUS, replace(usual, headroom=headroom)) for headroom in HEADROOMS]
    found += [(policy, replace(usual, slo_ms=slo_ms)) for slo_ms in SLOS_MS[1:] for policy in (OURS, ALONE)]
    found += [(OURS, replace(usual, off_delay_s=delay)) for delay in OFF_DELAYS_S if delay != usual.off_delay_s]
    others = [replace(usual, hands_over=False), *(replace(usual, headroom=headroom) for headroom in LEANER)]
    return found + [(OURS, replace(one, off_delay_s=delay)) for one in others for delay in OFF_DELAYS_S[:2]]


def experiments(
    duration_s: float = DURATION_S, applications: Iterable[str] = tuple(APPLICATIONS)
) -> dict[str, Callable[[int], Numbers]]:
    """By name."""
    found: dict[str, Callable[[int], Numbers]] = {}
    for application in applications:
        for policy, conditions in conditions_of():
            name = name_of(application, policy, conditions)
            found[name] = experiment_of(APPLICATIONS[application], policy, conditions, duration_s)
        for machines in FRONT_ENDS.get(application, ()):
            found[f"{application}/front ends {machines}"] = _front_ends(application, machines, duration_s)
        found[f"{application}/decisions"] = _decisions(application, duration_s)
    return found


EXPERIMENTS = experiments()


def run_job(job: Job) -> tuple[Job, Numbers]:
    """For a pool of processes."""
    return job, EXPERIMENTS[job.experiment](job.repetition)
