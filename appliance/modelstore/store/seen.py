"""What runs were seen to take when it was last saved, so that a restart need not learn it anew."""

from collections.abc import Sequence

from sqlmodel import Session, col, insert, select

from appliance.domain.names import content_of, owner_of
from appliance.domain.profiles import SeenRuns
from appliance.modelstore.store.records import Records
from appliance.modelstore.store.tables import BlobRow, SeenRunsRow, TenantRow
from appliance.modelstore.store.values import columns_of


class Seen:
    """By build and class of shapes; goes with its content, and with the tenant in whose guard the runs were."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def save(self, runs: Sequence[SeenRuns]) -> None:
        """Replace what was saved of these. Those of a content or tenant that has gone meanwhile are left out.

        Raises: StorageFull.
        """

        def work(session: Session) -> None:
            contents = {content_of(sha256): sha256 for sha256 in session.exec(select(BlobRow.sha256))}
            tenants = {None, *session.exec(select(TenantRow.name))}
            rows = [
                {**columns_of(one), "content_sha256": sha256, "tenant": tenant}
                for one in runs
                if (sha256 := contents.get(content_of(one.build_id))) is not None
                and (tenant := owner_of(one.build_id)[1]) in tenants
            ]
            if rows:
                session.connection().execute(insert(SeenRunsRow).prefix_with("OR REPLACE"), rows)

        if runs:
            await self._records.database.write(work)

    async def load(self) -> list[SeenRuns]:
        """What was saved last, by build and shape."""
        query = select(SeenRunsRow).order_by(col(SeenRunsRow.build_id), col(SeenRunsRow.shape))
        return await self._records.read(lambda session: [row.to_seen() for row in session.exec(query)])
