"""Decisions in the store: the newest so many, with the applications that each concerned."""

import json
import zlib
from collections.abc import Sequence

from sqlmodel import Session, col, delete, exists, select

from appliance.domain.decisions import DecisionRecord
from appliance.modelstore.repository import PAGE, Repository
from appliance.modelstore.tables import DecisionApplicationRow, DecisionRow, TenantRow


class Decisions(Repository):
    """Decisions by id; ids grow with time and are never used again."""

    async def add_decisions(self, records: Sequence[DecisionRecord], rows_max: int) -> None:
        """Append in order, and remove the oldest beyond `rows_max`, in one transaction. Raises: StorageFull."""

        def work(session: Session) -> None:
            rows = [_row(record) for record in records]
            session.add_all(rows)
            session.flush()
            session.add_all(_links(rows, records, set(session.exec(select(TenantRow.name)))))
            newest = max((row.id or 0 for row in rows), default=0)
            session.exec(delete(DecisionRow).where(col(DecisionRow.id) <= newest - rows_max))

        await self.database.write(work)

    async def decisions(
        self,
        tenant: str | None = None,
        *,
        kind: str | None = None,
        application: str | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> list[DecisionRecord]:
        """Newest first, those older than the id `before`; of all, or those that concerned a tenant's applications, or one application (by id)."""
        query = select(DecisionRow).order_by(col(DecisionRow.id).desc()).limit(limit)
        if kind is not None:
            query = query.where(DecisionRow.kind == kind)
        if before is not None:
            query = query.where(col(DecisionRow.id) < before)
        if tenant is not None or application is not None:
            link = select(DecisionApplicationRow.decision_id).where(
                DecisionApplicationRow.decision_id == DecisionRow.id
            )
            if tenant is not None:
                link = link.where(DecisionApplicationRow.tenant == tenant)
            if application is not None:
                link = link.where(DecisionApplicationRow.application == application)
            query = query.where(exists(link))
        return await self._read(lambda session: _records(session, session.exec(query).all()))


def _row(record: DecisionRecord) -> DecisionRow:
    """The documents are compressed: a decision over many applications is kilobytes of equal words."""
    body = json.dumps({"problem": record.problem, "answer": record.answer}, separators=(",", ":"))
    return DecisionRow(
        at=record.at, kind=record.kind, application=record.application, body=zlib.compress(body.encode(), 3)
    )


def _links(
    rows: Sequence[DecisionRow], records: Sequence[DecisionRecord], tenants: set[str]
) -> list[DecisionApplicationRow]:
    """Without those of tenants that were deleted since: a new tenant of the same name must not see them."""
    return [
        DecisionApplicationRow(decision_id=row.id or 0, application=application, tenant=tenant)
        for row, record in zip(rows, records, strict=True)
        for application, tenant in record.concerned
        if tenant in tenants
    ]


def _records(session: Session, rows: Sequence[DecisionRow]) -> list[DecisionRecord]:
    ids = [row.id for row in rows]
    query = select(DecisionApplicationRow).where(col(DecisionApplicationRow.decision_id).in_(ids))
    concerned: dict[int, list[tuple[str, str]]] = {}
    for link in session.exec(query.order_by(col(DecisionApplicationRow.application))):
        concerned.setdefault(link.decision_id, []).append((link.application, link.tenant))
    return [_record(row, concerned.get(row.id or 0, ())) for row in rows]


def _record(row: DecisionRow, concerned: Sequence[tuple[str, str]]) -> DecisionRecord:
    body = json.loads(zlib.decompress(row.body))
    assert row.id is not None
    return DecisionRecord(row.at, row.kind, row.application, tuple(concerned), body["problem"], body["answer"], row.id)
