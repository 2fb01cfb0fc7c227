"""The store: one state folder with its database and content, opened by exactly one process.

`Store` joins the nouns of this package (tenants, keys, models, variants, applications, jobs, uploads, decisions). Methods are async and hop to the
writer thread or a reader thread; values are those of `appliance.domain`. Opening migrates the database, finishes deletions that a crash
interrupted, quarantines damaged content and sweeps orphans. Nothing here is on the inference path.
"""

import asyncio
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sqlmodel import Session, col, select

from appliance.clock import Clock
from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import DEFAULT_TENANT, Application, Model, Tenant
from appliance.domain.errors import InUse, QuotaExceeded
from appliance.domain.states import VariantState
from appliance.log import get as get_log
from appliance.modelstore.store.applications import Applications
from appliance.modelstore.store.blobs import Blobs
from appliance.modelstore.store.contents import drop_unused
from appliance.modelstore.store.database import Database
from appliance.modelstore.store.decisions import Decisions
from appliance.modelstore.store.disk import keep_only
from appliance.modelstore.store.imports import Imports
from appliance.modelstore.store.jobs import UNFINISHED
from appliance.modelstore.store.migrations import migrate
from appliance.modelstore.store.models import load_models, remove_model
from appliance.modelstore.store.repository import Change
from appliance.modelstore.store.tables import (
    ApplicationRow,
    AssetRow,
    BlobRow,
    JobRow,
    KeyRow,
    ModelRow,
    ResidentRow,
    TenantRow,
    UploadRow,
    VariantRow,
)
from appliance.modelstore.store.tenants import Tenants

__all__ = ["Change", "Snapshot", "Store"]

log = get_log("store")
DATABASE = "appliance.db"
FOLDERS = ("blobs", "uploads", "prepared", "scratch", "quarantine")
RESERVE_BYTES = 64 * 2**20


class Snapshot(NamedTuple):
    """Everything the inference path needs to know, at one instant."""

    tenants: list[Tenant]
    models: list[Model]
    applications: list[Application]
    keys: list[KeyRecord]


class Store(Tenants, Applications, Imports, Decisions):
    """See the module. Made by `open`, ended by `close`."""

    state_dir: Path
    _lock: int

    @classmethod
    def open(cls, state_dir: Path, clock: Clock, *, reserve_bytes: int = RESERVE_BYTES) -> "Store":
        """Open or make the state folder; blocks. `reserve_bytes` of the disk are left free by blobs and uploads.

        Raises: InUse when another process has it open, StorageFull.
        """
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _locked(state_dir)
        for name in FOLDERS:
            (state_dir / name).mkdir(exist_ok=True, mode=0o700)
        migrate(state_dir / DATABASE)
        blobs = Blobs(state_dir / "blobs", state_dir / "quarantine", reserve_bytes)
        store = cls(Database(state_dir / DATABASE), clock, blobs)
        store.state_dir, store._lock = state_dir, lock
        store._recover()
        return store

    def close(self) -> None:
        """Wait for writes under way, then let go of the folder."""
        self.database.close()
        os.close(self._lock)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let damage that a loader thread finds be recorded by way of the event loop."""

        def on_damaged(sha256: str) -> None:
            log.error("content damaged", sha256=sha256)
            asyncio.run_coroutine_threadsafe(
                self.fail_content(sha256, "its content on disk is damaged; upload it again"), loop
            )

        self.blobs.on_damaged = on_damaged

    async def snapshot(self) -> Snapshot:
        """All tenants, models, applications and keys, as of one instant."""

        def work(session: Session) -> Snapshot:
            rows = session.exec(select(ModelRow).where(col(ModelRow.deleted_at).is_(None)).order_by(col(ModelRow.id)))
            return Snapshot(
                [row.to_tenant() for row in session.exec(select(TenantRow).order_by(col(TenantRow.name)))],
                load_models(session, rows),
                [row.to_application() for row in session.exec(select(ApplicationRow).order_by(col(ApplicationRow.id)))],
                [row.to_key() for row in session.exec(select(KeyRow).order_by(col(KeyRow.id)))],
            )

        return await self._read(work)

    async def stored_bytes(self, tenant: str) -> int:
        """Bytes of a tenant's contents, each counted once, and of its uploads under way (what was announced counts in full)."""

        query = select(UploadRow.id, UploadRow.length).where(UploadRow.tenant == tenant)
        uploads = await self._read(lambda session: list(session.exec(query)))
        stored = sum((await self.content_rows(tenant)).values())
        for id, length in uploads:
            spool = self.state_dir / "uploads" / id
            if spool.exists():
                stored += max(length or 0, spool.stat().st_size)
        return stored

    async def require_quota(self, tenant: str, more_bytes: int) -> None:
        """Raises: UnknownTenant; QuotaExceeded when `more_bytes` beside what the tenant has stored are too much."""
        quota = (await self.tenant(tenant)).quota.stored_bytes
        if quota is not None and await self.stored_bytes(tenant) + more_bytes > quota:
            raise QuotaExceeded(tenant=tenant, quota="stored_bytes")

    async def is_upload(self, path: Path) -> bool:
        """Whether a file is the spool of an upload, whose bytes `stored_bytes` counts already."""
        if path.parent != self.state_dir / "uploads":
            return False
        return await self._read(lambda session: session.get(UploadRow, path.name) is not None)

    async def save_resident(self, build_ids: Sequence[str]) -> None:
        """Remember what is in memory, most wanted first."""

        def work(session: Session) -> None:
            for row in session.exec(select(ResidentRow)):
                session.delete(row)
            session.flush()
            session.add_all(ResidentRow(position=at, build_id=build_id) for at, build_id in enumerate(build_ids))

        await self.database.write(work)

    async def resident(self) -> list[str]:
        """What was in memory when it was last saved."""
        return await self._read(
            lambda session: list(session.exec(select(ResidentRow.build_id).order_by(col(ResidentRow.position))))
        )

    # -- start ---------------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        self.database.write_blocking(self._ensure_default_tenant)
        self.database.write_blocking(_finish_deletions)
        self.database.write_blocking(_drop_unused_rows)
        self.database.write_blocking(self._check_contents)
        referenced = self.database.write_blocking(lambda session: list(session.exec(select(BlobRow.sha256))))
        unfinished = select(JobRow.id).where(col(JobRow.state).in_(UNFINISHED))
        jobs = self.database.write_blocking(lambda session: session.exec(unfinished).all())
        keep_only(self.state_dir / "scratch", jobs)
        uploads = self.database.write_blocking(lambda session: session.exec(select(UploadRow.id)).all())
        keep_only(self.state_dir / "uploads", uploads)
        orphans = self.blobs.sweep(referenced)
        if orphans:
            log.info("orphans swept", count=len(orphans))

    def _ensure_default_tenant(self, session: Session) -> None:
        if session.get(TenantRow, DEFAULT_TENANT) is None:
            tenant = Tenant(DEFAULT_TENANT)
            session.add(TenantRow(name=tenant.name, quota=tenant.quota, created_at=self.clock.wall_now()))

    def _check_contents(self, session: Session) -> None:
        """Quarantine what is not as recorded, and mark the variants that need it."""
        for blob in session.exec(select(BlobRow)).all():
            problem = self.blobs.problem(blob.sha256, blob.size_bytes, blob.modified_ns)
            if not problem:
                blob.modified_ns = self.blobs.modified_ns(blob.sha256)
                continue
            log.error("content quarantined", sha256=blob.sha256, reason=problem)
            self.blobs.put_away(blob.sha256)
            for row in session.exec(select(VariantRow).where(VariantRow.content_sha256 == blob.sha256)).all():
                row.state, row.content_sha256 = VariantState.FAILED.value, None
                row.reason = f"{problem}; upload it again"
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


def _locked(state_dir: Path) -> int:
    """Raises: InUse."""
    lock = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InUse(name=str(state_dir)) from None
    return lock
