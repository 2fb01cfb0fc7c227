"""Keys in the store: who may open the box, as whom, and until when."""

import datetime
from collections.abc import Collection, Mapping

from sqlmodel import Session, col, func, select

from appliance.domain.access import KeyRecord, Role
from appliance.domain.errors import AlreadyExists, UnknownKey
from appliance.modelstore.store.records import PAGE, Change, Changes, Records, require_place
from appliance.modelstore.store.tables import KeyRow, KeyUseRow
from appliance.modelstore.store.tenants import tenant_row
from appliance.modelstore.store.values import columns_of


class Keys:
    """Keys by id; of the key itself only its SHA-256 is kept."""

    def __init__(self, records: Records, per_tenant_max: int) -> None:
        """`per_tenant_max` keys of one tenant, `ALL_TENANTS` times as many of all; admin keys are not counted."""
        self._records = records
        self._per_tenant_max = per_tenant_max

    async def create(self, key: KeyRecord) -> KeyRecord:
        """Raises: UnknownTenant, AlreadyExists, QuotaExceeded."""

        def work(session: Session) -> tuple[KeyRecord, Changes]:
            tenant_row(session, key.tenant)
            if key.role is not Role.ADMIN:
                self._require_room(session, key.tenant)
            same = select(KeyRow.id).where((KeyRow.id == key.id) | (KeyRow.sha256 == key.sha256))
            if session.exec(same).first() is not None:
                raise AlreadyExists(name=key.id)
            session.add(KeyRow(**columns_of(key)))
            return key, [Change("key", key.id, key)]

        return await self._records.write(work)

    def _require_room(self, session: Session, tenant: str) -> None:
        """Raises: QuotaExceeded."""
        counted = select(func.count()).select_from(KeyRow).where(KeyRow.role != Role.ADMIN.value)
        of_tenant = session.exec(counted.where(KeyRow.tenant == tenant)).one()
        of_all = session.exec(counted).one()
        require_place(tenant, "keys", self._per_tenant_max, of_tenant, of_all)

    async def get(self, id: str) -> KeyRecord:
        """Raises: UnknownKey."""

        def work(session: Session) -> KeyRecord:
            row = session.get(KeyRow, id)
            if row is None:
                raise UnknownKey(name=id)
            return row.to_key()

        return await self._records.read(work)

    async def page(self, tenant: str | None, after: str = "", limit: int = PAGE) -> list[KeyRecord]:
        """Keys of a tenant, or of all, by id, those after `after`."""
        query = select(KeyRow).where(col(KeyRow.id) > after).order_by(col(KeyRow.id)).limit(limit)
        if tenant is not None:
            query = query.where(KeyRow.tenant == tenant)
        return await self._records.read(lambda session: [row.to_key() for row in session.exec(query)])

    async def all(self) -> list[KeyRecord]:
        """Every key of the box, by id."""
        return await self._records.read(
            lambda session: [row.to_key() for row in session.exec(select(KeyRow).order_by(col(KeyRow.id)))]
        )

    async def used(self, uses: Mapping[str, datetime.datetime]) -> None:
        """Note when keys were used last, by id; those that are gone meanwhile are passed over.

        Raises: StorageFull ...
        """

        def work(session: Session) -> None:
            there = session.exec(select(KeyRow.id).where(col(KeyRow.id).in_(uses))).all()
            for id in there:
                session.merge(KeyUseRow(key_id=id, used_at=uses[id]))

        if uses:
            await self._records.database.write(work)

    async def uses(self, ids: Collection[str]) -> dict[str, datetime.datetime]:
        """When keys were used last, by id; without those that never were."""
        query = select(KeyUseRow).where(col(KeyUseRow.key_id).in_(ids))
        return await self._records.read(lambda session: {row.key_id: row.used_at for row in session.exec(query)})

    async def revoke(self, id: str) -> None:
        """Raises: UnknownKey."""

        def work(session: Session) -> tuple[None, Changes]:
            row = session.get(KeyRow, id)
            if row is None:
                raise UnknownKey(name=id)
            session.delete(row)
            return None, [Change("key", id, None)]

        await self._records.write(work, frees=True)
