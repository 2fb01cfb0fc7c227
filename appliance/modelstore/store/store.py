"""The store: one state folder with its database and content, opened by exactly one process.

`Store` holds the nouns of this package: `store.tenants`, `store.models`, `store.jobs` and so on. Their methods are
async and hop to the writer thread or a reader thread; values are those of `appliance.domain`. Nothing here is on the
inference path.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from sqlmodel import Session, col, select

from appliance.clock import Clock
from appliance.domain.catalogue import DEFAULT_TENANT, Tenant
from appliance.domain.errors import ContentDamaged, LoadFailed
from appliance.log import get as get_log
from appliance.modelstore.store.applications import Applications
from appliance.modelstore.store.audit import Audit
from appliance.modelstore.store.contents import Contents, OnRemoved, drop_unused
from appliance.modelstore.store.decisions import Decisions
from appliance.modelstore.store.disk import keep_only
from appliance.modelstore.store.imports import Imports
from appliance.modelstore.store.jobs import UNFINISHED, Jobs
from appliance.modelstore.store.keys import Keys
from appliance.modelstore.store.models import Models, load_models, mark_damaged, remove_model
from appliance.modelstore.store.pipelines import PER_TENANT_MAX, StoredPipelines
from appliance.modelstore.store.receivers import Receivers
from appliance.modelstore.store.records import Change, ChangeFeed, Records
from appliance.modelstore.store.residents import Residents
from appliance.modelstore.store.seen import Seen
from appliance.modelstore.store.sessions import StoredSessions
from appliance.modelstore.store.snapshot import Snapshot
from appliance.modelstore.store.state_folder import RESERVE_BYTES, StateFolder
from appliance.modelstore.store.stored_bytes import StoredBytes
from appliance.modelstore.store.tables import (
    ApplicationRow,
    AssetRow,
    BlobRow,
    JobRow,
    KeyRow,
    ModelRow,
    PipelineRow,
    TenantRow,
    UploadRow,
    VariantRow,
)
from appliance.modelstore.store.tenants import Tenants

__all__ = ["Change", "ChangeFeed", "Snapshot", "Store"]

log = get_log("store")
IsServed = Callable[[str], bool]
"""Whether a content that is damaged has a sound prepared form to serve from; blocks."""


class Store:
    """The nouns over one state folder. `recover` comes first; `close` ends it."""

    def __init__(
        self,
        folder: StateFolder,
        clock: Clock,
        feed: ChangeFeed,
        on_removed: OnRemoved | None = None,
        keys_per_tenant_max: int = 1000,
        audit_rows_max: int = 10_000,
    ) -> None:
        """`feed` is told of every committed change; `on_removed` is awaited with digests whose files have left the
        disk.
        """
        self._folder = folder
        self._records = Records(folder.database, clock, feed, audit_rows_max)
        self.feed = feed
        self.blobs = folder.blobs
        contents = Contents(self._records, folder.blobs, on_removed)
        self.tenants = Tenants(self._records)
        self.keys = Keys(self._records, keys_per_tenant_max)
        self.receivers = Receivers(self._records)
        self.applications = Applications(self._records)
        self.pipelines = StoredPipelines(self._records, PER_TENANT_MAX)
        self.models = Models(self._records, contents)
        self.imports = Imports(self._records, contents)
        self.jobs = Jobs(self._records)
        self.decisions = Decisions(self._records)
        self.audit = Audit(self._records, audit_rows_max)
        self.residents = Residents(self._records)
        self.seen = Seen(self._records)
        self.sessions = StoredSessions(self._records)
        self.stored_bytes = StoredBytes(self._records, folder.path / "uploads")

    @classmethod
    def open(cls, state_dir: Path, clock: Clock, *, reserve_bytes: int = RESERVE_BYTES) -> "Store":
        """A store that is alone with its folder, recovered; blocks.

        Raises: InUse when another process has it open, StorageFull.
        """
        store = cls(StateFolder.open(state_dir, reserve_bytes=reserve_bytes), clock, ChangeFeed())
        store.recover()
        return store

    @property
    def state_dir(self) -> Path:
        return self._folder.path

    @property
    def records(self) -> Records:
        """For the nouns that stand beside it."""
        return self._records

    @property
    def clock(self) -> Clock:
        return self._records.clock

    def close(self) -> None:
        """Wait for writes under way, then let go of the folder."""
        self._folder.close()

    async def snapshot(self) -> Snapshot:
        """All tenants, models, applications, keys and pipelines, as of one instant."""

        def work(session: Session) -> Snapshot:
            rows = session.exec(select(ModelRow).where(col(ModelRow.deleted_at).is_(None)).order_by(col(ModelRow.id)))
            return Snapshot(
                [row.to_tenant() for row in session.exec(select(TenantRow).order_by(col(TenantRow.name)))],
                load_models(session, rows),
                [row.to_application() for row in session.exec(select(ApplicationRow).order_by(col(ApplicationRow.id)))],
                [row.to_key() for row in session.exec(select(KeyRow).order_by(col(KeyRow.id)))],
                [row.to_pipeline() for row in session.exec(select(PipelineRow).order_by(col(PipelineRow.id)))],
            )

        return await self._records.read(work)

    async def check(self) -> str:
        """`ok`, or what is wrong with the database; reads all of it."""
        return await self._records.read(
            lambda session: str(session.connection().exec_driver_sql("PRAGMA quick_check(1)").scalar())
        )

    # -- start ---------------------------------------------------------------------------------------------------------

    async def check_contents(self, is_served: IsServed) -> None:
        """Read all contents, and put away what is damaged, as at the start."""
        for sha256 in await self._records.read(lambda session: list(session.exec(select(BlobRow.sha256)))):
            try:
                await asyncio.to_thread(self.blobs.check, sha256)
            except ContentDamaged as damage:
                log.error("content quarantined", sha256=sha256, reason=damage.reason)
                has_form = await asyncio.to_thread(is_served, sha256)
                await self.models.mark_damaged(sha256, damage.reason, has_form=has_form)
            except LoadFailed as failure:
                log.warning("content cannot be read", sha256=sha256, reason=failure.reason)

    def recover(self, is_served: IsServed = lambda sha256: False) -> None:
        """Finish deletions that a crash interrupted, put damaged content away, sweep orphans; before anything else,
        blocks. `is_served`: whether a content that is damaged has a sound prepared form.
        """
        self._records.database.write_blocking(self._ensure_default_tenant)
        self._records.database.write_blocking(_finish_deletions)
        self._records.database.write_blocking(_drop_unused_rows)
        self._records.database.write_blocking(lambda session: self._check_contents(session, is_served))
        referenced = self._records.database.write_blocking(lambda session: list(session.exec(select(BlobRow.sha256))))
        unfinished = select(JobRow.id).where(col(JobRow.state).in_(UNFINISHED))
        jobs = self._records.database.write_blocking(lambda session: session.exec(unfinished).all())
        keep_only(self.state_dir / "scratch", jobs)
        uploads = self._records.database.write_blocking(lambda session: session.exec(select(UploadRow.id)).all())
        keep_only(self.state_dir / "uploads", uploads)
        orphans = self.blobs.sweep(referenced)
        if orphans:
            log.info("orphans swept", count=len(orphans))

    def _ensure_default_tenant(self, session: Session) -> None:
        if session.get(TenantRow, DEFAULT_TENANT) is None:
            tenant = Tenant(DEFAULT_TENANT)
            session.add(TenantRow(name=tenant.name, quota=tenant.quota, created_at=self._records.clock.wall_now()))

    def _check_contents(self, session: Session, is_served: IsServed) -> None:
        """Quarantine what is not as recorded, and mark the variants that need it; they serve on where they can."""
        for blob in session.exec(select(BlobRow)).all():
            problem = self.blobs.problem(blob.sha256, blob.size_bytes, blob.modified_ns)
            if not problem:
                blob.modified_ns = self.blobs.modified_ns(blob.sha256)
                continue
            log.error("content quarantined", sha256=blob.sha256, reason=problem)
            self.blobs.put_away(blob.sha256)
            has_form = is_served(blob.sha256)
            mark_damaged(session, blob.sha256, problem, has_form=has_form)
            if has_form:
                continue
            for row in session.exec(select(VariantRow).where(VariantRow.content_sha256 == blob.sha256)).all():
                row.content_sha256 = None
            for asset in session.exec(select(AssetRow).where(AssetRow.content_sha256 == blob.sha256)).all():
                session.delete(asset)
            session.flush()
            session.delete(blob)


def _drop_unused_rows(session: Session) -> None:
    drop_unused(session, session.exec(select(BlobRow.sha256)).all())


def _finish_deletions(session: Session) -> None:
    """Deletions that were acknowledged before a crash; the files are swept afterwards."""
    for id in session.exec(select(ModelRow.id).where(col(ModelRow.deleted_at).is_not(None))).all():
        remove_model(session, id)
