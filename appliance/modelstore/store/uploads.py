"""Uploads that arrive in pieces: spooled to the state folder, resumable after a broken connection, a restart or a
crash.

The spool `uploads/<id>` is the truth: its size is the offset. The database row carries what was announced. Memory stays
flat whatever the size: a piece is written in blocks of a MiB, in a thread, and synced before it is acknowledged.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sqlmodel import Session, col, func, select

from appliance.clock import NS_PER_S
from appliance.domain.errors import BadInput, IllegalState, OffsetMismatch, TooLarge, UnknownUpload
from appliance.domain.uploads import UploadRecord
from appliance.modelstore.store.disk import (
    CHUNK_BYTES,
    failed_disk_is_typed,
    full_disk_is_typed,
    hash_of,
    require_free,
    sync_folder,
)
from appliance.modelstore.store.records import PAGE, require_place
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.stored_bytes import Room
from appliance.modelstore.store.tables import UploadRow

IDLE = timedelta(hours=24)
RETRY_S = 60.0
"""Until when one of as many uploads as may be under way may have ended."""


class Uploads:
    """`create`, any number of `append`, then `finish` gives the path; the importer moves the file away, or `delete`
    drops it.
    """

    def __init__(self, store: Store, *, bytes_max: int, per_tenant_max: int = 64, idle: timedelta = IDLE) -> None:
        """`per_tenant_max` uploads of one tenant under way, `ALL_TENANTS` times as many of all."""
        self._per_tenant_max = per_tenant_max
        self.folder = store.state_dir / "uploads"
        self._store = store
        self._database = store.records.database
        self._clock = store.clock
        self._bytes_max = bytes_max
        self._idle = idle
        self._busy: set[str] = set()
        self._touched_ns: dict[str, int] = {}
        """When uploads were written to since the start, by the clock that nobody sets."""

    async def create(
        self, tenant: str, length: int | None = None, sha256: str | None = None, file_name: str = ""
    ) -> UploadRecord:
        """Begin an upload of `length` bytes (None: not known yet), whose SHA-256 in hex may be announced for the check
        at the end.

        Raises: UnknownTenant, TooLarge, QuotaExceeded, StorageFull, BadInput.
        """
        if sha256 is not None and (len(sha256) != 64 or not set(sha256.lower()) <= set("0123456789abcdef")):
            raise BadInput(reason="sha256 is 64 hexadecimal digits")
        if length is not None and length < 0:
            raise BadInput(reason="length is a number of bytes, 0 or more")
        if length is not None and length > self._bytes_max:
            raise TooLarge(what="the upload", limit_bytes=self._bytes_max)
        require_free(self.folder, length or 0, self._store.blobs.reserve_bytes)
        now = self._clock.wall_now()
        row = UploadRow(
            id=secrets.token_hex(12),
            tenant=tenant,
            length=length,
            sha256=None if sha256 is None else sha256.lower(),
            file_name=file_name[:255],
            created_at=now,
            updated_at=now,
        )

        def work(session: Session) -> UploadRecord:
            self._store.stored_bytes.require_in(session, tenant, length or 0)
            self._require_place(session, tenant)
            spool = self.folder / row.id
            with failed_disk_is_typed():
                spool.touch(mode=0o600, exist_ok=False)
                sync_folder(self.folder)
            session.add(row)
            return row.to_upload(0)

        with self._store.stored_bytes.announced(tenant, length or 0):
            record = await self._database.write(work)
        self._touched_ns[record.id] = self._clock.now_ns()
        return record

    async def upload(self, id: str) -> UploadRecord:
        """Where an upload stands. Raises: UnknownUpload."""
        return await self._database.read(lambda session: self._record(self._row(session, id)))

    async def uploads(self, tenant: str | None, after: str = "", limit: int = PAGE) -> list[UploadRecord]:
        """A tenant's uploads by id, those after `after`. None: of all tenants."""
        query = select(UploadRow).where(col(UploadRow.id) > after).order_by(col(UploadRow.id)).limit(limit)
        if tenant is not None:
            query = query.where(UploadRow.tenant == tenant)
        return await self._database.read(lambda session: [self._record(row) for row in session.exec(query)])

    async def append(self, id: str, offset: int, stream: AsyncIterator[bytes]) -> UploadRecord:
        """Write a piece that starts at `offset`. What arrived before the stream broke off is kept and synced.

        Raises: UnknownUpload, OffsetMismatch, IllegalState (another piece is being written), TooLarge, QuotaExceeded,
        StorageFull.
        """
        with self._claimed(id):
            record = await self.upload(id)
            if offset != record.offset:
                raise OffsetMismatch(name=id, expected_offset=record.offset)
            limit = self._bytes_max if record.length is None else record.length
            require_free(self.folder, 0, self._store.blobs.reserve_bytes)
            # An announced length was reserved when the upload began.
            room = await self._store.stored_bytes.room(record.tenant) if record.length is None else None
            try:
                await self._spool(id, offset, stream, limit, room)
            finally:
                self._store.stored_bytes.settle(id)
                await asyncio.shield(self._touch(id))
            return await self.upload(id)

    async def finish(self, id: str) -> Path:
        """Check length and digest; returns the spooled file, which stays until it is moved away or deleted.

        Raises: UnknownUpload, IllegalState (pieces are missing or being written), BadInput (other digest; the upload
        stays deletable).
        """
        with self._claimed(id):
            record = await self.upload(id)
            if not record.is_complete:
                raise IllegalState(name=id, state=f"incomplete: {record.offset} of {record.length} bytes are here")
            path = self.folder / id
            if record.sha256 is not None:
                found = await asyncio.to_thread(hash_of, path)
                if found != record.sha256:
                    raise BadInput(
                        reason=f"the uploaded bytes have SHA-256 {found}, announced was {record.sha256}; upload again"
                    )
            return path

    async def delete(self, id: str) -> None:
        """Forget an upload and its bytes, also after the importer has taken the file.

        Raises: UnknownUpload, IllegalState.
        """
        with self._claimed(id):
            await self._database.write(lambda session: session.delete(self._row(session, id)), frees=True)
            await self._remove([id])

    async def sweep(self) -> list[str]:
        """Delete uploads that were idle too long or whose file was taken; returns their ids.

        (Files without a row go at start.)
        """
        oldest = self._clock.wall_now() - self._idle
        oldest_ns = self._clock.now_ns() - int(self._idle.total_seconds() * NS_PER_S)
        # A clock that was set forward, as one without a battery is after its start, makes nothing old.
        self._touched_ns = {id: at_ns for id, at_ns in self._touched_ns.items() if at_ns >= oldest_ns}
        busy, recent = frozenset(self._busy), frozenset(self._touched_ns)

        def work(session: Session) -> list[str]:
            rows = session.exec(select(UploadRow)).all()
            stale = [
                row
                for row in rows
                if row.id not in busy
                and ((row.updated_at < oldest and row.id not in recent) or not (self.folder / row.id).exists())
            ]
            for row in stale:
                session.delete(row)
            return [row.id for row in stale]

        gone = await self._database.write(work, frees=True)
        await self._remove(gone)
        return gone

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _remove(self, ids: Sequence[str]) -> None:
        """Remove the files of uploads whose rows are gone: never before, or a crash between the two would lose what
        was acknowledged. What a crash leaves goes at the next start.
        """

        for id in ids:
            self._touched_ns.pop(id, None)

        def work() -> None:
            for id in ids:
                (self.folder / id).unlink(missing_ok=True)

        await asyncio.shield(asyncio.to_thread(work))

    async def _spool(self, id: str, offset: int, stream: AsyncIterator[bytes], limit: int, room: Room | None) -> None:
        """Write blocks as they come; what has arrived stays, also when the stream breaks off or the caller is
        cancelled.
        """
        spool = _Spool(self.folder / id, offset, self._store.blobs.reserve_bytes)
        pending, arrived = bytearray(), offset
        try:
            async for block in stream:
                arrived += len(block)
                if arrived > limit:
                    raise TooLarge(what=f"upload {id!r}", limit_bytes=limit)
                if room is not None:
                    room.take(id, len(block), arrived)
                pending += block
                if len(pending) >= CHUNK_BYTES:
                    full, pending = pending, bytearray()
                    await _to_the_end(spool.write, full)
        finally:
            await _to_the_end(spool.close, pending)

    async def _touch(self, id: str) -> None:
        """Put off the expiry."""
        now = self._clock.wall_now()
        self._touched_ns[id] = self._clock.now_ns()

        def work(session: Session) -> None:
            if row := session.get(UploadRow, id):
                row.updated_at = now

        await self._database.write(work)

    @contextmanager
    def _claimed(self, id: str) -> Iterator[None]:
        """One writer at a time. Raises: IllegalState."""
        if id in self._busy:
            raise IllegalState(name=id, state="being written by another request")
        self._busy.add(id)
        try:
            yield
        finally:
            self._busy.discard(id)

    def _require_place(self, session: Session, tenant: str) -> None:
        """Raises: QuotaExceeded."""
        counted = select(func.count()).select_from(UploadRow)
        of_tenant = session.exec(counted.where(UploadRow.tenant == tenant)).one()
        of_all = session.exec(counted).one()
        require_place(tenant, "uploads under way", self._per_tenant_max, of_tenant, of_all, RETRY_S)

    def _row(self, session: Session, id: str) -> UploadRow:
        row = session.get(UploadRow, id)
        if row is None:
            raise UnknownUpload(name=id)
        return row

    def _record(self, row: UploadRow) -> UploadRecord:
        spool = self.folder / row.id
        return row.to_upload(spool.stat().st_size if spool.exists() else 0)


class _Spool:
    """A spooled file open for writing at its end. Blocking: its methods run in threads, one at a time."""

    def __init__(self, path: Path, offset: int, reserve_bytes: int) -> None:
        """`reserve_bytes` of the disk stay free, whatever was announced."""
        self._folder = path.parent
        self._descriptor = os.open(path, os.O_WRONLY)
        self._offset = offset
        self._reserve_bytes = reserve_bytes

    def write(self, block: bytearray) -> None:
        """Raises: StorageFull; what fitted is kept."""
        if block:
            require_free(self._folder, len(block), self._reserve_bytes)
        rest = memoryview(block)
        with full_disk_is_typed():
            while rest:
                count = os.pwrite(self._descriptor, rest, self._offset)
                self._offset += count
                rest = rest[count:]

    def close(self, block: bytearray) -> None:
        """Write the last block, sync and close. Raises: StorageFull."""
        try:
            self.write(block)
        finally:
            try:
                with full_disk_is_typed():
                    os.fsync(self._descriptor)
            finally:
                os.close(self._descriptor)


async def _to_the_end(function: Callable[[bytearray], None], block: bytearray) -> None:
    """Run in a thread and wait for it even when cancelled, so that no two blocks are ever written at once."""
    task = asyncio.ensure_future(asyncio.to_thread(function, block))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
