"""Receivers of notifications in the store."""

from collections.abc import Sequence

from sqlmodel import Session, col, func, or_, select

from appliance.domain.catalogue import DEFAULT_TENANT
from appliance.domain.errors import UnknownReceiver
from appliance.domain.notifications.receivers import Receiver
from appliance.modelstore.store.records import ALL_TENANTS, PAGE, Change, Changes, Records, require_place
from appliance.modelstore.store.tables import ReceiverRow
from appliance.modelstore.store.tenants import tenant_row

PER_TENANT_MAX = 8


class Receivers:
    """Receivers by id, of tenants and of the box itself."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def create(self, receiver: Receiver) -> Receiver:
        """Raises: UnknownTenant, QuotaExceeded."""

        def work(session: Session) -> tuple[Receiver, Changes]:
            if receiver.tenant is not None:
                tenant_row(session, receiver.tenant)
            counted = select(func.count()).select_from(ReceiverRow)
            own = session.exec(counted.where(col(ReceiverRow.tenant) == receiver.tenant)).one()
            of_tenants = session.exec(counted.where(col(ReceiverRow.tenant).is_not(None))).one()
            of_all = of_tenants if receiver.tenant is not None else 0
            require_place(receiver.tenant or DEFAULT_TENANT, "receivers", PER_TENANT_MAX, own, of_all)
            session.add(ReceiverRow(id=receiver.id, tenant=receiver.tenant, receiver=receiver))
            return receiver, [Change("receiver", receiver.id, receiver)]

        return await self._records.write(work)

    async def get(self, id: str) -> Receiver:
        """Raises: UnknownReceiver."""
        return await self._records.read(lambda session: _row(session, id).receiver)

    async def page(
        self, tenants: Sequence[str | None] | None = None, after: str = "", limit: int = PAGE
    ) -> list[Receiver]:
        """Return receivers of these tenants with ids above `after`. Tenant None: the box; `tenants` None: all
        tenants and the box.
        """
        query = select(ReceiverRow).where(col(ReceiverRow.id) > after).order_by(col(ReceiverRow.id)).limit(limit)
        if tenants is not None:
            query = query.where(or_(*(col(ReceiverRow.tenant) == one for one in tenants)))
        return await self._records.read(lambda session: [row.receiver for row in session.exec(query)])

    async def all(self) -> list[Receiver]:
        """Return all receivers, by id."""
        return await self.page(limit=(ALL_TENANTS + 1) * PER_TENANT_MAX)

    async def delete(self, id: str) -> None:
        """Raises: UnknownReceiver."""

        def work(session: Session) -> tuple[None, Changes]:
            session.delete(_row(session, id))
            return None, [Change("receiver", id, None)]

        await self._records.write(work, frees=True)


def _row(session: Session, id: str) -> ReceiverRow:
    row = session.get(ReceiverRow, id)
    if row is None:
        raise UnknownReceiver(name=id)
    return row
