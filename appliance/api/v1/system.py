"""What the box is, what it does and what it holds."""

import asyncio
import datetime
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
from fastapi import APIRouter, Request
from starlette.responses import Response

from appliance import __version__
from appliance.api.auth.callers import owner_of
from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import example, problems
from appliance.api.http.fingerprint import fingerprint_of
from appliance.api.v1.deps import Admin, Member, TheBox, caller, member
from appliance.api.v1.metrics import CONTENT_TYPE, metrics_text
from appliance.api.v1.pages import document, written
from appliance.api.v1.served import each_served
from appliance.clock import NS_PER_S
from appliance.domain.errors import Forbidden, ModelUnavailable
from appliance.domain.hardware import ProcessorStatus
from appliance.domain.robustness import fairness, robustness
from appliance.runtime.pipelines.accounts import Tariff
from appliance.wire.box import (
    BuildShape,
    ExpectationShape,
    HoldingShape,
    MemoryShape,
    ProcessorShape,
    ReadingShape,
    ResidencyShape,
    SensorsShape,
    SettingShape,
    SystemShape,
    ThrottledShape,
)

PSS_KEPT_NS = 10 * NS_PER_S
"""How long the memory of the process is told as it was."""

router = APIRouter(tags=["system"])
_SERVING = ("memory", "pipelines", "queues", "residency", "selection")
"""Sections of the settings that decide how requests are served."""


@router.get("/v1/system", summary="The box at a glance", responses=problems(Forbidden))
async def system(box: TheBox, principal: Member) -> SystemShape:
    """Version, load, memory, disk, policies and settings.

    The numbers of models and applications are those that the tenant sees; an admin's key is told those of all, too.
    """
    memory = box.machine_memory.now()
    status = box.engine.status()
    return SystemShape(
        version=__version__,
        ready=box.is_ready(),
        uptime_s=(box.clock.now_ns() - box.started_ns) / NS_PER_S,
        now=box.clock.wall_now(),
        python=platform.python_version(),
        python_build=await asyncio.to_thread(_python_build),
        machine=platform.machine(),
        cores=box.cores.count,
        cores_bound=box.cores.bound,
        memory_total_bytes=memory.total_bytes,
        memory_available_bytes=memory.available_bytes,
        memory_bound=memory.bound,
        process_bytes=await asyncio.to_thread(process_bytes, box.clock.now_ns() // PSS_KEPT_NS),
        disk_free_bytes=shutil.disk_usage(box.state_dir).free,
        confinement=dict(box.confinement),
        policies=dict(box.settings.get("policies", {})),
        settings={section: box.settings[section] for section in _SERVING if section in box.settings},
        certificate_sha256=await asyncio.to_thread(_fingerprint, box.certificate_file),
        authority_sha256=await asyncio.to_thread(_fingerprint, box.authority_file),
        tenant=principal.tenant,
        models=len(box.catalogue.visible_models(principal.tenant)),
        applications=len(box.catalogue.visible(principal.tenant)),
        models_of_all=len(box.catalogue.models()) if principal.is_admin else None,
        applications_of_all=len(box.catalogue.applications()) if principal.is_admin else None,
        engine=status | {"queues": _own(status["queues"], principal)},
    )


@router.get("/v1/settings", summary="The settings", responses=problems(Forbidden))
async def settings(box: TheBox, _: Admin) -> list[SettingShape]:
    """Every setting with its value, its default, and where the value came from; for an admin key. They are read once,
    at the start.
    """
    return [SettingShape.model_validate(one) for one in box.described_settings]


@router.get("/v1/memory", summary="What is in memory", response_model=MemoryShape, responses=problems(Forbidden))
async def memory(box: TheBox, principal: Member) -> Response:
    """The budget, what is taken, every build that is loaded, loading or leaving, with the applications that use it, and
    what each tenant holds.

    A tenant's key sees the builds of the applications that it can call, and what it holds itself.
    """
    owner = principal.tenant
    visible = None if principal.is_admin else {one.id for one in box.catalogue.visible(owner)}
    snapshot = box.memory.snapshot()
    builds = await written(box.turns, owner, _builds(box, snapshot.pop("builds"), visible))
    expected = await written(box.turns, owner, _expectations(box, visible))
    served = await box.turns.collect(owner, each_served(box, None if principal.is_admin else owner))
    holdings = box.shares.holdings(box.memory.holders())
    shown = MemoryShape(
        **snapshot,
        robustness=robustness(served),
        fairness=fairness(served),
        builds=[],
        tenants=[HoldingShape.model_validate(one) for one in holdings if principal.is_admin or one.tenant == owner],
        residency=ResidencyShape(**box.residency.snapshot(), applications=[]),
    ).model_dump()
    return document(shown | {"builds": builds, "residency": shown["residency"] | {"applications": expected}})


@router.get("/v1/processors", summary="What computes", responses=problems(Forbidden))
async def processors(box: TheBox, principal: Member) -> list[ProcessorShape]:
    """Every kind of processor and whether it takes runs; where it takes none, the first one serves what it would.

    An admin key sees why not, or why it is throttled, the workers, the fingerprint that prepared forms are made for,
    runs and busy time, what a worker takes and costs, too.
    """
    tariff = box.pipelines.tariff
    return [_processor(status, tariff, is_admin=principal.is_admin) for status in box.processor_statuses()]


def _processor(status: ProcessorStatus, tariff: Tariff, *, is_admin: bool) -> ProcessorShape:
    described, state = status.description, status.state.value
    if not is_admin:
        return ProcessorShape(name=described.name, kind=described.kind, state=state)
    figures = {name: value for name, value in asdict(status).items() if name != "description"}
    watts = tariff.watts(described.kind)
    costs = {
        "watts": None if watts is None else round(watts.watts, 3),
        "price_per_hour": tariff.price_per_hour.get(described.kind),
    }
    return ProcessorShape.model_validate({**asdict(described), **figures, **costs})


@router.get("/v1/sensors", summary="Heat, watts and clocks", responses=problems(Forbidden))
async def sensors(box: TheBox, _: Admin) -> SensorsShape:
    """What the machine's sensors said last, and which devices are throttled; for an admin key. What is not there is
    left out, what does not answer is null.
    """
    sensed = box.sensors.now()
    age = datetime.timedelta(seconds=(box.clock.now_ns() - sensed.at_ns) / NS_PER_S)
    return SensorsShape(
        at=box.clock.wall_now() - age if sensed.at_ns else None,
        interval_s=box.sensors.interval_s,
        readings=[ReadingShape.model_validate(asdict(one)) for one in sensed.readings],
        throttled=[ThrottledShape(device=one, reason=why) for one, why in sorted(sensed.throttled.items())],
    )


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    openapi_extra={"security": [{"key": []}]},
    responses={
        200: example(
            'appliance_requests_total{tenant="harbour",application="harbour/door",variant="int8",outcome="done"} '
            "1520.0\n",
            "The text format of Prometheus.",
            "text/plain",
        ),
        **problems(Forbidden),
    },
)
async def metrics(request: Request, box: TheBox) -> Response:
    """Requests, outcomes and latency (queue, load, compute, total) by tenant, application and variant; memory, loads
    and evictions.

    An admin key sees all of it, a tenant's key the series of its own requests. Prometheus sends the key with
    `authorization: {credentials_file: ...}`; the setting `security.metrics_open` opens the page to everyone who reaches
    the port.
    """
    if box.metrics_open:
        return Response(await metrics_text(box, None, owner_of(request.scope)), media_type=CONTENT_TYPE)
    principal = await member(await caller(request, box))
    tenant = None if principal.is_admin else principal.tenant
    return Response(await metrics_text(box, tenant, principal.tenant), media_type=CONTENT_TYPE)


def _builds(box: RunningBox, rows: Iterable[Mapping[str, Any]], visible: Set[str] | None) -> Iterator[BuildShape]:
    """Yield the builds that visible applications use, each with these; `visible`: their ids, None: all are visible."""
    for row in rows:
        users = [name for name in row["applications"] if visible is None or name in visible]
        if users or visible is None:
            yield BuildShape(**{**row, "applications": users}, variant=_variant(box, users, row["build"]))


def _expectations(box: RunningBox, visible: Set[str] | None) -> Iterator[ExpectationShape | None]:
    """Yield what is expected of each visible application, None for others; `visible`: their ids, None: all are
    visible.
    """
    for row in box.residency.rows():
        yield ExpectationShape(**row) if visible is None or row["application"] in visible else None


def _variant(box: RunningBox, users: Sequence[str], build: str) -> str:
    """Return the name of a build's variant in the first application that uses it; models of equal content may have
    other names for theirs.
    """
    try:
        servables = box.catalogue.entry(users[0]).servables.values() if users else ()
    except ModelUnavailable:
        return ""
    return next((one.variant.name for one in servables if one.build_id == build), "")


def _own(queues: dict[str, Any], principal: Principal) -> dict[str, Any]:
    if principal.is_admin:
        return queues
    return {name: length for name, length in queues.items() if name.startswith(f"{principal.tenant}/")}


def _python_build() -> str:
    """As `scripts/setup` judges it: a distribution's own is built with both, and does not say so."""
    if sys.base_prefix == "/usr":
        return "a distribution's"
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [name for option, name in (("--enable-optimizations", "PGO"), ("--with-lto", "LTO")) if option in options]
    return ", ".join(found) or "plain"


def _fingerprint(certificate: Path | None) -> str | None:
    """None also where the file cannot be read just now, of which `/v1/health` tells."""
    try:
        return None if certificate is None else fingerprint_of(certificate)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=1)
def process_bytes(_period: int) -> int:
    """Pss where the kernel tells it, else resident bytes; once in a period, for the kernel walks every page table and
    faults wait meanwhile, and each open page of the box asks every few seconds.
    """
    used = psutil.Process().memory_full_info()
    return int(getattr(used, "pss", used.rss))
