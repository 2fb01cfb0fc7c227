"""Decisions in the store: the newest so many, with the applications that each concerned."""

import zlib
from collections.abc import Sequence
from typing import Any

import orjson
from sqlmodel import Session, col, delete, exists, insert, select, text

from appliance.domain.decisions import DecisionRecord
from appliance.modelstore.store.records import PAGE, Records
from appliance.modelstore.store.tables import DecisionApplicationRow, DecisionRow, TenantRow

_LAST_ID = text("SELECT seq FROM sqlite_sequence WHERE name = 'decision'")
"""The highest id that there ever was, kept by SQLite; none before the first."""


SAMPLED = ("dispatch",)
"""Kinds of which the box records samples, as fast as it decides ..."""
SAMPLES_MAX, _LOOK_EVERY = 1000, 256
"""... and keeps so many of each at least: else they would push all others out. Looked at once in so many decisions."""


class Decisions:
    """Decisions by id; ids grow with time and are never used again."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def add(self, records: Sequence[DecisionRecord], rows_max: int) -> int:
        """Append in order, and remove the oldest beyond `rows_max`, in one transaction; the first id, 0 where there is
        nothing to append. Raises: StorageFull.
        """

        if not records:
            return 0

        def work(session: Session) -> int:
            connection = (
                session.connection()
            )  # plain statements: objects would cost four times as much, of a busy interpreter
            first = (connection.execute(_LAST_ID).scalar() or 0) + 1
            connection.execute(insert(DecisionRow), [_row(id, record) for id, record in enumerate(records, first)])
            links = _links(first, records, set(session.exec(select(TenantRow.name))))
            if links:
                connection.execute(insert(DecisionApplicationRow), links)
            following = first + len(records)
            connection.execute(delete(DecisionRow).where(col(DecisionRow.id) < following - rows_max))
            if first // _LOOK_EVERY != following // _LOOK_EVERY:
                for kind in SAMPLED:
                    own = select(col(DecisionRow.id)).where(DecisionRow.kind == kind)
                    newest = own.order_by(col(DecisionRow.id).desc()).limit(1).offset(SAMPLES_MAX)
                    last = connection.execute(newest).scalar()
                    beyond = delete(DecisionRow).where(
                        col(DecisionRow.kind) == kind, col(DecisionRow.id) <= (last or 0)
                    )
                    connection.execute(beyond)
            return int(first)

        return await self._records.database.write(work)

    async def page(
        self,
        tenant: str | None = None,
        *,
        kind: str | None = None,
        application: str | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> list[DecisionRecord]:
        """Newest first, those older than the id `before`; of all, or those that concerned a tenant's applications,
        or one application (by id).
        """
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
        return await self._records.read(lambda session: _records(session, session.exec(query).all()))


def _row(id: int, record: DecisionRecord) -> dict[str, Any]:
    """The documents are compressed: a decision over many applications is kilobytes of equal words."""
    document = {"problem": record.problem, "answer": record.answer, "sharing": record.sharing}
    body = zlib.compress(orjson.dumps(document), 3)
    return {"id": id, "at": record.at, "kind": record.kind, "application": record.application, "body": body}


def _links(first: int, records: Sequence[DecisionRecord], tenants: set[str]) -> list[dict[str, Any]]:
    """Without those of tenants that were deleted since: a new tenant of the same name must not see them."""
    return [
        {"decision_id": id, "application": application, "tenant": tenant}
        for id, record in enumerate(records, first)
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
    body = orjson.loads(zlib.decompress(row.body))
    assert row.id is not None
    sharing = body.get("sharing", {})  # the first rows had none
    return DecisionRecord(
        row.at, row.kind, row.application, tuple(concerned), body["problem"], body["answer"], row.id, sharing
    )
