"""Whether a plan can be kept as it is, where no new one is made: the box may have changed since."""

from collections.abc import Sequence

from appliance.domain.errors import ApplianceError
from appliance.domain.pipeline import Ask
from appliance.policies.allocation.base import Placed
from appliance.policies.allocation.placement import available_of
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.environment import PlannedPipeline
from appliance.runtime.pipelines.problem import Machine
from appliance.runtime.servable import Servable


def holds(
    live: PlannedPipeline, placement: Sequence[Placed], machine: Machine, catalogue: Catalogue, room_bytes: int
) -> bool:
    """Whether a pipeline has a plan whose workers are there, and whose variants still serve on them and fit into
    memory. `placement`: that of the plan.
    """
    return (
        live.plan is not None
        and live.plan.feasible
        and _has_workers(placement, machine)
        and _has_variants(live, machine, catalogue, room_bytes)
    )


def _has_workers(placement: Sequence[Placed], machine: Machine) -> bool:
    pools = {worker.name: worker.pool for worker in machine.workers}
    for place in placement:
        if place.worker not in pools:
            return False
        available = available_of(pools[place.worker], machine.workers)
        if available is not None and place.index >= available:
            return False
    return True


def _has_variants(live: PlannedPipeline, machine: Machine, catalogue: Catalogue, room_bytes: int) -> bool:
    sizes: dict[str, int] = {}
    for row in live.plan.stages if live.plan is not None else ():
        stage = live.pipeline.stage(row.stage)
        if not isinstance(stage, Ask):
            continue
        try:
            entry = catalogue.entry_for(live.pipeline.tenant, stage.application_id)
        except ApplianceError:
            return False
        servable = entry.servables.get(row.variant)
        if servable is None or not (stage.variant or entry.application.may_choose(servable.variant)):
            return False
        if machine.of[row.worker].kind not in _kinds_of(servable, catalogue):
            return False
        sizes[servable.build_id] = servable.resident_bytes
    return sum(sizes.values()) <= room_bytes


def _kinds_of(servable: Servable, catalogue: Catalogue) -> Sequence[str]:
    """On which a plan may have a variant."""
    return catalogue.able_kinds(servable) if servable.parts is None else (servable.parts.home,)
