"""Applications in the store."""

from sqlmodel import Session, func, select

from appliance.domain.catalogue import Application
from appliance.domain.errors import AlreadyExists, QuotaExceeded, UnknownApplication, UnknownModel
from appliance.domain.names import checked_name
from appliance.modelstore.store.pipeline_uses import refuse_if_used
from appliance.modelstore.store.records import Change, Changes, Records
from appliance.modelstore.store.tables import ApplicationRow, ModelRow
from appliance.modelstore.store.tenants import tenant_row
from appliance.modelstore.store.values import columns_of

PER_TENANT_MAX = 2000
"""Applications of one tenant: all of them are kept in memory."""


def application_row(session: Session, id: str) -> ApplicationRow:
    """Raises: UnknownApplication."""
    row = session.get(ApplicationRow, id)
    if row is None:
        raise UnknownApplication(name=id)
    return row


def add_application(session: Session, application: Application) -> Change:
    """Insert within a transaction.

    Raises: AlreadyExists, QuotaExceeded, UnknownModel (also another tenant's model that is not shared).
    """
    if session.get(ApplicationRow, application.id) is not None:
        raise AlreadyExists(name=application.name)
    counted = select(func.count()).select_from(ApplicationRow).where(ApplicationRow.tenant == application.tenant)
    used = session.exec(counted).one()
    if used >= PER_TENANT_MAX:
        raise QuotaExceeded(tenant=application.tenant, quota="applications", limit=PER_TENANT_MAX, used=used)
    check_usable(session, application)
    session.add(ApplicationRow(**columns_of(application)))
    return Change("application", application.id, application)


def check_usable(session: Session, application: Application) -> None:
    """Raises: UnknownModel unless the application's tenant may use its model."""
    model = session.get(ModelRow, application.model_id)
    if model is None or model.deleted_at is not None or not (model.shared or model.tenant == application.tenant):
        raise UnknownModel(name=application.model_id)


def _refuse_if_missed(session: Session, row: ApplicationRow, application: Application) -> None:
    """Raises: ApplicationInUse where sharing ends while pipelines of other tenants ask it, or where it becomes another
    task, whose answers do not fit the pipelines that ask it.
    """
    if row.shared and not application.shared:
        refuse_if_used(session, row, by_others_only=True)
    old, new = session.get(ModelRow, row.model_id), session.get(ModelRow, application.model_id)
    if old is None or new is None or old.task.kind is not new.task.kind:
        refuse_if_used(session, row)


class Applications:
    """A tenant's registered uses of models."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def create(self, application: Application) -> Application:
        """Raises: BadName, UnknownTenant, UnknownModel (also when the model is another tenant's and not shared),
        AlreadyExists, QuotaExceeded.
        """
        checked_name(application.name, "application")

        def work(session: Session) -> tuple[Application, Changes]:
            tenant_row(session, application.tenant)
            return application, [add_application(session, application)]

        return await self._records.write(work)

    async def get(self, id: str) -> Application:
        """Raises: UnknownApplication."""
        return await self._records.read(lambda session: application_row(session, id).to_application())

    async def update(self, application: Application) -> Application:
        """Replace everything but its identity.

        Raises: UnknownApplication, UnknownModel; ApplicationInUse where a pipeline could go on no more.
        """

        def work(session: Session) -> tuple[Application, Changes]:
            row = application_row(session, application.id)
            check_usable(session, application)
            _refuse_if_missed(session, row, application)
            row.take(application)
            return application, [Change("application", application.id, application)]

        return await self._records.write(work)

    async def delete(self, id: str) -> None:
        """Raises: UnknownApplication, ApplicationInUse."""

        def work(session: Session) -> tuple[None, Changes]:
            row = application_row(session, id)
            refuse_if_used(session, row)
            session.delete(row)
            return None, [Change("application", id, None)]

        await self._records.write(work, frees=True)
