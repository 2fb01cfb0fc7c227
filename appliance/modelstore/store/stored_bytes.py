"""What of the disk each tenant occupies, and whether its quota leaves room for more."""

from pathlib import Path

from sqlmodel import select

from appliance.domain.errors import QuotaExceeded
from appliance.modelstore.store.contents import Contents
from appliance.modelstore.store.records import Records
from appliance.modelstore.store.tables import UploadRow
from appliance.modelstore.store.tenants import Tenants


class StoredBytes:
    """Counts contents and uploads against the quota `stored_bytes`."""

    def __init__(self, records: Records, contents: Contents, tenants: Tenants, uploads: Path) -> None:
        self._records = records
        self._contents = contents
        self._tenants = tenants
        self._uploads = uploads

    async def of_tenant(self, tenant: str) -> int:
        """Bytes of a tenant's contents, each counted once, and of its uploads under way (what was announced counts
        in full).
        """
        query = select(UploadRow.id, UploadRow.length).where(UploadRow.tenant == tenant)
        uploads = await self._records.read(lambda session: list(session.exec(query)))
        stored = sum((await self._contents.of_tenant(tenant)).values())
        for id, length in uploads:
            spool = self._uploads / id
            if spool.exists():
                stored += max(length or 0, spool.stat().st_size)
        return stored

    async def require(self, tenant: str, more_bytes: int) -> None:
        """Raises: UnknownTenant; QuotaExceeded when `more_bytes` beside what the tenant has stored are too much."""
        quota = (await self._tenants.get(tenant)).quota.stored_bytes
        if quota is not None and await self.of_tenant(tenant) + more_bytes > quota:
            raise QuotaExceeded(tenant=tenant, quota="stored_bytes")

    async def is_upload(self, path: Path) -> bool:
        """Whether a file is the spool of an upload, whose bytes are counted already."""
        if path.parent != self._uploads:
            return False
        return await self._records.read(lambda session: session.get(UploadRow, path.name) is not None)
