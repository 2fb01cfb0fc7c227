"""Import jobs in the store."""

import datetime

from sqlalchemy.orm import defer
from sqlmodel import Session, col, func, select

from appliance.domain.errors import UnknownJob
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.states import JOB_MOVES, JobState, move
from appliance.modelstore.store.records import PAGE, Change, Changes, Records
from appliance.modelstore.store.tables import JobRow

UNFINISHED = (JobState.QUEUED.value, JobState.RUNNING.value)
_WITHOUT_REQUEST = defer(JobRow.request)  # type: ignore[arg-type]  # a column, not its value
"""Records of jobs hold nothing of the request, which takes as long to read as the rest of a row."""


def job_row(session: Session, id: str) -> JobRow:
    """Raises: UnknownJob."""
    row = session.get(JobRow, id)
    if row is None:
        raise UnknownJob(name=id)
    return row


def new_job_row(id: str, model: str, request: ImportRequest, now: datetime.datetime) -> JobRow:
    """A queued job."""
    return JobRow(
        id=id,
        tenant=request.tenant,
        model_id=model,
        state=JobState.QUEUED.value,
        stage="queued",
        percent=0.0,
        message="",
        error="",
        request=request,
        created_at=now,
        updated_at=now,
    )


class Jobs:
    """Jobs by id; ids sort by time of creation, newest last."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get(self, id: str) -> JobRecord:
        """Raises: UnknownJob."""
        return await self._records.read(lambda session: job_row(session, id).to_job())

    async def page(
        self, tenant: str | None = None, *, model_id: str | None = None, before: str = "", limit: int = PAGE
    ) -> list[JobRecord]:
        """Newest first, those older than the job `before`; of one tenant, of one model, or of all."""
        query = select(JobRow).options(_WITHOUT_REQUEST).order_by(col(JobRow.id).desc()).limit(limit)
        if tenant is not None:
            query = query.where(JobRow.tenant == tenant)
        if model_id is not None:
            query = query.where(JobRow.model_id == model_id)
        if before:
            query = query.where(col(JobRow.id) < before)
        return await self._records.read(lambda session: [row.to_job() for row in session.exec(query)])

    async def failures(self, after: datetime.datetime) -> list[JobRecord]:
        """Return the last job of each model, where that job failed after a time; the newest first, a page at most."""
        last = select(func.max(JobRow.id)).where(col(JobRow.updated_at) > after).group_by(col(JobRow.model_id))
        query = select(JobRow).where(col(JobRow.id).in_(last), JobRow.state == JobState.FAILED.value)
        query = query.order_by(col(JobRow.id).desc()).limit(PAGE)
        return await self._records.read(lambda session: [row.to_job() for row in session.exec(query)])

    async def unfinished(self) -> list[tuple[JobRecord, ImportRequest]]:
        """What is queued or was running, oldest first, with what was asked for."""
        query = select(JobRow).where(col(JobRow.state).in_(UNFINISHED)).order_by(col(JobRow.id))
        return await self._records.read(lambda session: [(row.to_job(), row.request) for row in session.exec(query)])

    async def update(
        self,
        id: str,
        *,
        state: JobState | None = None,
        stage: str | None = None,
        percent: float | None = None,
        message: str | None = None,
        error: str | None = None,
    ) -> JobRecord:
        """Change what is given; the percentage never falls. Raises: UnknownJob."""
        now = self._records.clock.wall_now()

        def work(session: Session) -> tuple[JobRecord, Changes]:
            row = job_row(session, id)
            if state is not None and state != row.state:
                row.state = move(JOB_MOVES, JobState(row.state), state).value
            row.stage = row.stage if stage is None else stage
            row.percent = row.percent if percent is None else max(row.percent, percent)
            row.message = row.message if message is None else message
            row.error = row.error if error is None else error
            row.updated_at = now
            record = row.to_job()
            return record, [Change("job", id, record)]

        return await self._records.write(work)

    async def forget(self, before: datetime.datetime) -> int:
        """Remove finished jobs last changed before a time; returns how many."""

        def work(session: Session) -> tuple[int, Changes]:
            query = select(JobRow).where(col(JobRow.state).not_in(UNFINISHED), col(JobRow.updated_at) < before)
            rows = session.exec(query).all()
            for row in rows:
                session.delete(row)
            return len(rows), [Change("job", row.id, None) for row in rows]

        return await self._records.write(work, frees=True)
