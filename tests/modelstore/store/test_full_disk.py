"""On a full disk what frees space still works, and nothing goes before its row does; a folder that cannot be used is
told in a sentence.
"""

import contextlib
import datetime
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from appliance.api.http.forms import received_form
from appliance.clock import SystemClock
from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import Application, Quota, Tenant
from appliance.domain.errors import QuotaExceeded, StorageBusy, StorageFailed, StorageFull, UnknownUpload
from appliance.modelstore.importing.deletion import ModelDeletion
from appliance.modelstore.store.backup import back_up, unheard
from appliance.modelstore.store.pending_restore import FOLDER
from appliance.modelstore.store.records import ChangeFeed
from appliance.modelstore.store.restoring import _stage
from appliance.modelstore.store.state_folder import StateFolder
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.uploads import Uploads
from tests.modelstore.boxes import MIB, stored_model, stream

pytestmark = pytest.mark.anyio

NOW = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)
HELD = 4 * MIB
DISK = 12


@pytest.fixture
def disk_mib() -> int:
    return DISK


@contextlib.contextmanager
def opened(path: Path, reserve_bytes: int = 0) -> Iterator[Store]:
    store = Store(StateFolder.open(path, reserve_bytes=reserve_bytes, held_bytes=HELD), SystemClock(), ChangeFeed())
    try:
        store.recover()
        yield store
    finally:
        store.close()


def fill(folder: Path) -> None:
    """Take the last byte."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"f" * 4096)
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(b"f")


async def furnish(store: Store, folder: Path) -> str:
    """One of everything that can be taken back; returns the id of the upload."""
    await store.tenants.create(Tenant("harbour"))
    for number in range(50):
        await store.keys.create(KeyRecord(f"k{number}", "harbour", Role.TENANT, bytes([number]) * 32, NOW))
    await stored_model(store, folder)
    await store.applications.create(Application("default/door", "default", "door", "default/m"))
    uploads = Uploads(store, bytes_max=64 * MIB)
    upload = await uploads.create("default", 100)
    await uploads.append(upload.id, 0, stream(b"u" * 100))
    return upload.id


@pytest.mark.parametrize("length", [None, 4 * MIB], ids=["of unknown length", "announced"])
async def test_upload_stops_before_disk_reserve(small_disk: Path, length: int | None) -> None:
    """Bytes are looked at as they come: what is left is there for the database and for others."""
    reserve_bytes = 2 * MIB
    with opened(small_disk / "state", reserve_bytes) as store:
        uploads = Uploads(store, bytes_max=64 * MIB)
        record = await uploads.create("default", length)
        (small_disk / "other").write_bytes(bytes(3 * MIB))  # somebody else's, after it was announced
        with pytest.raises(StorageFull):
            await uploads.append(record.id, 0, stream(*[bytes(65536)] * 112))
        assert shutil.disk_usage(small_disk).free >= reserve_bytes
        await store.tenants.create(Tenant("harbour"))
        (small_disk / "other").unlink()
        record = await uploads.upload(record.id)
        await uploads.append(record.id, record.offset, stream(bytes(65536)))


async def test_refusal_for_want_of_disk_names_free_needed_and_reserved_bytes(tmp_path: Path) -> None:
    """A disk that is not full may still be refused: the figures say why. Waiting does not help."""
    reserve_bytes = shutil.disk_usage(tmp_path).total
    with opened(tmp_path / "state", reserve_bytes) as store:
        with pytest.raises(StorageFull) as refused:
            await Uploads(store, bytes_max=64 * MIB).create("default", 3_000_000)
        error = refused.value
        assert (error.need_bytes, error.reserve_bytes, error.retry_after_s) == (3_000_000, reserve_bytes, None)
        assert 0 < (error.free_bytes or 0) < reserve_bytes
        assert f"{reserve_bytes / 1e6:.1f} MB must stay free, and this needs 3.0 MB" in str(error)


async def test_form_upload_stops_before_disk_reserve(small_disk: Path) -> None:
    """Nothing of the upload stays; where there is no reserve the full disk itself is told in the same words."""

    async def receive() -> dict[str, Any]:
        head = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        return {"type": "http.request", "body": head + bytes((DISK + 1) * MIB) + b"\r\n--xyz--\r\n", "more_body": False}

    headers = [(b"content-type", b"multipart/form-data; boundary=xyz")]
    for reserve_bytes in (2 * MIB, 0):
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)
        with pytest.raises(StorageFull):
            async with received_form(request, small_disk, 64 * MIB, reserve_bytes):
                pass
        assert os.listdir(small_disk) == []


async def test_tenant_without_quota_may_store_half_of_disk(small_disk: Path) -> None:
    """While there are others; alone the tenant has all of it, and a quota of its own goes before."""
    with opened(small_disk / "state") as store:
        require = store.stored_bytes.require
        await require("default", DISK * MIB)
        await store.tenants.create(Tenant("harbour"))
        for tenant in ("default", "harbour"):
            await require(tenant, DISK * MIB // 2)
            with pytest.raises(QuotaExceeded):
                await require(tenant, DISK * MIB // 2 + 1)
        await store.tenants.create(Tenant("museum", Quota(stored_bytes=DISK * MIB)))
        await require("museum", DISK * MIB)


async def forever(store: Store) -> None:
    """Write until the disk has no room for a write."""
    for number in range(100_000):
        await store.tenants.create(Tenant(f"t{number}"))


async def test_deletions_work_on_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """Keys, uploads, applications, models and tenants go although no other write does, also when the log of the
    database is as short as it can be; afterwards the space is held again.
    """
    with opened(small_disk / "state") as store:
        upload = await furnish(store, tmp_path)
        assert (small_disk / "state" / "reserve").stat().st_size == HELD
        with contextlib.closing(sqlite3.connect(small_disk / "state" / "appliance.db")) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(small_disk)
        with pytest.raises(StorageFull):
            await forever(store)
        for number in range(50):
            await store.keys.revoke(f"k{number}")
        uploads = Uploads(store, bytes_max=64 * MIB)
        await uploads.delete(upload)
        await store.applications.delete("default/door")
        await ModelDeletion(store.models, []).delete("default/m")
        await store.tenants.delete("harbour")
        assert not (small_disk / "state" / "reserve").exists()
        assert list((small_disk / "state" / "uploads").iterdir()) == []
        (small_disk / "filler").unlink()
        await store.tenants.create(Tenant("museum"))
        assert (small_disk / "state" / "reserve").stat().st_size == HELD
    with opened(small_disk / "state") as store:
        snapshot = await store.snapshot()
        assert (snapshot.keys, snapshot.models, snapshot.applications) == ([], [], [])


async def test_store_opens_on_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """After a power cut, so that an operator can make room."""
    with opened(small_disk / "state") as store:
        await furnish(store, tmp_path)
    fill(small_disk)
    with opened(small_disk / "state") as store:
        await store.keys.revoke("k1")
        assert len(await store.keys.all()) == 49


async def test_staged_restore_is_applied_on_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """After a kill, with changes that are in the log of the database only, in the room that is held for such."""
    with opened(tmp_path / "other") as store:
        await stored_model(store, tmp_path)
    back_up(tmp_path / "other", tmp_path / "box.tar", NOW)
    with opened(small_disk / "state") as store:
        for number in range(50):
            await store.keys.create(KeyRecord(f"k{number}", "default", Role.ADMIN, bytes([number]) * 32, NOW))
        with pytest.raises(StorageFull):  # of 12 MiB none would be left
            _stage(tmp_path / "box.tar", small_disk / "state", unheard)
        killed = shutil.copytree(small_disk / "state", small_disk / "killed", ignore=shutil.ignore_patterns("*-shm"))
    assert (killed / "appliance.db-wal").stat().st_size > 0
    shutil.rmtree(small_disk / "state")
    with opened(tmp_path / "empty"):
        _stage(tmp_path / "box.tar", tmp_path / "empty", unheard)
    shutil.copytree(tmp_path / "empty" / FOLDER, killed / FOLDER)
    fill(small_disk)
    with opened(killed) as store:
        assert [one.name for one in (await store.snapshot()).models] == ["m"]


async def test_upload_file_is_kept_when_deletion_of_row_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that the database refuses leaves the upload as it was acknowledged, with its bytes."""
    monkeypatch.setattr("appliance.modelstore.store.database.BUSY_TIMEOUT_MS", 50)
    with opened(tmp_path / "state") as store:
        uploads = Uploads(store, bytes_max=MIB)
        upload = await uploads.create("default", 10)
        await uploads.append(upload.id, 0, stream(b"0123456789"))
        with contextlib.closing(sqlite3.connect(tmp_path / "state" / "appliance.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageBusy):
                await uploads.delete(upload.id)
            other.execute("ROLLBACK")
        assert (await uploads.upload(upload.id)).offset == 10
        await uploads.delete(upload.id)
        with pytest.raises(UnknownUpload):
            await uploads.upload(upload.id)
        assert list((tmp_path / "state" / "uploads").iterdir()) == []


@pytest.mark.parametrize("body", [b"this is no database" * 1000, b"SQLite format 3\0" + b"\xff" * 8000])
def test_state_folder_with_invalid_database_is_refused_with_advice(tmp_path: Path, body: bytes) -> None:
    """Opening says what is wrong and what to do, and lets go of the folder."""
    with opened(tmp_path / "state"):
        pass
    (tmp_path / "state" / "appliance.db").write_bytes(body)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="appliance restore"), opened(tmp_path / "state"):
            pass


def test_read_only_state_folder_is_refused_with_reason(small_disk: Path) -> None:
    """A small_disk that the system has put read-only after an error."""
    with opened(small_disk / "state"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageFailed, match="may write to it"), opened(small_disk / "state"):
        pass


async def test_state_folder_is_readable_by_owner_alone(tmp_path: Path) -> None:
    """Whatever modes the folder and its files had before, and whatever is written while the box runs."""
    state = tmp_path / "state"
    (state / "blobs" / "ab").mkdir(parents=True)
    (state / "admin.key").write_text("secret")
    for path in (state, state / "blobs", state / "blobs" / "ab"):
        path.chmod(0o777)
    (state / "admin.key").chmod(0o666)
    with opened(state) as store:
        await furnish(store, tmp_path)
        for path in (state, *state.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode & 0o077 == 0, f"{path}: {mode:o}"
