"""Tenants and keys in the store."""

from sqlmodel import Session, col, select

from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import DEFAULT_TENANT, Tenant
from appliance.domain.errors import AlreadyExists, InUse, Overcommitted, UnknownKey, UnknownTenant
from appliance.domain.names import checked_name
from appliance.modelstore.store.repository import PAGE, Change, Changes, Repository
from appliance.modelstore.store.tables import ApplicationRow, KeyRow, ModelRow, TenantRow


def tenant_row(session: Session, name: str) -> TenantRow:
    """Raises: UnknownTenant."""
    row = session.get(TenantRow, name)
    if row is None:
        raise UnknownTenant(name=name)
    return row


class Tenants(Repository):
    """Who pays, and the keys that open the box for them."""

    async def create_tenant(self, tenant: Tenant, budget_bytes: int | None = None) -> Tenant:
        """All guarantees together must fit `budget_bytes`. Raises: BadName, AlreadyExists, Overcommitted."""
        checked_name(tenant.name, "tenant")
        now = self.clock.wall_now()

        def work(session: Session) -> tuple[Tenant, Changes]:
            if session.get(TenantRow, tenant.name) is not None:
                raise AlreadyExists(name=tenant.name)
            _require_room(session, tenant, budget_bytes)
            session.add(TenantRow(name=tenant.name, quota=tenant.quota, created_at=now))
            return tenant, [Change("tenant", tenant.name, tenant)]

        return await self._write(work)

    async def tenant(self, name: str) -> Tenant:
        """Raises: UnknownTenant."""
        return await self._read(lambda session: tenant_row(session, name).to_tenant())

    async def tenants(self, after: str = "", limit: int = PAGE) -> list[Tenant]:
        """By name, those after `after`."""
        query = select(TenantRow).where(col(TenantRow.name) > after).order_by(col(TenantRow.name)).limit(limit)
        return await self._read(lambda session: [row.to_tenant() for row in session.exec(query)])

    async def update_tenant(self, tenant: Tenant, budget_bytes: int | None = None) -> Tenant:
        """Replace the quota; all guarantees together must fit `budget_bytes`. Raises: UnknownTenant, Overcommitted."""

        def work(session: Session) -> tuple[Tenant, Changes]:
            row = tenant_row(session, tenant.name)
            _require_room(session, tenant, budget_bytes)
            row.quota = tenant.quota
            return tenant, [Change("tenant", tenant.name, tenant)]

        return await self._write(work)

    async def delete_tenant(self, name: str) -> None:
        """Remove a tenant with its keys, applications and job history.

        Raises: UnknownTenant; InUse while it has models, and always for the default tenant.
        """

        def work(session: Session) -> tuple[None, Changes]:
            row = tenant_row(session, name)
            if name == DEFAULT_TENANT or session.exec(select(ModelRow.id).where(ModelRow.tenant == name)).first():
                raise InUse(name=name)
            keys = session.exec(select(KeyRow.id).where(KeyRow.tenant == name)).all()
            applications = session.exec(select(ApplicationRow.id).where(ApplicationRow.tenant == name)).all()
            session.delete(row)
            gone = [
                *(Change("key", id, None) for id in keys),
                *(Change("application", id, None) for id in applications),
            ]
            return None, [*gone, Change("tenant", name, None)]

        await self._write(work)

    async def create_key(self, key: KeyRecord) -> KeyRecord:
        """Raises: UnknownTenant, AlreadyExists."""

        def work(session: Session) -> tuple[KeyRecord, Changes]:
            tenant_row(session, key.tenant)
            same = select(KeyRow.id).where((KeyRow.id == key.id) | (KeyRow.sha256 == key.sha256))
            if session.exec(same).first() is not None:
                raise AlreadyExists(name=key.id)
            session.add(
                KeyRow(
                    id=key.id,
                    tenant=key.tenant,
                    role=key.role.value,
                    sha256=key.sha256,
                    applications=key.applications,
                    created_at=key.created_at,
                    expires_at=key.expires_at,
                    label=key.label,
                )
            )
            return key, [Change("key", key.id, key)]

        return await self._write(work)

    async def key(self, id: str) -> KeyRecord:
        """Raises: UnknownKey."""

        def work(session: Session) -> KeyRecord:
            row = session.get(KeyRow, id)
            if row is None:
                raise UnknownKey(name=id)
            return row.to_key()

        return await self._read(work)

    async def keys(self, tenant: str, after: str = "", limit: int = PAGE) -> list[KeyRecord]:
        """Keys of a tenant by id, those after `after`."""
        query = (
            select(KeyRow).where(KeyRow.tenant == tenant, col(KeyRow.id) > after).order_by(col(KeyRow.id)).limit(limit)
        )
        return await self._read(lambda session: [row.to_key() for row in session.exec(query)])

    async def all_keys(self) -> list[KeyRecord]:
        """Every key of the box, by id."""
        return await self._read(
            lambda session: [row.to_key() for row in session.exec(select(KeyRow).order_by(col(KeyRow.id)))]
        )

    async def revoke_key(self, id: str) -> None:
        """Raises: UnknownKey."""

        def work(session: Session) -> tuple[None, Changes]:
            row = session.get(KeyRow, id)
            if row is None:
                raise UnknownKey(name=id)
            session.delete(row)
            return None, [Change("key", id, None)]

        await self._write(work)


def _require_room(session: Session, tenant: Tenant, budget_bytes: int | None) -> None:
    """In the transaction that writes it, so that two guarantees at once cannot both be given. Raises: Overcommitted."""
    guarantee = tenant.quota.memory_guarantee_bytes
    if not guarantee or budget_bytes is None:
        return
    others = session.exec(select(TenantRow).where(TenantRow.name != tenant.name))
    given = sum(row.quota.memory_guarantee_bytes or 0 for row in others)
    if given + guarantee > budget_bytes:
        raise Overcommitted(name=tenant.name, guarantee_bytes=guarantee, others_bytes=given, budget_bytes=budget_bytes)
