"""The pipelines of a scenario as devices' sessions join them: the very port of the box, its frames counted."""

from collections.abc import Mapping

from appliance.lab.loop import VirtualClock
from appliance.lab.pipelines.tally import Tally
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.runtime.pipelines.streaming import PipelineStreams
from appliance.runtime.ports import PipelineAnswer, PipelineFrame
from appliance.tasks.base import Media


class CountedStreams(PipelineStreams):
    """`tallies`: by id of the pipeline."""

    def __init__(
        self, pipelines: Pipelines, catalogue: Catalogue, clock: VirtualClock, tallies: Mapping[str, Tally]
    ) -> None:
        super().__init__(pipelines, catalogue)
        self._clock, self._tallies = clock, tallies

    async def predict(self, pipeline_id: str, media: Media, frame: PipelineFrame) -> PipelineAnswer:
        tally, now_ns = self._tallies[pipeline_id], self._clock.now_ns()
        tally.sent += 1
        try:
            answer = await super().predict(pipeline_id, media, frame)
            tally.latencies_ns.append(self._clock.now_ns() - now_ns)
            return answer
        finally:
            tally.ended += 1
