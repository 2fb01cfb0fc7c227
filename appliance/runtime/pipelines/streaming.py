"""Port `StreamedPipelines`: pipelines as devices' sessions join them and send frames.

A session is a client like others, under its own id, that leaves when the session says so.
"""

from contextlib import suppress
from dataclasses import replace

from appliance.clock import NS_PER_MS
from appliance.domain.errors import ModelUnavailable, UnknownClient, UnknownPipeline
from appliance.domain.pipeline import Ask
from appliance.domain.session import FrameEnd, StageVariant
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.frame import FrameCall
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.pipelines import FrameAnswer, Pipelines
from appliance.runtime.ports import PipelineAnswer, PipelineFrame, PipelineStanding
from appliance.runtime.servable import Servable
from appliance.tasks.base import Media


class PipelineStreams:
    """Over the registry of a box. Event-loop thread only."""

    def __init__(self, pipelines: Pipelines, catalogue: Catalogue) -> None:
        self._pipelines = pipelines
        self._catalogue = catalogue

    def require(self, pipeline_id: str) -> None:
        self._pipelines.get(pipeline_id)

    async def join(self, pipeline_id: str, client: str, fps: float, within_ms: float | None) -> None:
        tenant = self._pipelines.get(pipeline_id).pipeline.tenant
        await self._pipelines.join(pipeline_id, fps, tenant, client, within_ms)

    async def change(self, pipeline_id: str, client: str, fps: float, within_ms: float | None) -> None:
        await self._pipelines.change(pipeline_id, client, fps, within_ms)

    def keep(self, pipeline_id: str, client: str, fps: float, within_ms: float | None) -> None:
        self._pipelines.keep(pipeline_id, fps, client, within_ms)

    def rate_of(self, pipeline_id: str, client: str) -> float | None:
        live = self._pipelines.live.get(pipeline_id)
        found = None if live is None else live.clients.get(client)
        return None if found is None else found.fps

    def leave(self, pipeline_id: str, client: str) -> None:
        with suppress(UnknownPipeline, UnknownClient):
            self._pipelines.leave(pipeline_id, client, as_session=True)

    def standing(self, pipeline_id: str, client: str) -> PipelineStanding:
        live = self._pipelines.get(pipeline_id)
        plan = live.plan
        is_served, reason = client in live.clients, "it is no client of the pipeline any more"
        if is_served and plan is not None:
            is_served = plan.feasible and (plan.has_all or client in live.clients.served(plan.fps))
            reason = plan.reason
        return PipelineStanding(
            is_served,
            "" if is_served else reason,
            None if plan is None or not plan.feasible else plan.latency_ms,
            max(live.takes_ns(name) for name in live.first) / NS_PER_MS,
            self._size(live),
            live.is_cut,
            tuple(self._stage(live, stage) for stage in live.stages.values() if isinstance(stage, Ask)),
        )

    async def predict(self, pipeline_id: str, media: Media, frame: PipelineFrame) -> PipelineAnswer:
        pipeline = self._pipelines.get(pipeline_id).pipeline
        left_ms = (frame.deadline_ns - frame.arrival_ns) / NS_PER_MS
        call = FrameCall(
            frame.tenant,
            frame.request_id,
            frame.arrival_ns,
            max(0.001, min(left_ms, pipeline.latency_slo_ms)),
            frame.client,
            frame.number,
            is_planned=frame.is_planned,
        )
        # Whatever a device takes: the answer is a tree.
        answer = await self._pipelines.answer(pipeline, replace(media, accept=""), call)
        return PipelineAnswer(answer.body, _end_of(answer))

    def _size(self, live: LivePipeline) -> int | None:
        """The largest of what the networks that look at the whole picture take."""
        sizes: list[int] = []
        for stage in live.asks_of_root:
            with suppress(ModelUnavailable):
                size = self._answering(live, stage).variant.input_px
                if size is not None:
                    sizes.append(size)
        return max(sizes, default=None)

    def _stage(self, live: LivePipeline, stage: Ask) -> StageVariant:
        try:
            variant = self._answering(live, stage).variant
        except ModelUnavailable:
            return StageVariant(stage.name, "")
        return StageVariant(stage.name, variant.name, None if variant.accuracy is None else variant.accuracy.points)

    def _answering(self, live: LivePipeline, stage: Ask) -> Servable:
        """The one that the stage or the plan names, else what its application wants most of those that are as accurate
        as the stage asks. Raises: ModelUnavailable.
        """
        entry = self._catalogue.entry_for(live.pipeline.tenant, stage.application_id)
        name = live.variant_of(stage)
        if name in entry.servables:
            return entry.servables[name]
        found = entry.most_wanted(stage.accuracy_min)
        if found is None:
            raise ModelUnavailable(name=stage.application_id.partition("/")[2])
        return found


def _end_of(answer: FrameAnswer) -> FrameEnd:
    """A frame that was cut off, or of which a part was, is late."""
    if answer.is_turned_away:
        return FrameEnd.DROPPED
    if answer.has_failed:
        return FrameEnd.LOST
    return FrameEnd.ANSWERED if answer.is_in_time else FrameEnd.LATE
