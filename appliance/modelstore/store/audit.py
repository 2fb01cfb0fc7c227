"""The audit in the store: who changed what, bounded so that nobody's changes push out another's."""

import datetime
from collections.abc import Sequence

from sqlmodel import Session, col, delete, select, update

from appliance.domain.audit import AuditRecord
from appliance.modelstore.store.audit_rows import add_rows
from appliance.modelstore.store.records import PAGE, Records
from appliance.modelstore.store.tables import AuditRow


class Audit:
    """Entries by id; ids grow with time and are never used again. Of each tenant's changes, of admins' and of refused
    sign-ins the newest `rows_max` are kept.
    """

    def __init__(self, records: Records, rows_max: int) -> None:
        self._records = records
        self._rows_max = rows_max

    async def add(self, records: Sequence[AuditRecord]) -> None:
        """Append in order. Raises: StorageFull ..."""
        await self._records.database.write(lambda session: add_rows(session, records, self._rows_max))

    async def complete(self, id: int, subject: str) -> None:
        """Say what was made, of an entry that was written with the change. Raises: StorageFull ..."""

        def work(session: Session) -> None:
            session.execute(update(AuditRow).where(col(AuditRow.id) == id).values(subject=subject))

        await self._records.database.write(work)

    async def page(
        self, tenant: str | None = None, *, before: int | None = None, limit: int = PAGE
    ) -> list[AuditRecord]:
        """Newest first, those older than the id `before`; of all, or what concerned a tenant."""
        query = select(AuditRow).order_by(col(AuditRow.id).desc()).limit(limit)
        if tenant is not None:
            query = query.where(AuditRow.owner == tenant)
        if before is not None:
            query = query.where(col(AuditRow.id) < before)
        return await self._records.read(lambda session: [row.to_record() for row in session.exec(query)])

    async def forget(self, before: datetime.datetime) -> int:
        """Remove what is older than a time; returns how many."""

        def work(session: Session) -> int:
            found = session.execute(delete(AuditRow).where(col(AuditRow.at) < before))
            return int(found.rowcount)  # type: ignore[attr-defined]  # of a statement that changes rows

        return await self._records.database.write(work, frees=True)
