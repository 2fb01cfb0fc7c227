"""What each pipeline demands of the processors: the frames that its clients ask for, its problem, its weight (Scrooge
§3.4).
"""

from collections import defaultdict
from collections.abc import Collection

from appliance.clock import others_first
from appliance.domain.pipeline import Ask
from appliance.policies.allocation.several import Demand
from appliance.runtime.pipelines.environment import PipelineEnvironment
from appliance.runtime.pipelines.picture import Picture, Seen
from appliance.runtime.pipelines.problem import Asked


class Demands:
    """Made of what was seen of pipelines. Event-loop thread only."""

    def __init__(self, environment: PipelineEnvironment) -> None:
        self._environment = environment

    async def of(self, picture: Picture, ids: Collection[str]) -> list[Demand]:
        """Of some pipelines; others have their turn between two of them."""
        weights = self._weights(picture)
        found = []
        for id in sorted(weights.keys() & ids):
            seen, made = picture.seen[id], picture.asked[id]
            found.append(Demand(id, seen.fps, made.levels, weights[id], self._loaded(seen, made)))
            await others_first()
        return found

    def _weights(self, picture: Picture) -> dict[str, float]:
        """Of each pipeline that is planned: its part of what its tenant weighs on processors. Tenants choose the
        weights of their pipelines, and how many they have.
        """
        pipelines = {id: seen.pipeline for id, seen in picture.seen.items() if not picture.missing[id]}
        together: dict[str, float] = defaultdict(float)
        for one in pipelines.values():
            together[one.tenant] += one.weight
        weight_of = self._environment.catalogue.processor_weight
        return {id: weight_of(one.tenant) * one.weight / together[one.tenant] for id, one in pipelines.items()}

    def _loaded(self, seen: Seen, made: Asked) -> tuple[str, ...]:
        """Stages whose builds are in memory (SC-22)."""
        found = []
        asks = [stage for stage in seen.pipeline.stages if isinstance(stage, Ask)]
        for stage, entry in zip(asks, seen.entries, strict=True):
            servables = {} if entry is None else entry.servables
            names = {name for key, name in made.variants[0].items() if key[0] == stage.name}
            if any(name in servables and self._environment.is_resident(servables[name].build_id) for name in names):
                found.append(stage.name)
        return tuple(found)
