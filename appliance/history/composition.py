"""Joins the history to the parts of a box that it reads, and that tell it what happens."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.clock import Clock
from appliance.domain.errors import ModelUnavailable
from appliance.domain.hardware import ProcessorStatus
from appliance.history.history import History
from appliance.history.sampler import Sources
from appliance.history.tallies import Counter, PromiseKind, Use, tally_name
from appliance.resources.memory import MemoryLimits
from appliance.runtime.assembly import RuntimeParts
from appliance.runtime.decisions.log import DecisionLog
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.runtime.sensors.sensors import Sensors
from appliance.runtime.serving.engine import Engine
from appliance.runtime.sessions.sessions import Sessions
from appliance.runtime.telemetry import Telemetry


def make_history(
    clock: Clock,
    core: RuntimeParts,
    telemetry: Telemetry,
    decisions: DecisionLog,
    processors: Callable[[], Sequence[ProcessorStatus]],
    sensors: Sensors,
    machine_memory: MemoryLimits,
    state_dir: Path,
    *,
    days: int,
    series_max: int,
) -> History:
    """The history of a box, which is told of everything from now on; nothing is read or written yet."""
    memory = core.memory

    def held_bytes() -> Mapping[str, int]:
        return {one.tenant: one.held_bytes for one in core.shares.holdings(memory.holders())}

    def variants_of(application: str, build: str) -> Sequence[str]:
        try:
            entry = core.catalogue.entry(application)
        except ModelUnavailable:
            return ()
        return [one.variant.name for one in entry.servables.values() if build in one.builds]

    history = History(
        clock,
        state_dir / "history.db",
        Sources(
            statistics=telemetry.statistics,
            memory_bytes=lambda: (memory.used_bytes, memory.budget_bytes),
            held_bytes=held_bytes,
            processors=processors,
            sensors=lambda: sensors.now().readings,
            available_bytes=lambda: machine_memory.now().available_bytes,
            disk_free_bytes=lambda: shutil.disk_usage(state_dir).free,
        ),
        telemetry,
        variants_of,
        [tenant.name for tenant in core.catalogue.tenants()],
        days=days,
        series_max=series_max,
    )
    if days:
        telemetry.on_event = history.residence.happened
        telemetry.on_window = _window(history)
        decisions.on_recorded = history.residence.decided
    return history


def count_promises(history: History, engine: Engine, pipelines: Pipelines, sessions: Sessions) -> History:
    """Return the history, which from now on has tallies of frames and of windows of sessions, and of what processors
    spend on each tenant.
    """

    def frames() -> Iterator[tuple[str, Counter]]:
        for id, live in pipelines.live.items():
            yield tally_name(PromiseKind.FRAMES, id), live.frames.promise

    def windows() -> Iterator[tuple[str, Counter]]:
        for live in sessions.list(None):
            of = PromiseKind.PIPELINE_WINDOWS if live.session.pipeline_id else PromiseKind.WINDOWS
            yield tally_name(of, live.session.target_id), live

    def spent() -> Iterator[tuple[str, Counter]]:
        for by_tenant in (engine.single_calls.by_tenant, pipelines.spending.by_tenant):
            for tenant, spending in by_tenant.items():
                yield tally_name(Use.RAN, tenant), spending

    for counters in (frames, windows, spent):
        history.count(counters)
    return history


def _window(history: History) -> Callable[[str, bool], Any]:
    residence = history.residence

    def told(application: str, is_opened: bool) -> None:
        (residence.window_opened if is_opened else residence.window_closed)(application)

    return told
