"""A policy's answer as a pipeline's plan, with the reasons that it is shown with."""

from collections.abc import Iterable, Sequence

from appliance.domain.pipeline import CostBy, PipelinePlan, StagePlan
from appliance.policies.allocation.several import Served
from appliance.runtime.pipelines.around import Live
from appliance.runtime.pipelines.picture import Picture
from appliance.runtime.pipelines.problem import Asked, stage_plans, takes_ms


def plan_of(live: Live, made: Asked, served: Served, picture: Picture, number: int) -> PipelinePlan:
    """How a pipeline is served."""
    plan, problem = served.plan, served.problem(made.levels)
    stages = stage_plans(made, served.level, plan, picture.machine)
    fps = picture.seen[live.pipeline.id].fps
    notes = []
    if made.reserved_ms > 0.0:
        notes.append(f"{made.reserved_ms:.1f} ms of the SLO are for decoding and for items that come at once")
    if problem.cost_by is not live.pipeline.cost_by:
        unknown = "watts" if live.pipeline.cost_by is CostBy.ENERGY else "prices"
        notes.append(f"by {problem.cost_by}, for the {unknown} of some processor are not known")
    notes += [
        f"{row.stage} serves in parts, planned as if all of it ran on {made.in_parts[row.stage, row.variant]}"
        for row in _first_rows(stages)
        if (row.stage, row.variant) in made.in_parts
    ]
    if served.first:
        notes.append("more accurate variants are too slow for the SLO")
    if served.level > served.first:
        notes.append("not all fits: cheaper variants than asked for serve")
    if served.fps < fps * (1.0 - 1e-6):
        count = len(live.clients.served(served.fps))
        notes.append(f"not all fits: {served.fps:.4g} of {fps:.4g} frames a second, {count} clients, are planned with")
    return PipelinePlan(
        number=number,
        feasible=plan.feasible,
        cost=plan.cost,
        latency_ms=None if plan.latency_ms is None else plan.latency_ms + made.reserved_ms,
        stages=stages,
        reason="; ".join([plan.reason, *notes]),
        fps=served.fps,
        wanted_fps=fps,
        degraded=served.level > served.first or served.fps < fps * (1.0 - 1e-6),
        cost_by=problem.cost_by,
        takes_ms=takes_ms(problem),
    )


def _first_rows(stages: Sequence[StagePlan]) -> Iterable[StagePlan]:
    """One of each stage and variant."""
    return {(row.stage, row.variant): row for row in reversed(stages)}.values()


def no_plan(number: int, reason: str, fps: float) -> PipelinePlan:
    """For a pipeline that so many frames a second come to, and that nothing can be planned for."""
    return PipelinePlan(number, False, None, None, (), reason, fps)


def outcome_of(served: Served) -> str:
    """As decisions have it."""
    if not served.plan.feasible:
        return "impossible"
    return "degraded" if served.level > served.first else "planned"


def is_alike(one: PipelinePlan, two: PipelinePlan) -> bool:
    """Whether both run the stages alike: an event for each change of a rate would be too many."""

    def rows(plan: PipelinePlan) -> list[tuple[str, str, str, int, int]]:
        return [(row.stage, row.worker, row.variant, row.batch, row.concurrency) for row in plan.stages]

    return (one.feasible, one.degraded, rows(one)) == (two.feasible, two.degraded, rows(two))
