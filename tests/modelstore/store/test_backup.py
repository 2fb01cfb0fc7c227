"""A backup taken beside a running box gives the same box again, or says what is wrong with it."""

import asyncio
import contextlib
import datetime
import hashlib
import io
import json
import os
import sqlite3
import stat
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.clock import SystemClock
from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import Model, Tenant
from appliance.domain.errors import AlreadyExists, BadArchive, LoadFailed, NotFound, StorageFull
from appliance.domain.states import JobState
from appliance.modelstore.store import backup as backup_module
from appliance.modelstore.store.backup import back_up, extract, restore, whole_percents
from appliance.modelstore.store.backups import Backups
from appliance.modelstore.store.blobs import all_kept
from tests.modelstore.boxes import MIB, Parts, parts, stored_model, stored_variant, stream

pytestmark = pytest.mark.anyio

NOW = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)
Members = list[tuple[tarfile.TarInfo, bytes]]


def _files(model: Model) -> list[tuple[str, str]]:
    """Names and contents of a model's variants."""
    return [(variant.name, variant.content_sha256) for variant in model.variants]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with a bit of everything."""
    folder = tmp_path / "state"

    async def fill() -> None:
        async with parts(folder, runs=False) as box:
            await box.store.tenants.create(Tenant("harbour"))
            await box.store.keys.create(KeyRecord("k", "harbour", Role.DEVICE, b"x" * 32, NOW))
            await stored_model(box.store, tmp_path, body=b"weights" * 1000)
            await stored_variant(box.store, tmp_path, "default/m", "int8", b"small")
            upload = await box.uploads.create("default")
            await box.uploads.append(upload.id, 0, stream(b"under way"))

    asyncio.run(fill())
    (folder / "admin.key").write_text("secret")
    (folder / "tls").mkdir()
    (folder / "tls" / "cert.pem").write_text("certificate")
    return folder


@pytest.fixture
def archive(state: Path) -> Path:
    """A backup of `state`."""
    made = state.with_name("box.tar")
    back_up(state, made, NOW)
    return made


def members_of(archive: Path) -> Members:
    with tarfile.open(archive) as tar:
        read = [(info, tar.extractfile(info)) for info in tar]
        return [(info, stream.read() if stream else b"") for info, stream in read]


def rewrite(archive: Path, change: Callable[[Members], Members]) -> None:
    members = change(members_of(archive))
    with tarfile.open(archive, "w") as tar:
        for info, body in members:
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))


@pytest.mark.usefixtures("processes")
async def test_backup_restores_equal_state(state: Path, tmp_path: Path) -> None:
    """Catalogue, keys, contents and secrets; uploads and imports under way end with a clear word."""
    again, archive = tmp_path / "again", tmp_path / "box.tar"
    async with parts(state, runs=False) as box:  # it runs meanwhile
        before = await box.store.snapshot()
        made = await asyncio.to_thread(back_up, state, archive, NOW)
        assert (made.models, made.tenants, made.contents, made.created_at) == (1, 2, 2, NOW)
        assert list((state / "scratch").iterdir()) == []
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert restore(archive, again) == made
    async with parts(again) as box:
        assert await box.store.snapshot() == before
        for variant in before.models[0].variants:
            assert box.store.blobs.path(variant.content_sha256).exists()
        assert await box.uploads.sweep() != []
        assert (await box.ended("job-default-m")).state is JobState.FAILED
        # Its variants may be measured anew by now, on this machine; they are the same files.
        assert _files(await box.store.models.get("default/m")) == _files(before.models[0])
    assert (again / "admin.key").read_text() == "secret"
    assert stat.S_IMODE((again / "admin.key").stat().st_mode) == 0o600
    assert (again / "tls" / "cert.pem").read_text() == "certificate"


async def test_backup_is_consistent_while_models_come_and_go(box: Parts, tmp_path: Path) -> None:
    """Five backups, while models are made and deleted all the time."""
    is_over = asyncio.Event()

    async def churn() -> None:
        number = 0
        while not is_over.is_set():
            await stored_model(box.store, tmp_path, f"m{number}", str(number).encode() * 1000)
            if number > 2:
                await box.deletion.delete(f"default/m{number - 2}")
            number += 1

    task = asyncio.create_task(churn())
    for number in range(5):
        await asyncio.to_thread(back_up, box.store.state_dir, tmp_path / f"{number}.tar", NOW)
    is_over.set()
    await task
    for number in range(5):
        restore(tmp_path / f"{number}.tar", tmp_path / f"state-{number}")
        async with parts(tmp_path / f"state-{number}", runs=False) as restored:
            for model in (await restored.store.snapshot()).models:
                for variant in model.variants:
                    assert variant.servable
                    assert restored.store.blobs.path(variant.content_sha256).exists()


async def test_model_deletion_keeps_contents_while_backup_runs(box: Parts, tmp_path: Path) -> None:
    """The rows go at once, and the files when the backup is over."""
    variant = await stored_model(box.store, tmp_path)
    with all_kept(box.store.blobs.folder):
        deleting = asyncio.create_task(box.deletion.delete("default/m"))
        while (await box.store.snapshot()).models:
            await box.clock.sleep_until_ns(box.clock.now_ns() + 1_000_000)
        assert box.store.blobs.path(variant.content_sha256).exists()
        assert not deleting.done()
    await deleting
    with pytest.raises(LoadFailed):
        box.store.blobs.path(variant.content_sha256)


@pytest.mark.parametrize(
    ("body", "reason"), [(None, "is missing; delete the models"), (b"smalL", "damaged")], ids=["missing", "flipped bit"]
)
def test_backup_of_lost_or_damaged_content_is_refused(
    state: Path, tmp_path: Path, body: bytes | None, reason: str
) -> None:
    """Found while the state folder is read, instead of being carried into every later backup."""
    victim = next(path for path in (state / "blobs").glob("*/*") if path.stat().st_size == 5)
    victim.unlink() if body is None else victim.write_bytes(body)
    with pytest.raises(BadArchive, match=reason):
        back_up(state, tmp_path / "box.tar", NOW)
    assert not (tmp_path / "box.tar").exists()


async def test_backup_reports_progress_at_every_megabyte(box: Parts, tmp_path: Path) -> None:
    """So that the work can be ended; at most a hundred reports are passed on."""
    await stored_model(box.store, tmp_path, body=bytes(20 * MIB))
    blocks: list[int] = []
    percents: list[int] = []
    tell = whole_percents(percents.append)

    def told(done_bytes: int, all_bytes: int) -> None:
        blocks.append(done_bytes)
        tell(done_bytes, all_bytes)
        tell(done_bytes, all_bytes)

    back_up(box.store.state_dir, tmp_path / "box.tar", NOW, told=told)
    assert 40 < len(blocks) < 60  # all is read twice
    assert percents == sorted(set(percents))
    assert percents[-1] == 100


@pytest.mark.parametrize("steps", [1, 10**9], ids=["in the database", "in its contents"])
def test_backup_check_can_be_cancelled_after_unpacking(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """When the unpacked files are looked at."""
    monkeypatch.setattr(backup_module, "_STEPS", steps)
    (tmp_path / "part").mkdir()
    is_unpacked = False

    def told(done_bytes: int, all_bytes: int) -> None:
        nonlocal is_unpacked
        if is_unpacked:
            raise InterruptedError
        is_unpacked = done_bytes == all_bytes

    with pytest.raises(InterruptedError):
        extract(archive, tmp_path / "part", told)


def test_backup_and_restore_overwrite_no_files(state: Path, archive: Path, tmp_path: Path) -> None:
    """Neither an existing backup file nor a folder with anything in it; an empty folder is fine."""
    with pytest.raises(AlreadyExists):
        back_up(state, archive, NOW)
    with pytest.raises(AlreadyExists):
        restore(archive, state)
    with pytest.raises(NotFound, match="state folder"):
        back_up(tmp_path / "none", tmp_path / "other.tar", NOW)
    empty = tmp_path / "empty"
    empty.mkdir()
    restore(archive, empty)
    assert (empty / "admin.key").exists()


def damaged_content(members: Members) -> Members:
    return [(info, body[:-1] + b"?" if info.name.startswith("blobs/") else body) for info, body in members]


def cut_short(members: Members) -> Members:
    return members[:-1]


def smuggled(members: Members) -> Members:
    return [*members, (tarfile.TarInfo("../outside"), b"evil")]


def _with_manifest(members: Members, name: str, body: bytes) -> Members:
    manifest = json.loads(members[0][1])
    manifest["files"][name] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "modified_ns": 1}
    return [(members[0][0], json.dumps(manifest).encode()), *members[1:], (tarfile.TarInfo(name), body)]


def declared(name: str) -> Callable[[Members], Members]:
    """One more file, which the manifest names."""
    return lambda members: _with_manifest(members, name, b"evil")


def wrong_name(members: Members) -> Members:
    """A content that is whole by the manifest, under the name of another."""
    found = next(at for at, (info, _) in enumerate(members) if info.name.startswith("blobs/"))
    return _replaced(members, members[found][0].name, b"other content")


def other_database(members: Members) -> Members:
    """A sound database of another program."""
    return _replaced(members, "appliance.db", _database("CREATE TABLE notes (text TEXT)"))


def acting_database(members: Members) -> Members:
    """The right database, with something in it that acts by itself."""
    body = next(body for info, body in members if info.name == "appliance.db")
    return _replaced(members, "appliance.db", _database("CREATE VIEW spy AS SELECT 1", body))


def no_database(members: Members) -> Members:
    return _replaced(members, "appliance.db", b"SQLite format 3\0" + b"?" * 4096)


def _database(statement: str, body: bytes | None = None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.db"
        if body is not None:
            path.write_bytes(body)
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        return path.read_bytes()


def _replaced(members: Members, name: str, body: bytes) -> Members:
    """Another body for a member, with a manifest that says the same."""
    rest = [(info, body if info.name == name else old) for info, old in members[1:]]
    manifest = json.loads(members[0][1])
    manifest["files"][name] |= {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    return [(members[0][0], json.dumps(manifest).encode()), *rest]


def file_as_folder(members: Members) -> Members:
    name = next(info.name for info, _ in members if info.name.startswith("blobs/"))
    return _with_manifest(members, f"{name}/more", b"evil")


def _typed(kind: bytes) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        changed = _with_manifest(members, "tls/key.pem", b"")
        changed[-1][0].type, changed[-1][0].linkname = kind, "/etc/passwd"
        return changed

    return change


def _manifest_with(**facts: object) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        return [(members[0][0], json.dumps(json.loads(members[0][1]) | facts).encode()), *members[1:]]

    return change


def nested(members: Members) -> Members:
    return [(members[0][0], b"[" * 100_000), *members[1:]]


def far_future(members: Members) -> Members:
    """A time that no file system has."""
    manifest = json.loads(members[0][1])
    manifest["files"]["appliance.db"]["modified_ns"] = 10**300
    return [(members[0][0], json.dumps(manifest).encode()), *members[1:]]


def without_manifest(members: Members) -> Members:
    return members[1:]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damaged_content, "damaged"),
        (cut_short, "cut short"),
        (smuggled, "does not belong"),
        *((declared(name), "does not belong") for name in ("blobs/../../outside", "bin/sh", "/tmp/outside", "")),
        (_manifest_with(format=2), "format 2"),
        (without_manifest, "manifest"),
        (wrong_name, "wrong name"),
        (other_database, "not that of a box"),
        (acting_database, "view 'spy'"),
        (no_database, "damaged"),
        (file_as_folder, "no backup"),
        *(
            (_typed(kind), "does not belong")
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
        ),
        (_manifest_with(files=[1, 2]), "no backup"),
        (_manifest_with(counts=None), "no backup"),
        (_manifest_with(created_at="yesterday"), "no backup"),
        (nested, "no backup"),
        (far_future, "no backup"),
    ],
)
def test_wrong_backup_is_refused_and_leaves_no_files(
    archive: Path, tmp_path: Path, change: Callable[[Members], Members], reason: str
) -> None:
    """Damage, omissions and smuggled files are found before anything of the archive is used."""
    rewrite(archive, change)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadArchive, match=reason):
        restore(archive, tmp_path / "again")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("body", [b"", b"not a tar" * 1000])
def test_file_that_is_no_backup_is_refused_with_reason(tmp_path: Path, body: bytes) -> None:
    archive = tmp_path / "box.tar"
    archive.write_bytes(body)
    with pytest.raises(BadArchive, match="no backup"):
        restore(archive, tmp_path / "again")


def test_backup_of_newer_version_is_refused(state: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(state / "appliance.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    back_up(state, tmp_path / "box.tar", NOW)
    with pytest.raises(BadArchive, match="newer version"):
        restore(tmp_path / "box.tar", tmp_path / "again")


async def test_full_disk_leaves_no_partial_backup_or_restore(box: Parts, small_disk: Path, tmp_path: Path) -> None:
    await stored_model(box.store, tmp_path, body=b"w" * 2 * MIB)
    state = box.store.state_dir
    back_up(state, tmp_path / "box.tar", NOW)
    (small_disk / "ballast").write_bytes(b"b" * MIB)
    with pytest.raises(StorageFull):
        back_up(state, small_disk / "box.tar", NOW)
    with pytest.raises(StorageFull):
        restore(tmp_path / "box.tar", small_disk / "again")
    assert os.listdir(small_disk) == ["ballast"]


async def test_backup_list_ignores_file_names_without_valid_time(tmp_path: Path) -> None:
    (tmp_path / "nightly-99999999T999999Z.tar").touch()
    (tmp_path / "nightly-20260101T000000Z.tar").touch()
    found = await Backups(tmp_path, tmp_path, SystemClock(), kept=7).all()
    assert [one.name for one in found] == ["nightly-20260101T000000Z.tar"]
