"""Devices' sessions in the store: those that have not ended."""

from sqlmodel import Session as Transaction
from sqlmodel import col, select

from appliance.domain.session import Session
from appliance.modelstore.store.records import Records
from appliance.modelstore.store.tables import SessionRow
from appliance.modelstore.store.values import columns_of


class StoredSessions:
    """What a restart takes back."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def put(self, session: Session) -> None:
        """Add or replace."""

        def work(transaction: Transaction) -> None:
            row = transaction.get(SessionRow, session.id) or SessionRow(**columns_of(session, "promise"))
            row.take(session)
            transaction.add(row)

        await self._records.database.write(work)

    async def remove(self, id: str) -> None:
        """It has ended; one that is not there is no error."""

        def work(transaction: Transaction) -> None:
            row = transaction.get(SessionRow, id)
            if row is not None:
                transaction.delete(row)

        await self._records.database.write(work, frees=True)

    async def load(self) -> list[Session]:
        """All of them, by id."""
        query = select(SessionRow).order_by(col(SessionRow.id))
        return await self._records.read(lambda transaction: [row.to_session() for row in transaction.exec(query)])
