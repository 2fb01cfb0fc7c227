"""The audit in the store: who changed what, bounded so that nobody's changes push out another's."""

import datetime
from collections.abc import Sequence

from sqlmodel import Session, col, delete, select

from appliance.domain.access import Role
from appliance.domain.audit import AuditRecord
from appliance.modelstore.store.records import PAGE, Records
from appliance.modelstore.store.tables import AuditRow, TenantRow

_ADMINS = "*"
"""No tenant is called so."""


class Audit:
    """Entries by id; ids grow with time and are never used again. Of each tenant's changes, of admins' and of refused
    sign-ins the newest `rows_max` are kept.
    """

    def __init__(self, records: Records, rows_max: int) -> None:
        self._records = records
        self._rows_max = rows_max

    async def add(self, records: Sequence[AuditRecord]) -> None:
        """Append in order. Raises: StorageFull ..."""

        def work(session: Session) -> None:
            parts: set[str] = set()
            for record in records:
                row = _row(session, record)
                session.add(row)
                parts.add(row.part)
            session.flush()
            for part in parts:
                own = select(AuditRow.id).where(AuditRow.part == part).order_by(col(AuditRow.id).desc())
                last = session.exec(own.limit(1).offset(self._rows_max)).first()
                if last is not None:
                    session.execute(delete(AuditRow).where(col(AuditRow.part) == part, col(AuditRow.id) <= last))

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


def _row(session: Session, record: AuditRecord) -> AuditRow:
    actor = record.actor
    part = "" if actor is None else _ADMINS if actor.role is Role.ADMIN else actor.tenant
    return AuditRow(
        at=record.at,
        tenant=record.tenant,
        owner=record.tenant if session.get(TenantRow, record.tenant) is not None else None,
        part=part,
        action=record.action,
        method=record.method,
        path=record.path,
        subject=record.subject,
        change=None if record.change is None else dict(record.change),
        actor=actor,
        address=record.address,
        outcome=record.outcome.value,
        times=record.times,
    )
