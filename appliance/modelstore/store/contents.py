"""Where rows and blobs meet: content is published and removed on the writer thread only, so a row and its file
cannot part.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeVar

from sqlmodel import Session, col, or_, select

from appliance.clock import NS_PER_MS
from appliance.modelstore.store.blobs import Blobs, Staged
from appliance.modelstore.store.records import Changes, Records
from appliance.modelstore.store.tables import AssetRow, BlobRow, ModelRow, VariantRow

T = TypeVar("T")
KEPT_LOOK_NS = 100 * NS_PER_MS
OnRemoved = Callable[[Collection[str]], Awaitable[None]]


def used_contents(session: Session) -> set[str]:
    """Digests that some row needs."""
    variants = session.exec(select(VariantRow.content_sha256)).all()
    assets = session.exec(select(AssetRow.content_sha256)).all()
    return {sha256 for sha256 in (*variants, *assets) if sha256}


def drop_unused(session: Session, contents: Iterable[str]) -> list[str]:
    """Remove the rows of those contents that nothing uses; their files may go once this is committed."""
    session.flush()
    gone = sorted(set(contents) - used_contents(session))
    for sha256 in gone:
        if row := session.get(BlobRow, sha256):
            session.delete(row)
    return gone


def contents_of(session: Session, model_id: str) -> list[str]:
    """Digests of a model's variants and assets."""
    variants = session.exec(select(VariantRow.content_sha256).where(VariantRow.model_id == model_id)).all()
    assets = session.exec(select(AssetRow.content_sha256).where(AssetRow.model_id == model_id)).all()
    return sorted({sha256 for sha256 in (*variants, *assets) if sha256})


def bytes_by_content(session: Session, tenant: str) -> dict[str, int]:
    """Digest to bytes of what a tenant's models hold, each once."""
    models = select(ModelRow.id).where(ModelRow.tenant == tenant)
    variants = select(VariantRow.content_sha256).where(col(VariantRow.model_id).in_(models))
    assets = select(AssetRow.content_sha256).where(col(AssetRow.model_id).in_(models))
    held = select(BlobRow.sha256, BlobRow.size_bytes).where(
        or_(col(BlobRow.sha256).in_(variants), col(BlobRow.sha256).in_(assets))
    )
    return dict(session.exec(held).all())


class Contents:
    """Blobs under the protection of the writer thread."""

    def __init__(self, records: Records, blobs: Blobs, on_removed: OnRemoved | None = None) -> None:
        """`on_removed` is awaited with the digests of contents that have left the disk."""
        self._records = records
        self.blobs = blobs
        self._on_removed = on_removed

    async def write_with(self, staged: Collection[Staged], work: Callable[[Session], tuple[T, Changes]]) -> T:
        """Publish content and commit `work` in one step; when that fails, the content goes again.

        Raises: StorageFull.
        """
        now = self._records.clock.wall_now()

        def publish(session: Session) -> tuple[T, Changes]:
            for one in staged:
                self._publish(session, one, now)
            return work(session)

        try:
            return await self._records.write(publish)
        except BaseException:
            if staged:
                await asyncio.shield(self.remove_files([one.sha256 for one in staged], staged))
            raise

    def _publish(self, session: Session, staged: Staged, now: datetime.datetime) -> None:
        blob = self.blobs.publish(staged)
        if row := session.get(BlobRow, blob.sha256):
            row.modified_ns = blob.modified_ns
        else:
            session.add(
                BlobRow(sha256=blob.sha256, size_bytes=blob.size_bytes, modified_ns=blob.modified_ns, created_at=now)
            )
            session.flush()

    async def remove_files(self, contents: Collection[str], staged: Collection[Staged] = ()) -> None:
        """Remove content that has no row; on the writer thread, so that no import can publish the same content
        meanwhile. Waits while a backup keeps all contents.
        """

        def work(session: Session) -> list[str] | None:
            for one in staged:
                self.blobs.discard(one)
            gone = [sha256 for sha256 in contents if session.get(BlobRow, sha256) is None]
            return gone if self.blobs.remove(gone) else None

        if not contents and not staged:
            return
        clock = self._records.clock
        while (gone := await self._records.database.write(work)) is None:
            await clock.sleep_until_ns(clock.now_ns() + KEPT_LOOK_NS)
        if gone and self._on_removed is not None:
            await self._on_removed(gone)

    async def of_tenant(self, tenant: str) -> dict[str, int]:
        """Digest to bytes of what a tenant's models hold, each once."""
        return await self._records.read(lambda session: bytes_by_content(session, tenant))
