"""What was in memory when it was last saved, so that a restart comes back warm."""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from appliance.modelstore.store.records import Records
from appliance.modelstore.store.tables import ResidentRow


class Residents:
    """Build ids, most wanted first."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def save(self, build_ids: Sequence[str]) -> None:
        """Replace what was saved."""

        def work(session: Session) -> None:
            for row in session.exec(select(ResidentRow)):
                session.delete(row)
            session.flush()
            session.add_all(ResidentRow(position=at, build_id=build_id) for at, build_id in enumerate(build_ids))

        await self._records.database.write(work)

    async def load(self) -> list[str]:
        """What was saved last."""
        query = select(ResidentRow.build_id).order_by(col(ResidentRow.position))
        return await self._records.read(lambda session: list(session.exec(query)))
