"""Whether what a policy was asked about still is so when its answer comes. Event-loop thread only."""

from collections.abc import Mapping

from appliance.runtime.pipelines.environment import PipelineEnvironment, PlannedPipeline
from appliance.runtime.pipelines.picture import Picture, are_same, entries_of, has_moved, have_other_weights


class Freshness:
    """Of pictures."""

    def __init__(self, environment: PipelineEnvironment, pipelines: Mapping[str, PlannedPipeline]) -> None:
        """`pipelines` by id, kept by the registry."""
        self._environment = environment
        self._pipelines = pipelines

    def of_box(self, picture: Picture) -> bool:
        """Whether processors, memory and tenants are what the policy was asked about."""
        environment = self._environment
        if environment.machine() != picture.machine:
            return False
        tenants = {live.pipeline.tenant for live in self._pipelines.values()} & picture.memory.keys()
        weights = {tenant: environment.catalogue.processor_weight(tenant) for tenant in tenants}
        if have_other_weights(weights, picture.weights):
            return False
        now = {tenant: environment.memory_bytes(tenant, ()) for tenant in tenants}
        return not has_moved(now, {tenant: picture.memory[tenant] for tenant in tenants})

    def of_pipeline(self, live: PlannedPipeline, picture: Picture) -> bool:
        """Whether a pipeline, what it asks and its clients are what the policy was asked about."""
        return self.of_stages(live, picture) and tuple(live.clients) == picture.seen[live.pipeline.id].clients

    def of_stages(self, live: PlannedPipeline, picture: Picture) -> bool:
        """Whether an answer can be applied to a pipeline. One for clients that have left meanwhile is: it is for too
        many frames, and the next one follows at once.
        """
        seen = picture.seen.get(live.pipeline.id)
        if seen is None or live.pipeline != seen.pipeline:
            return False
        return are_same(seen.entries, entries_of(self._environment.catalogue, live.pipeline))
