"""The parts of sessions, joined."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import ApplianceError
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import DecisionSink, StreamedPipelines
from appliance.runtime.residency.account import MemoryAccount
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.servable import Servable
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.predict import Predictor
from appliance.runtime.sessions.application_service import ApplicationService
from appliance.runtime.sessions.deciding import Deciding
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.ledger import ACTIVE_NS, ProcessorLedger
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.pipeline_service import PipelineService
from appliance.runtime.sessions.planning import Planning
from appliance.runtime.sessions.sessions import Sessions
from appliance.runtime.telemetry import Telemetry

BRING_NS = 2 * NS_PER_S
"""So long a device that joins waits for its variant to be in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPorts:
    """What sessions find where they run."""

    clock: Clock
    catalogue: Catalogue
    engine: Engine
    predictor: Predictor
    memory: MemoryManager
    account: MemoryAccount
    residency: ResidencyLoop
    telemetry: Telemetry
    decisions: DecisionSink
    deciding: Deciding
    pipelines: StreamedPipelines
    new_id: Callable[[], str]


def make_sessions(ports: SessionPorts, limits: Limits) -> Sessions:
    """The registry with its planners; `Sessions.run` has yet to be started."""
    clock, catalogue, memory = ports.clock, ports.catalogue, ports.memory
    ledger = ProcessorLedger(ports.engine.serving_workers)

    async def bring(servable: Servable) -> None:
        deadline_ns = clock.now_ns() + BRING_NS
        with suppress(ApplianceError):
            memory.unpin(await memory.pin(servable.build_id, servable.resident_bytes, servable.peak_bytes, deadline_ns))

    def planning_of(applications: ApplicationService) -> Planning:
        def weights() -> dict[str, float]:
            since_ns = clock.now_ns() - ACTIVE_NS
            busy = {tenant for (_, _, tenant), one in ports.telemetry.statistics.items() if one.last_ns > since_ns}
            return applications.active_weights() | {tenant: catalogue.processor_weight(tenant) for tenant in busy}

        environment = SessionEnvironment(
            clock=clock,
            catalogue=catalogue,
            decisions=ports.decisions,
            serving_workers=ports.engine.serving_workers,
            fits_memory=ports.account.fits,
            fits_beside=ports.account.fit_beside,
            told_beside=ports.account.told_beside,
            held_beside=ports.account.held_beside,
            is_resident=lambda servable: memory.is_resident(servable.build_id),
            is_asleep=lambda servable: memory.is_asleep(servable.build_id),
            is_coming=lambda servable: memory.is_loading(servable.build_id),
            has_room=ports.residency.has_room,
            bring=bring,
            wish=ports.residency.wish,
            weights=weights,
            decode_ms=applications.decode_ms,
            queue=ports.engine.queue,
            busy_for_ns=ports.engine.busy_for_ns,
        )
        return Planning(environment, ports.deciding, ledger, applications.live)

    applications = ApplicationService(
        clock=clock,
        catalogue=catalogue,
        engine=ports.engine,
        predictor=ports.predictor,
        planning_of=planning_of,
        pools_max=limits.pools_max,
    )
    ports.account.needed_by_sessions = applications.planning.needed
    pipelines = PipelineService(
        clock=clock,
        pipelines=ports.pipelines,
        free_workers=ports.engine.free_workers,
        figures=applications.planning.figures,
    )
    return Sessions(
        clock=clock,
        applications=applications,
        pipelines=pipelines,
        observe=lambda now_ns: ledger.observe(*ports.engine.unplanned(now_ns)),
        events=ports.telemetry,
        decisions=ports.decisions,
        new_id=ports.new_id,
        limits=limits,
    )
