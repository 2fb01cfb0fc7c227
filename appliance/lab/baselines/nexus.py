"""Nexus-like yardstick (§4.2): batching only, on one worker type for the whole pipeline."""

from collections.abc import Iterator

from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from appliance.policies.allocation.configurations import Pipeline, Plans, Stage, StagePlan, total_cost
from appliance.policies.allocation.refine import cheapest, rest_options
from appliance.policies.allocation.reruns import until_placed

NAME = "nexus-like"


class NexusLike:
    """Concurrency 1; the SLO is split over the stages by search, with one batch size for a stage's full instances and
    one for its rest. Homogeneous:
    the worker type that comes out cheapest serves all stages. The full system's front ends and its packing of sessions
    are left out."""

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        return until_placed(problem, NAME, _allocate, concurrency_max=1)


def _allocate(pipeline: Pipeline) -> Plans | None:
    found = [plans for alike in _homogeneous(pipeline) if (plans := _split(alike)) is not None]
    return min(found, key=total_cost, default=None)


def _homogeneous(pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline on each worker type that can run every stage."""
    for worker in sorted({c.worker for stage in pipeline.stages for c in stage.configurations}):
        stages = tuple(
            Stage(stage.name, stage.rate_rps, tuple(c for c in stage.configurations if c.worker == worker))
            for stage in pipeline.stages
        )
        if all(stage.configurations for stage in stages):
            yield Pipeline(pipeline.slo_ms, stages, pipeline.edges)


def _split(pipeline: Pipeline) -> Plans | None:
    options: list[list[StagePlan]] = []
    for stage in pipeline.stages:
        options.append([plan for c in stage.configurations for plan in rest_options(stage, {c: stage.rate_rps})])
    return cheapest(pipeline, options)
