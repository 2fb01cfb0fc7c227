"""A policy's answer as a pipeline's plan, with the reasons that it is shown with."""

import re
from collections.abc import Iterator, Sequence

from appliance.domain.pipeline import CostBy, PipelinePlan, StagePlan
from appliance.policies.allocation.several import Served
from appliance.runtime.pipelines.environment import PlannedPipeline
from appliance.runtime.pipelines.picture import Picture
from appliance.runtime.pipelines.problem import Asked, stage_plans, takes_ms

FEWEST = 0.01
"""Workers: fewer are told as so few."""
SHORT = "not all fits"
"""Notes on what is less than was asked for begin so."""
UNUSED = "no client has joined and no frames come, so nothing is reserved for it"
"""Why a plan takes nothing."""


def _reason(planned: str, notes: Sequence[str]) -> str:
    """Return one sentence on what is planned and on what does not fit; all else follows it."""
    sentence, _, figures = planned.partition(". ")
    said = [sentence, *(note for note in notes if note.startswith(SHORT))]
    more = filter(None, [figures, *(note for note in notes if not note.startswith(SHORT))])
    return ". ".join(filter(None, ["; ".join(said), "; ".join(more)]))


def plan_of(live: PlannedPipeline, made: Asked, served: Served, picture: Picture, number: int) -> PipelinePlan:
    """How a pipeline is served."""
    plan, problem = served.plan, served.problem(made.levels)
    stages = stage_plans(made, served)
    fps = picture.seen[live.pipeline.id].fps
    notes = []
    if made.reserved_ms > 0.0:
        notes.append(f"{made.reserved_ms:.1f} ms of the SLO are for decoding and for items that come at once")
    if (first_ms := made.levels[served.level].slo_ms - problem.slo_ms) > 0.0:
        notes.append(f"{first_ms:.1f} ms of the SLO are for runs that go first when a wait for company is over")
    if problem.cost_by is not live.pipeline.cost_by:
        unknown = "watts" if live.pipeline.cost_by is CostBy.ENERGY else "prices"
        notes.append(f"by {problem.cost_by}, for the {unknown} of some processor are not known")
    notes += _in_parts(stages, made)
    has_cheaper = plan.feasible and served.level > served.first
    has_fewer = plan.feasible and served.fps < fps * (1.0 - 1e-6)
    has_smaller = plan.feasible and fps > 0.0 and bool(made.too_large)
    if served.first:
        notes.append("better variants are too slow for the SLO")
    if (has_fewer or not plan.feasible) and (untimed := made.untimed()):
        notes.append(untimed)
    if has_smaller:
        notes.append(f"{SHORT} into memory: smaller variants than asked for serve at {', '.join(made.too_large)}")
    if has_cheaper:
        notes.append(f"{SHORT}: cheaper variants than asked for serve")
    if has_fewer:
        count = len(live.clients.served(served.fps))
        notes.append(f"{SHORT}: {served.fps:.4g} of {fps:.4g} frames a second, {count} clients, are planned with")
    return PipelinePlan(
        number=number,
        feasible=plan.feasible,
        cost=plan.cost,
        latency_ms=None if plan.latency_ms is None else plan.latency_ms + made.reserved_ms,
        stages=stages,
        reason=_reason(plan.reason, notes) if fps or not plan.feasible else UNUSED,
        fps=served.fps,
        wanted_fps=fps,
        degraded=has_cheaper or has_fewer or has_smaller,
        is_short=has_cheaper or has_fewer,
        cost_by=problem.cost_by,
        takes_ms=takes_ms(problem),
    )


def _in_parts(stages: Sequence[StagePlan], made: Asked) -> Iterator[str]:
    """What stages that serve in parts take of other processors than those that most of it runs on."""
    drawn: dict[tuple[str, str], dict[str, float]] = {}
    for row in stages:
        if (row.stage, row.variant) in made.in_parts:
            own = drawn.setdefault((row.stage, row.variant), {})
            for worker, workers in row.drawn.items():
                own[worker] = own.get(worker, 0.0) + workers
    for (stage, variant), own in drawn.items():
        others = "".join(f", and {_workers(workers)} of {worker}" for worker, workers in sorted(own.items()))
        yield f"{stage} serves in parts, most of it on {made.in_parts[stage, variant]}{others}"


def _workers(number: float) -> str:
    """As people say it."""
    if number < FEWEST:
        return f"less than {FEWEST:g} workers"
    told = f"{number:.2g}"
    return "1 worker" if told == "1" else f"{told} workers"


def no_plan(number: int, reason: str, fps: float) -> PipelinePlan:
    """For a pipeline that so many frames a second come to, and that nothing can be planned for."""
    return PipelinePlan(number, False, None, None, (), reason, fps)


def outcome_of(plan: PipelinePlan) -> str:
    """As decisions have it."""
    if not plan.feasible:
        return "impossible"
    return "degraded" if plan.degraded else "planned"


def is_alike(one: PipelinePlan, two: PipelinePlan) -> bool:
    """Whether both run the stages alike, or cannot for the same reason: an event for each change of a rate, or of the
    figures in a reason, would be too many.
    """
    if not (one.feasible or two.feasible):
        return _words(one.reason) == _words(two.reason)

    def rows(plan: PipelinePlan) -> list[tuple[str, str, str, int, int]]:
        return [(row.stage, row.worker, row.variant, row.batch, row.concurrency) for row in plan.stages]

    return (one.feasible, one.degraded, rows(one)) == (two.feasible, two.degraded, rows(two))


def _words(reason: str) -> str:
    """The policy's, without its figures."""
    return re.sub(r"\d[\d.e+-]*", "", reason.partition(". ")[0].partition(";")[0])
