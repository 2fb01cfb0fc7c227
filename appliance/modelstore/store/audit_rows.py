"""Rows of the audit, as a transaction writes them."""

from collections.abc import Sequence

from sqlmodel import Session, col, delete, select

from appliance.domain.access import Role
from appliance.domain.audit import AuditRecord
from appliance.modelstore.store.tables import AuditRow, TenantRow
from appliance.modelstore.store.values import columns_of

_ADMINS = "*"
"""No tenant is called so."""


def add_rows(session: Session, records: Sequence[AuditRecord], rows_max: int) -> list[int]:
    """Append in order, and drop of each part what is more than `rows_max`; their ids."""
    session.flush()  # a tenant that goes with this transaction owns none
    rows = [_row(session, record) for record in records]
    session.add_all(rows)
    session.flush()
    for part in {row.part for row in rows}:
        own = select(AuditRow.id).where(AuditRow.part == part).order_by(col(AuditRow.id).desc())
        last = session.exec(own.limit(1).offset(rows_max)).first()
        if last is not None:
            session.execute(delete(AuditRow).where(col(AuditRow.part) == part, col(AuditRow.id) <= last))
    return [row.id for row in rows if row.id is not None]


def _row(session: Session, record: AuditRecord) -> AuditRow:
    actor = record.actor
    part = "" if actor is None else _ADMINS if actor.role is Role.ADMIN else actor.tenant
    owner = record.tenant if session.get(TenantRow, record.tenant) is not None else None
    change = None if record.change is None else dict(record.change)
    return AuditRow(**columns_of(record, "id", "change"), owner=owner, part=part, change=change)
