"""Sums of the last hour, day and month: how promises were kept, and what tenants used."""

import datetime
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application, callable_pipeline
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.v1.deps import EveryTenant, Limit, Member, TheBox
from appliance.api.v1.pages import document, in_order, written
from appliance.clock import NS_PER_S
from appliance.domain.catalogue import Application
from appliance.domain.errors import Forbidden, UnknownApplication, UnknownPipeline
from appliance.domain.pipeline import Pipeline
from appliance.domain.spans import Span
from appliance.history.tallies import UP, PromiseKind, Sums, Use, tally_name
from appliance.wire.history import (
    PromiseCellsShape,
    PromiseHistoriesShape,
    PromiseHistoryShape,
    PromiseSpanShape,
    TenantsUsedShape,
    TenantUsedShape,
)

router = APIRouter(tags=["system"])


class UseSort(StrEnum):
    """Orders of tenants."""

    NAME = "name"
    REQUESTS = "requests"
    PROCESSOR = "processor_s"
    MEMORY = "memory_bytes"
    STORED = "stored_bytes"


OfApplication = Annotated[str | None, Query(max_length=200, description="Only those of this application, with cells.")]
OfPipeline = Annotated[str | None, Query(max_length=200, description="Only those of this pipeline, with cells.")]
Over = Annotated[Span, Query(description="How far back.")]
Sort = Annotated[UseSort, Query(description="Order: names from a to z, figures from most to least.")]
Position = Annotated[
    str, Query(max_length=9, pattern="^[0-9]*$", description="`next_cursor` of the page before; empty: from the start.")
]


class _Promise(NamedTuple):
    """A promise of an application or pipeline."""

    of: PromiseKind
    target: Application | Pipeline

    @property
    def tally(self) -> str:
        return tally_name(self.of, self.target.id)


@router.get(
    "/v1/history/promises",
    summary="How promises were kept",
    response_model=PromiseHistoriesShape,
    responses=problems(Forbidden, UnknownApplication, UnknownPipeline),
)
async def promises(
    box: TheBox,
    principal: Member,
    every_tenant: EveryTenant,
    application: OfApplication = None,
    pipeline: OfPipeline = None,
) -> Response:
    """Each promise (SLO of an application, SLO of a pipeline, promises of sessions) with the numbers of kept, late,
    refused and failed in the last hour, day and month.

    They are whole numbers, summed up over restarts, and not rounded or thinned; a box that is killed loses those of its
    last minute. With `application` or `pipeline` the answer has the cells of each span, too: 60 minutes, 48 half hours
    and 30 days of UTC.
    """
    is_named = application is not None or pipeline is not None
    targets: Iterator[Application | Pipeline]
    if is_named:
        found: list[Application | Pipeline] = []
        if application is not None:
            found.append(callable_application(box.catalogue, principal, application))
        if pipeline is not None:
            found.append(callable_pipeline(box.pipelines, principal, pipeline).pipeline)
        targets = iter(found)
    else:
        targets = _targets(box, principal, every_tenant=every_tenant)
    promised = await box.turns.collect(principal.tenant, (one for target in targets for one in _promises(target)))
    tallies = {one.tally for one in promised}
    sums = await box.turns.alone(principal.tenant, lambda: box.history.sums(Span, tallies.__contains__))
    shapes = (_promise(one, sums, has_cells=is_named) for one in promised)
    return document({"items": await written(box.turns, principal.tenant, shapes)})


@router.get(
    "/v1/history/tenants", summary="Who used most", response_model=TenantsUsedShape, responses=problems(Forbidden)
)
async def tenants_used(
    box: TheBox,
    principal: Member,
    over: Over = Span.DAY,
    sort: Sort = UseSort.PROCESSOR,
    cursor: Position = "",
    limit: Limit = 100,
) -> Response:
    """Requests, processor time, memory and disk of each tenant in the last hour, day or month.

    An admin sees all tenants, a tenant itself.
    """
    owner = principal.tenant
    names = [one.name for one in box.catalogue.tenants() if principal.is_admin or one.name == owner]
    wanted = tuple(f"{use.value}:" for use in Use)
    sums = (await box.turns.alone(owner, lambda: box.history.sums([over], lambda name: name.startswith(wanted))))[over]
    rows = await box.turns.collect(owner, (_used(sums, name) for name in names))
    if sort is UseSort.STORED:
        rows = [await _with_stored(box, row) for row in rows]
    known = await in_order(box.turns, owner, rows, lambda row: _rank(row, sort))
    first = int(cursor or 0)
    shown = known[first : first + limit]
    if sort is not UseSort.STORED:
        shown = [await _with_stored(box, row) for row in shown]
    following = str(first + limit) if first + limit < len(known) else None
    head = TenantsUsedShape(start=_at(sums.start), items=[], next_cursor=following)
    return document(head.model_dump(mode="json") | {"items": await written(box.turns, owner, shown)})


def _targets(box: RunningBox, principal: Principal, *, every_tenant: bool) -> Iterator[Application | Pipeline]:
    """Yield the applications and pipelines that may have promises: those of all tenants, or those that a key sees."""
    yield from box.catalogue.applications() if every_tenant else box.catalogue.visible(principal.tenant)
    for live in box.pipelines.all() if every_tenant else box.pipelines.of_tenant(principal.tenant):
        yield live.pipeline


def _promises(target: Application | Pipeline) -> Iterator[_Promise]:
    is_pipeline = isinstance(target, Pipeline)
    yield _Promise(PromiseKind.FRAMES if is_pipeline else PromiseKind.REQUESTS, target)
    yield _Promise(PromiseKind.PIPELINE_WINDOWS if is_pipeline else PromiseKind.WINDOWS, target)


def _promise(one: _Promise, sums: dict[Span, Sums], *, has_cells: bool) -> PromiseHistoryShape | None:
    """Return the shape of a promise; None: nothing is promised, and nothing was."""
    spans = {span: _span(sums[span], one.tally, has_cells=has_cells) for span in Span}
    is_promised = one.of in (PromiseKind.REQUESTS, PromiseKind.FRAMES) and one.target.latency_slo_ms is not None
    if not is_promised and all(span.share is None for span in spans.values()):
        return None
    return PromiseHistoryShape(
        tenant=one.target.tenant,
        kind="pipeline" if isinstance(one.target, Pipeline) else "application",
        name=one.target.name,
        of="windows" if one.of is PromiseKind.PIPELINE_WINDOWS else one.of.value,
        latency_slo_ms=one.target.latency_slo_ms,
        hour=spans[Span.HOUR],
        day=spans[Span.DAY],
        month=spans[Span.MONTH],
    )


def _span(sums: Sums, tally: str, *, has_cells: bool) -> PromiseSpanShape:
    columns = [list(column) for column in zip(*sums.of(tally, 4), strict=True)]
    kept, late, refused, failed = map(sum, columns)
    counted, down_s = kept + late + refused + failed, sums.down_s()
    cells = dict(zip(("kept", "late", "refused", "failed"), columns, strict=True))
    return PromiseSpanShape(
        start=_at(sums.start),
        cell_s=sums.width_s,
        kept=kept,
        late=late,
        refused=refused,
        failed=failed,
        share=kept / counted if counted else None,
        down_s=sum(filter(None, down_s)),
        cells=PromiseCellsShape(**cells, down_s=down_s) if has_cells else None,
    )


def _used(sums: Sums, name: str) -> TenantUsedShape:
    requests, ran_ns, held = (sum(count for (count,) in sums.of(tally_name(use, name), 1)) for use in Use)
    samples = sum(count for (count,) in sums.of(UP, 1))
    return TenantUsedShape(
        name=name,
        requests=requests,
        processor_s=round(ran_ns / NS_PER_S, 6),
        memory_bytes=held // max(1, samples),
        stored_bytes=0,
    )


async def _with_stored(box: RunningBox, row: TenantUsedShape) -> TenantUsedShape:
    return row.model_copy(update={"stored_bytes": await box.store.stored_bytes.of_tenant(row.name)})


def _rank(row: TenantUsedShape, sort: UseSort) -> tuple[float, str]:
    return 0.0 if sort is UseSort.NAME else -float(getattr(row, sort.value)), row.name


def _at(start: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(start, datetime.UTC)
