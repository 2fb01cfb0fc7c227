"""Nexus-like yardstick (§4.2): batching only, on one worker type for the whole pipeline."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from appliance.policies.allocation.configurations import Configuration, Pipeline, Plans, Stage, StagePlan, total_cost
from appliance.policies.allocation.refine import cheapest, rest_options
from appliance.policies.allocation.reruns import until_placed

NAME = "nexus-like"


class NexusLike:
    """Concurrency 1; the SLO is split over the stages by search, with one batch size for a stage's full instances and
    one for its rest. Homogeneous:
    the worker type that comes out cheapest serves all stages; where none can, all but those that run on one type only,
    as CPU stages do. The full system's packing of sessions is left out."""

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        return until_placed(problem, NAME, _allocate, concurrency_max=1)


def _allocate(pipeline: Pipeline) -> Plans | None:
    found = [plans for alike in _homogeneous(pipeline) if (plans := _split(alike)) is not None]
    return min(found, key=total_cost, default=None)


def _homogeneous(pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline on each worker type that can run every stage, or every stage that can be run on several."""
    found = list(_alike(pipeline, frozenset()))
    bound = frozenset(s.name for s in pipeline.stages if len({c.worker for c in s.configurations}) == 1)
    yield from found or _alike(pipeline, bound)


def _alike(pipeline: Pipeline, bound: Collection[str]) -> Iterator[Pipeline]:
    """Stages that are `bound` stay where they run."""
    for worker in sorted({c.worker for stage in pipeline.stages for c in stage.configurations}):
        stages = tuple(
            stage if stage.name in bound else replace(stage, configurations=_on(worker, stage))
            for stage in pipeline.stages
        )
        if all(stage.configurations for stage in stages):
            yield replace(pipeline, stages=stages)


def _on(worker: str, stage: Stage) -> tuple[Configuration, ...]:
    return tuple(c for c in stage.configurations if c.worker == worker)


def _split(pipeline: Pipeline) -> Plans | None:
    options: list[list[StagePlan]] = []
    for stage in pipeline.stages:
        options.append([plan for c in stage.configurations for plan in rest_options(stage, {c: stage.rate_rps})])
    return cheapest(pipeline, options)
