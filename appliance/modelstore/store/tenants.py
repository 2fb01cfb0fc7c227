"""Tenants in the store."""

from sqlmodel import Session, col, select

from appliance.domain.catalogue import DEFAULT_TENANT, Tenant, WallViewers
from appliance.domain.errors import AlreadyExists, InUse, Overcommitted, UnknownTenant
from appliance.domain.names import checked_name
from appliance.modelstore.store.pipeline_uses import refuse_if_used
from appliance.modelstore.store.records import PAGE, Change, Changes, Records
from appliance.modelstore.store.tables import ApplicationRow, KeyRow, ModelRow, PipelineRow, ReceiverRow, TenantRow


def tenant_row(session: Session, name: str) -> TenantRow:
    """Raises: UnknownTenant."""
    row = session.get(TenantRow, name)
    if row is None:
        raise UnknownTenant(name=name)
    return row


class Tenants:
    """Who pays, with their quotas."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def create(self, tenant: Tenant, budget_bytes: int | None = None) -> Tenant:
        """All guarantees together must fit `budget_bytes`. Raises: BadName, AlreadyExists, Overcommitted."""
        checked_name(tenant.name, "tenant")
        now = self._records.clock.wall_now()

        def work(session: Session) -> tuple[Tenant, Changes]:
            if session.get(TenantRow, tenant.name) is not None:
                raise AlreadyExists(name=tenant.name)
            _require_room(session, tenant, budget_bytes)
            session.add(TenantRow(name=tenant.name, quota=tenant.quota, created_at=now))
            return tenant, [Change("tenant", tenant.name, tenant)]

        return await self._records.write(work)

    async def get(self, name: str) -> Tenant:
        """Raises: UnknownTenant."""
        return await self._records.read(lambda session: tenant_row(session, name).to_tenant())

    async def page(self, after: str = "", limit: int = PAGE) -> list[Tenant]:
        """By name, those after `after`."""
        query = select(TenantRow).where(col(TenantRow.name) > after).order_by(col(TenantRow.name)).limit(limit)
        return await self._records.read(lambda session: [row.to_tenant() for row in session.exec(query)])

    async def update(self, tenant: Tenant, budget_bytes: int | None = None) -> Tenant:
        """Replace the quota; all guarantees together must fit `budget_bytes`. Raises: UnknownTenant, Overcommitted."""

        def work(session: Session) -> tuple[Tenant, Changes]:
            row = tenant_row(session, tenant.name)
            _require_room(session, tenant, budget_bytes)
            row.quota = tenant.quota
            changed = row.to_tenant()
            return changed, [Change("tenant", tenant.name, changed)]

        return await self._records.write(work)

    async def allow_wall(self, name: str, viewers: WallViewers) -> Tenant:
        """Say which keys may look at the tenant's frames. Raises: UnknownTenant."""

        def work(session: Session) -> tuple[Tenant, Changes]:
            row = tenant_row(session, name)
            row.wall = viewers.value
            changed = row.to_tenant()
            return changed, [Change("tenant", name, changed)]

        return await self._records.write(work)

    async def delete(self, name: str) -> None:
        """Remove a tenant with its keys, receivers, pipelines, applications and job history.

        Raises: UnknownTenant; InUse while it has models, and always for the default tenant; ApplicationInUse while a
        pipeline of another tenant asks one of its applications.
        """

        def work(session: Session) -> tuple[None, Changes]:
            row = tenant_row(session, name)
            if name == DEFAULT_TENANT or session.exec(select(ModelRow.id).where(ModelRow.tenant == name)).first():
                raise InUse(name=name)
            keys = session.exec(select(KeyRow.id).where(KeyRow.tenant == name)).all()
            applications = session.exec(select(ApplicationRow).where(ApplicationRow.tenant == name)).all()
            for application in applications:
                refuse_if_used(session, application, by_others_only=True)
            receivers = session.exec(select(ReceiverRow.id).where(ReceiverRow.tenant == name)).all()
            pipelines = session.exec(select(PipelineRow.id).where(PipelineRow.tenant == name)).all()
            session.delete(row)
            gone = [
                *(Change("key", id, None) for id in keys),
                *(Change("receiver", id, None) for id in receivers),
                *(Change("pipeline", id, None) for id in pipelines),
                *(Change("application", one.id, None) for one in applications),
            ]
            return None, [*gone, Change("tenant", name, None)]

        await self._records.write(work, frees=True)


def _require_room(session: Session, tenant: Tenant, budget_bytes: int | None) -> None:
    """In the transaction that writes it, so that two guarantees at once cannot both be given. Raises: Overcommitted."""
    guarantee = tenant.quota.memory_guarantee_bytes
    if not guarantee or budget_bytes is None:
        return
    others = session.exec(select(TenantRow).where(TenantRow.name != tenant.name))
    given = sum(row.quota.memory_guarantee_bytes or 0 for row in others)
    if given + guarantee > budget_bytes:
        raise Overcommitted(name=tenant.name, guarantee_bytes=guarantee, others_bytes=given, budget_bytes=budget_bytes)
