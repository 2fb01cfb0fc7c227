"""What of the disk each tenant occupies, and whether its quota leaves room for more."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlmodel import Session, func, select

from appliance.domain.errors import QuotaExceeded
from appliance.modelstore.store.contents import bytes_by_content
from appliance.modelstore.store.records import Records
from appliance.modelstore.store.tables import TenantRow, UploadRow
from appliance.modelstore.store.tenants import tenant_row

QUOTA = "stored_bytes"
DISK_SHARE_MAX = 0.5
"""Of the disk, for a tenant without a quota of its own while there are others: none can fill the disk for all."""


class StoredBytes:
    """Counts contents and uploads against the quota `stored_bytes`.

    A piece of an upload of unknown length is counted as it comes: its `Room` was measured before it, and whatever else
    the tenant begins or sends from then on narrows it.
    """

    def __init__(self, records: Records, uploads: Path) -> None:
        self._records = records
        self._uploads = uploads
        self._ends: dict[str, int] = {}
        """Uploads that grow now → where what has arrived of them ends, on disk or not yet."""
        self._announced: Counter[str] = Counter()
        """Bytes of each tenant that are being announced: no row tells of them yet."""
        self.grown: Counter[str] = Counter()
        """Bytes that each tenant announced or sent unannounced since the start."""

    async def of_tenant(self, tenant: str) -> int:
        """Bytes of a tenant's contents, each counted once, and of its uploads under way (what was announced counts
        in full).
        """
        return await self._records.read(lambda session: self._of_tenant(session, tenant))

    async def require(self, tenant: str, more_bytes: int) -> None:
        """Raises: UnknownTenant; QuotaExceeded when `more_bytes` beside what the tenant has stored are too much."""
        await self._records.read(lambda session: self.require_in(session, tenant, more_bytes))

    def require_in(self, session: Session, tenant: str, more_bytes: int) -> None:
        """The same, in the transaction that stores them. Raises: UnknownTenant, QuotaExceeded."""
        quota = self._quota(session, tenant)
        if quota is None:
            return
        used = self._of_tenant(session, tenant)
        if used + more_bytes > quota:
            raise QuotaExceeded(tenant=tenant, quota=QUOTA, limit=quota, used=used, needed=more_bytes)

    async def room(self, tenant: str) -> "Room | None":
        """What the quota leaves for a piece whose size nobody knows; None: there is no quota. Raises: UnknownTenant."""
        grown, announced = self.grown[tenant], self._announced[tenant]

        def work(session: Session) -> tuple[int, int] | None:
            quota = self._quota(session, tenant)
            return None if quota is None else (quota, self._of_tenant(session, tenant))

        found = await self._records.read(work)
        if found is None:
            return None
        quota, used = found
        return Room(self, tenant, quota, grown + quota - used - announced)

    @contextmanager
    def announced(self, tenant: str, more_bytes: int) -> Iterator[None]:
        """So many bytes are announced: from now on they are no longer there for pieces under way. Inside, the row is
        written that reserves them; where that fails they are there again.
        """
        self.grown[tenant] += more_bytes
        self._announced[tenant] += more_bytes
        try:
            yield
        except Exception:  # a caller who has gone does not stop the write
            self.grown[tenant] -= more_bytes
            raise
        finally:
            self._announced[tenant] -= more_bytes

    def grow(self, tenant: str, id: str, count: int, end: int) -> None:
        """So many bytes have arrived of an upload, which ends there with them."""
        self.grown[tenant] += count
        self._ends[id] = end

    def settle(self, id: str) -> None:
        """No piece of an upload is under way any more: its file is all that has arrived."""
        self._ends.pop(id, None)

    async def is_upload(self, path: Path) -> bool:
        """Whether a file is the spool of an upload, whose bytes are counted already."""
        if path.parent != self._uploads:
            return False
        return await self._records.read(lambda session: session.get(UploadRow, path.name) is not None)

    def _quota(self, session: Session, tenant: str) -> int | None:
        """Bytes that a tenant may store; None: as many as there are. Raises: UnknownTenant."""
        own = tenant_row(session, tenant).quota.stored_bytes
        if own is not None:
            return own
        is_alone = session.exec(select(func.count()).select_from(TenantRow)).one() == 1
        return None if is_alone else int(DISK_SHARE_MAX * shutil.disk_usage(self._uploads).total)

    def _of_tenant(self, session: Session, tenant: str) -> int:
        stored = sum(bytes_by_content(session, tenant).values())
        for id, length in session.exec(select(UploadRow.id, UploadRow.length).where(UploadRow.tenant == tenant)):
            spool = self._uploads / id
            if spool.exists():
                stored += max(length or 0, spool.stat().st_size, self._ends.get(id, 0))
        return stored


class Room:
    """What one piece may take of a tenant's quota. Event-loop thread only."""

    def __init__(self, stored: StoredBytes, tenant: str, quota: int, grown_max: int) -> None:
        """`grown_max`: what the tenant's growth may come to before the quota, in bytes, is full."""
        self._stored = stored
        self._tenant = tenant
        self._quota = quota
        self._grown_max = grown_max

    def take(self, id: str, count: int, end: int) -> None:
        """Count bytes of the upload `id`, which ends at `end` with them. Raises: QuotaExceeded; then none are
        counted.
        """
        left = self._grown_max - self._stored.grown[self._tenant]
        if count > left:
            used = self._quota - left
            raise QuotaExceeded(tenant=self._tenant, quota=QUOTA, limit=self._quota, used=used, needed=count)
        self._stored.grow(self._tenant, id, count, end)
