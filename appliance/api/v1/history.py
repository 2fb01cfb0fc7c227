"""What the box remembers: figures over a day and a month, and who was in memory when."""

import asyncio
import datetime
from collections.abc import Iterator
from functools import partial
from math import isnan
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.v1.deps import Member, TheBox
from appliance.api.v1.pages import document, in_order, written
from appliance.api.v1.stays import Seen, as_columns, as_rows
from appliance.domain.errors import BadPeriod, BadSeries, Forbidden
from appliance.domain.names import application_id
from appliance.history.packing import Samples
from appliance.history.series import MEASURES, UP, Scope, is_of_tenant, split_name
from appliance.wire.fields import Instant
from appliance.wire.history import HistoryShape, MemoryColumnsShape, MemoryHistoryShape, SeriesShape

router = APIRouter(tags=["system"])

POINTS_MAX = 2_000
SERIES_MAX = 50
"""Series that one question may name."""
_SHOWN = datetime.timedelta(hours=1)
"""What is answered where `from` is left out."""

Names = Annotated[
    list[str] | None,
    Query(
        max_length=SERIES_MAX,
        description="Series, each as its own `series=`: a measure, or `measure:subject`. None: the answer lists them.",
        examples=[["requests", "p99:harbour/door"]],
    ),
]
From = Annotated[Instant | None, Query(alias="from", description="Beginning; left out: an hour before `to`.")]
To = Annotated[Instant | None, Query(description="End; left out: now.")]
PointsMax = Annotated[int, Query(ge=1, le=POINTS_MAX, description="Most points of the answer, of all series together.")]
ApplicationName = Annotated[
    str | None, Query(max_length=200, description="Only stays of this application's variants.", examples=["door"])
]
Reasons = Annotated[bool, Query(description="Whether `decisions` has the reasons, which are most of a long answer.")]
Columns = Annotated[
    bool, Query(description="Stays and windows as columns (`MemoryColumnsShape`): a long answer is a sixth as long.")
]


@router.get(
    "/v1/history",
    summary="What happened, as figures",
    response_model=HistoryShape,
    responses=problems(Forbidden, BadSeries, BadPeriod),
)
async def history(
    box: TheBox,
    principal: Member,
    series: Names = None,
    start: From = None,
    to: To = None,
    points: PointsMax = 1_000,
) -> Response:
    """Series over a stretch of time: every 10 seconds of the last 24 hours, every 5 minutes of the last 30 days
    (`history.days`). Where that is more than `points`, each point stands for several samples, and says their mean, the
    least and the most of them.

    An admin sees all of it, a tenant its own part: what it asked for (`requests:harbour`), its applications
    (`p99:harbour/door`) and its memory (`memory:harbour`).
    """
    since, until = _period(box, start, to)
    names = list(dict.fromkeys(series or ()))
    all_names = iter(()) if names else box.history.names()
    seen = (name if _sees(principal, name) else "" for name in all_names)
    known = await in_order(box.turns, principal.tenant, seen, str)
    for name in names:
        if not (_sees(principal, name) and _exists(box, name)):
            raise BadSeries(series=name)
    if len(names) > points:
        raise BadPeriod(field="points", reason=f"points: {len(names)} series have at least a point each")
    read = partial(box.history.read, names, since.timestamp(), until.timestamp(), points)
    found = await box.turns.alone(principal.tenant, read)
    shapes = (
        SeriesShape(
            name=name,
            unit=MEASURES[split_name(name)[0]].unit,
            mean=_plain(found.series[name].mean),
            least=_plain(found.series[name].least),
            most=_plain(found.series[name].most),
            total=found.totals.get(name),
        )
        for name in names
    )
    begin = datetime.datetime.fromtimestamp(found.start, datetime.UTC)
    shown = HistoryShape(start=begin, step_s=found.step_s, count=found.count, series=[], known=[])
    rows = await written(box.turns, principal.tenant, shapes)
    return document(shown.model_dump(mode="json") | {"series": rows, "known": list(filter(None, known))})


@router.get(
    "/v1/memory/history",
    summary="Which variants were in memory, and why",
    response_model=MemoryHistoryShape | MemoryColumnsShape,
    responses=problems(Forbidden, BadPeriod),
)
async def memory_history(
    box: TheBox,
    principal: Member,
    start: From = None,
    to: To = None,
    application: ApplicationName = None,
    reasons: Reasons = True,
    columns: Columns = False,
) -> Response:
    """Each stay of a build in memory: which variant, from when to when, and the decisions that ordered its coming and
    going; and the windows around predicted requests. The newest 20,000 of each are kept.

    A tenant's key sees the stays of its own applications.
    """
    since, until = _period(box, start, to)
    if application is not None and "/" not in application:
        application = application_id(principal.tenant, application)
    read = partial(box.history.residency, since.timestamp(), until.timestamp(), reasons=reasons)
    found = await box.turns.alone(principal.tenant, read)
    own_names = () if principal.is_admin else await box.turns.collect(principal.tenant, _own_names(box, principal))
    seen = Seen(principal, application, dict(own_names))
    # In a thread, and as it is: ten thousand rows would hold the event loop.
    write = partial(asyncio.to_thread, as_columns if columns else as_rows, found, since, until, seen)
    body = await box.turns.alone(principal.tenant, write)
    return Response(body, media_type="application/json")


def _period(
    box: RunningBox, start: datetime.datetime | None, to: datetime.datetime | None
) -> tuple[datetime.datetime, datetime.datetime]:
    """Raises: BadPeriod."""
    now = box.clock.wall_now()
    if start is not None and start > now:
        raise BadPeriod(field="from", reason="from: nothing has happened yet then")
    until = now if to is None else min(to, now)  # who asks may have a clock that is ahead
    since = until - min(_SHOWN, until - datetime.datetime.min.replace(tzinfo=datetime.UTC)) if start is None else start
    if since >= until:
        raise BadPeriod(field="from", reason="from: it is not before `to`")
    return since, until


def _sees(principal: Principal, name: str) -> bool:
    return principal.is_admin or name == UP or is_of_tenant(name, principal.tenant)


def _exists(box: RunningBox, name: str) -> bool:
    """Whether there may be such a series; nothing was sampled of one whose application nobody has asked yet."""
    measure, subject = split_name(name)
    known = MEASURES.get(measure)
    if known is None:
        return False
    if not subject:
        return Scope.BOX in known.scopes
    if Scope.APPLICATION in known.scopes and subject in {entry.application.id for entry in box.catalogue.entries()}:
        return True
    if Scope.TENANT in known.scopes and box.catalogue.has_tenant(subject):
        return True
    return box.history.has(name)


def _plain(samples: Samples) -> list[float | None]:
    """Six digits of each; None for what is no number."""
    return [None if isnan(value) else float(f"{value:.6g}") for value in np.asarray(samples, np.float64).tolist()]


def _own_names(box: RunningBox, principal: Principal) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield what the variant of a build is called in each application of a tenant: (application, build), name."""
    for entry in box.catalogue.entries():
        if entry.application.tenant == principal.tenant:
            for servable in reversed(entry.servables.values()):
                for build in servable.builds:
                    yield (entry.application.id, build), servable.name
