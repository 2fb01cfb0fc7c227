"""Import jobs and their progress."""

import datetime
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response, StreamingResponse

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import example, problems
from appliance.api.http.sse import HEARTBEAT, event_stream, frame
from appliance.api.streams.welcome import Welcome
from appliance.api.v1.deps import Cursor, EveryTenant, Following, Limit, Member, TheBox
from appliance.api.v1.pages import page
from appliance.api.v1.promises import never_fits_warnings
from appliance.domain.errors import Forbidden, UnknownJob
from appliance.domain.jobs import JobRecord
from appliance.domain.states import JobState
from appliance.runtime.residency.account import MemoryAccount
from appliance.wire.jobs import JobShape
from appliance.wire.shape import Page

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JobId = Annotated[str, Path(description="Id of the job.", examples=["01hf3k2m9x"])]
HEARTBEAT_LOOKS = 15
QUIET = datetime.timedelta(seconds=20)
"""Steps that have the processors to themselves tell of an advance more often, nearly always."""


@router.get("", summary="List jobs", response_model=Page[JobShape], responses=problems(Forbidden))
async def list_jobs(
    box: TheBox, principal: Member, every_tenant: EveryTenant, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """The tenant's imports, newest first; with `tenant=*` those of all tenants in one order."""
    owner = principal.tenant
    tenant = None if every_tenant else owner
    jobs = await box.turns.alone(owner, lambda: box.store.jobs.page(tenant, before=cursor, limit=limit + 1))
    return await page(box.turns, owner, jobs, limit, lambda job: job.id, lambda job: shape_of(box, job))


@router.get("/{job}", summary="Show a job", responses=problems(Forbidden, UnknownJob))
async def show_job(job: JobId, box: TheBox, principal: Member) -> JobShape:
    """Stage, percent and what happened so far.

    The model can be called as soon as its first variant is ready, before the job ends.
    """
    return await _told(box, await _own(box, principal, job))


@router.get(
    "/{job}/events",
    summary="Follow a job",
    response_class=StreamingResponse,
    responses={
        200: example(
            'event: job\ndata: {"id": "01hf3k2m9x", "state": "running", "stage": "int8", "percent": 62.5}\n\n',
            "Server-sent events, one `job` event per change; the stream ends with the job.",
            "text/event-stream",
        ),
        **problems(Forbidden, UnknownJob),
    },
)
async def follow_job(job: JobId, box: TheBox, principal: Member, welcome: Following) -> StreamingResponse:
    """Server-sent events: the job as it is now, then after every change, until it has ended."""
    return event_stream(_frames(box, await _own(box, principal, job), welcome))


async def _frames(box: RunningBox, job: JobRecord, welcome: Welcome) -> AsyncIterator[bytes]:
    async def read() -> JobShape:
        return await _told(box, await box.store.jobs.get(job.id))

    quiet = 0
    async with aclosing(box.followed_jobs.follow(await _told(box, job), read)) as changes:
        async for shown in changes:
            if not welcome.holds(have_frames_come=False):
                return
            quiet = quiet + 1 if shown is None else 0
            if shown is not None:
                yield frame(shown.model_dump(mode="json"), event="job")
            elif quiet % HEARTBEAT_LOOKS == 0:
                yield HEARTBEAT


async def _own(box: RunningBox, principal: Principal, job: str) -> JobRecord:
    record = await box.store.jobs.get(job)
    if record.tenant != principal.tenant:
        raise UnknownJob(name=job)
    return record


async def _told(box: RunningBox, job: JobRecord) -> JobShape:
    """Return a job as it stands. Where it is done, its message also says what its applications never have room for."""
    shape = shape_of(box, job)
    if shape.state is not JobState.DONE:
        return shape
    account = MemoryAccount(box.memory, box.shares)
    entries = (one for one in box.catalogue.entries() if one.model.id == job.model_id)
    warnings = await box.turns.collect(job.tenant, (never_fits_warnings(one, account) for one in entries))
    told = sorted({one.detail for each in warnings for one in each})
    return shape.model_copy(update={"message": ". ".join([shape.message, *told])})


def message_of(job: JobRecord, waits: str, now: datetime.datetime, *, is_busy: bool) -> str:
    """Return what a person is told of a job: what it waits for, else what happened.

    `waits`: its place among imports, where it waits for its turn. A step of a job that works takes what requests leave.
    """
    if waits or job.state is not JobState.RUNNING:
        return waits or job.message
    if is_busy and now - job.updated_at >= QUIET:
        return f"waits for what requests leave of the processors: nothing new since {job.updated_at:%H:%M:%S} UTC"
    return job.message


def shape_of(box: RunningBox, job: JobRecord) -> JobShape:
    """A job as it stands, and behind what it waits."""
    is_busy = False
    if job.state is JobState.RUNNING:  # of a list few are, and counting takes time
        status = box.engine.status()
        is_busy = bool(status["queued"] or status["running"])
    return JobShape(
        id=job.id,
        tenant=job.tenant,
        model=job.model_id.split("/", 1)[1],
        state=job.state,
        stage=job.stage,
        percent=round(job.percent, 1),
        message=message_of(job, box.importer.waits_of(job.id), box.clock.wall_now(), is_busy=is_busy),
        error=job.error,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )
