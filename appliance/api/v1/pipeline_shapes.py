"""A pipeline as it is shown."""

from dataclasses import asdict

from appliance.api.box import RunningBox
from appliance.api.v1.pipeline_stages import stage_order
from appliance.domain.pipeline import Pipeline
from appliance.domain.pipeline_graph import Graph
from appliance.runtime.pipelines import definition
from appliance.runtime.pipelines.accounts import Cost
from appliance.runtime.pipelines.figures import SECONDS
from appliance.runtime.pipelines.live import LivePipeline
from appliance.wire.pipelines import (
    ClientShape,
    CostShape,
    FrameCountsShape,
    FrameSecondShape,
    PipelineCostShape,
    PipelinePlanShape,
    PipelineRowShape,
    PipelineShape,
    PipelineStatusShape,
    StageFiguresShape,
    StagePlanShape,
)


def shape_of(box: RunningBox, pipeline: Pipeline) -> PipelineShape:
    """Its definition, and what that means here."""
    graph = Graph.of(pipeline.stages, definition.runnable_kinds(box.catalogue, pipeline))
    takes_ms = definition.fastest_ms(box.catalogue, pipeline)
    return PipelineShape(
        name=pipeline.name,
        tenant=pipeline.tenant,
        latency_slo_ms=pipeline.latency_slo_ms,
        stages=[stage_order(stage) for stage in pipeline.stages],
        cost_by=pipeline.cost_by,
        weight=pipeline.weight,
        fastest_ms=definition.longest_ms(graph, pipeline, takes_ms),
        takes=graph.root_takes,
    )


def row_of(box: RunningBox, live: LivePipeline) -> PipelineRowShape:
    """With its main figures. Frames of this second may be under way: they count where they are in time."""
    now = box.pipelines.status(live.pipeline.id)
    *whole, last = now.finish_rate
    in_time = sum(one.in_time for one in now.finish_rate)
    sent = sum(one.sent for one in whole) + last.in_time
    return PipelineRowShape(
        **shape_of(box, live.pipeline).model_dump(),
        rate_fps=round(now.rate_fps, 3),
        in_time=round(in_time / sent, 4) if sent else None,
        cost_per_frame=_cost(now.cost.per_frame),
    )


def status_of(box: RunningBox, live: LivePipeline) -> PipelineStatusShape:
    """With what the box does for it."""
    now, frames = box.pipelines.status(live.pipeline.id), live.frames
    last = now.finish_rate[-1].second
    return PipelineStatusShape(
        **shape_of(box, live.pipeline).model_dump(),
        clients=[ClientShape(id=one.id, fps=one.fps) for one in now.clients],
        rate_fps=round(now.rate_fps, 3),
        frames=FrameCountsShape(**{name: getattr(frames, name) for name in FrameCountsShape.model_fields}),
        finish_rate=[
            FrameSecondShape(second=one.second - last + SECONDS - 1, sent=one.sent, in_time=one.in_time)
            for one in now.finish_rate
        ],
        figures={name: StageFiguresShape(**asdict(one)) for name, one in now.stages.items()},
        plan=_plan(live),
        cost=PipelineCostShape(
            per_frame=_cost(now.cost.per_frame), per_second=_cost(now.cost.per_second), energy_by=now.cost.energy_by
        ),
    )


def _plan(live: LivePipeline) -> PipelinePlanShape | None:
    plan = live.plan
    if plan is None:
        return None
    fields = {name: getattr(plan, name) for name in PipelinePlanShape.model_fields if name != "stages"}
    stages = [StagePlanShape(**asdict(row)) for row in plan.stages]
    return PipelinePlanShape(**fields, stages=stages)


def _cost(cost: Cost) -> CostShape:
    return CostShape(seconds=cost.seconds, joules=cost.joules, price=cost.price)
