"""The rows of an import: accepted as a whole, withdrawn as a whole."""

from sqlmodel import Session, select

from appliance.domain.catalogue import Application
from appliance.domain.errors import AlreadyExists
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.names import application_id, checked_name, checked_variant_name, model_id, variant_id
from appliance.domain.states import JOB_MOVES, JobState, move
from appliance.modelstore.store.applications import add_application
from appliance.modelstore.store.contents import Contents
from appliance.modelstore.store.jobs import UNFINISHED, new_job_row
from appliance.modelstore.store.models import add_model, model_row, remove_model
from appliance.modelstore.store.records import Change, Changes, Records
from appliance.modelstore.store.tables import ApplicationRow, JobRow, ModelRow, VariantRow


class Imports:
    """What the importer writes besides variants."""

    def __init__(self, records: Records, contents: Contents) -> None:
        self._records = records
        self._contents = contents

    async def accept(self, id: str, request: ImportRequest) -> JobRecord:
        """Create the job, and for a new model the model and its application, in one transaction.

        Raises: BadName, UnknownTenant, AlreadyExists (model, application or variant of that name), UnknownModel (own
        variant).
        """
        checked_name(request.name, "model")
        model = model_id(request.tenant, request.name)
        now = self._records.clock.wall_now()

        def work(session: Session) -> tuple[JobRecord, Changes]:
            if request.repairs:
                changes = []
                model_row(session, model)
            elif request.variant is None:
                changes = self._accept_model(session, request)
            else:
                _check_variant(session, model, checked_variant_name(request.variant))
                changes = []
            row = new_job_row(id, model, request, now)
            session.add(row)
            record = row.to_job()
            return record, [*changes, Change("job", id, record)]

        return await self._records.write(work)

    def _accept_model(self, session: Session, request: ImportRequest) -> list[Change]:
        model = model_id(request.tenant, request.name)
        changes = [
            add_model(
                session,
                ModelRow(
                    id=model,
                    tenant=request.tenant,
                    name=request.name,
                    task=request.task,
                    shared=request.shared,
                    created_at=self._records.clock.wall_now(),
                ),
            )
        ]
        name = request.name if request.application is None else request.application
        if name:
            checked_name(name, "application")
            application = Application(
                application_id(request.tenant, name), request.tenant, name, model, shared=request.shared
            )
            changes.append(add_application(session, application))
        return changes

    async def withdraw(self, id: str, error: str, state: JobState = JobState.FAILED) -> JobRecord:
        """End a job that brought nothing: its model and application go again when no variant was made, so the name
        is free.
        """

        def work(session: Session) -> tuple[tuple[JobRecord, list[str]], Changes]:
            row = session.get(JobRow, id)
            assert row is not None
            if row.state not in UNFINISHED:
                return (row.to_job(), []), []
            changes: list[Change] = []
            contents: list[str] = []
            has_variants = session.exec(select(VariantRow.id).where(VariantRow.model_id == row.model_id)).first()
            if row.request.variant is None and not has_variants:
                applications = select(ApplicationRow.id).where(ApplicationRow.model_id == row.model_id)
                changes = [Change("application", one, None) for one in session.exec(applications).all()]
                contents = remove_model(session, row.model_id)
                changes.append(Change("model", row.model_id, None))
            row.state = move(JOB_MOVES, JobState(row.state), state).value
            row.error, row.updated_at = error, self._records.clock.wall_now()
            return (row.to_job(), contents), [*changes, Change("job", id, row.to_job())]

        record, contents = await self._records.write(work, frees=True)
        await self._contents.remove_files(contents)
        return record


def _check_variant(session: Session, model: str, name: str) -> None:
    model_row(session, model)
    row = session.get(VariantRow, variant_id(model, name))
    if row is not None and not row.to_variant().is_damaged:
        raise AlreadyExists(name=name)
