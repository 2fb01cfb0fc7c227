"""Backup and restore of a state folder as one tar file; blocking, for command lines and housekeeping threads.

A backup is taken beside a running box: SQLite copies the database consistently, contents are held by hard links while
they are written. It holds what cannot be made again: database, contents and, where that is asked for, the admin key and
TLS files: such a file opens the box. Keys are in it as their SHA-256. Prepared forms are made anew by the box; uploads
and imports under way are not included, and the restored box says so in their jobs. The file has mode 0600.
"""

import contextlib
import datetime
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from appliance.domain.errors import AlreadyExists, BadArchive, NotFound
from appliance.modelstore.store.blobs import DIGEST, all_kept, folder_digest
from appliance.modelstore.store.disk import (
    CHUNK_BYTES,
    full_disk_is_typed,
    private_file,
    remove,
    require_free,
    sync_file,
    sync_folder,
)
from appliance.modelstore.store.migrations import current_revision, is_known
from appliance.modelstore.store.state_folder import DATABASE, RESERVE_BYTES
from appliance.tasks import strict_json

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 64 * 2**20
PRIVATE = ("admin.key", "tls")
MEMBER = re.compile(
    r"appliance\.db|admin\.key|tls/[A-Za-z0-9._-]{1,64}|blobs/([0-9a-f]{2})/(\1[0-9a-f]{62})(/[A-Za-z0-9._-]{1,255})?"
)
"""Names that a backup may hold. A content lies under its digest, as a file or as a folder of files."""
NO_BACKUP = (
    tarfile.TarError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
)
"""What reading an archive raises that is not what we wrote."""
_STEPS = 100_000
"""Of SQLite's, between two looks whether work is to go on: some milliseconds."""
Told = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) as work goes on; what it raises ends the work."""


def whole_percents(tell: Callable[[int], object]) -> Told:
    """What tells each whole per cent once: a backup has tens of thousands of blocks."""
    latest = 0

    def told(done_bytes: int, all_bytes: int) -> None:
        nonlocal latest
        percent = 100 * done_bytes // max(1, all_bytes)
        if percent > latest:
            latest = percent
            tell(percent)

    return told


def unheard(done_bytes: int, all_bytes: int) -> None:
    """Nobody wants to know."""


class UnknownStateFolder(NotFound, what="state folder"): ...


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup file holds."""

    created_at: datetime.datetime
    models: int
    tenants: int
    contents: int
    size_bytes: int


def back_up(
    state_dir: Path, target: Path, now: datetime.datetime, *, with_secrets: bool = True, told: Told = unheard
) -> Backup:
    """Write a backup of `state_dir`, whether a box runs on it or not, to the new file `target`; `with_secrets`: with
    the admin key and TLS files in clear.

    Raises: AlreadyExists (`target`), UnknownStateFolder, BadArchive when a content is damaged, StorageFull; then
    nothing is left behind.
    """
    if target.exists():
        raise AlreadyExists(name=str(target))
    if not (state_dir / DATABASE).is_file():
        raise UnknownStateFolder(name=str(state_dir))
    held = state_dir / "scratch" / f"backup-{uuid.uuid4().hex}"
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with full_disk_is_typed():
            _hold(state_dir, held, PRIVATE if with_secrets else (), told)
            backup = _write(held, part, now, told)
            sync_file(part)
            os.rename(part, target)
            sync_folder(target.parent)
        return backup
    finally:
        remove(held)
        part.unlink(missing_ok=True)


def restore(source: Path, state_dir: Path) -> Backup:
    """Make `state_dir` from a backup. Every file is checked against its hash before anything of it is used.

    Raises: AlreadyExists (the folder is not empty), BadArchive (damaged, or made by a newer version), StorageFull; then
    the folder is as it was.
    """
    if state_dir.exists() and any(state_dir.iterdir()):
        raise AlreadyExists(name=str(state_dir))
    state_dir.parent.mkdir(parents=True, exist_ok=True)
    part = state_dir.with_name(f".{state_dir.name}.{uuid.uuid4().hex}.part")
    try:
        with full_disk_is_typed():
            part.mkdir(mode=0o700)
            backup = extract(source, part)
            os.rename(part, state_dir)
            sync_folder(state_dir.parent)
        return backup
    finally:
        remove(part)


# -- writing -----------------------------------------------------------------------------------------------------------


def _hold(state_dir: Path, held: Path, private: Sequence[str], told: Told) -> None:
    """Copy the database and link what it refers to into `held`; no content leaves meanwhile.

    Raises: BadArchive when a content is missing.
    """
    held.mkdir(parents=True, mode=0o700)
    with all_kept(state_dir / "blobs"):
        _copy_database(state_dir / DATABASE, held / DATABASE)
        for sha256 in _contents(held / DATABASE):
            told(0, 1)
            try:
                _link(state_dir / "blobs" / sha256[:2] / sha256, held / "blobs" / sha256[:2] / sha256)
            except FileNotFoundError:
                raise BadArchive(
                    reason=f"content {sha256} of the state folder is missing; delete the models that use it first"
                ) from None
        for name in private:
            if (state_dir / name).exists():
                _link(state_dir / name, held / name)


def _copy_database(source: Path, target: Path) -> None:
    """A consistent copy in one file, also while the box writes."""
    with contextlib.closing(sqlite3.connect(source)) as live, contextlib.closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")


def _contents(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT sha256 FROM blob ORDER BY sha256")]


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link)
    else:
        os.link(source, target)


def _write(held: Path, part: Path, now: datetime.datetime, told: Told) -> Backup:
    """Everything is read twice: for the manifest, and into the file."""
    progress = _Progress(told, 2 * sum(path.stat().st_size for path in held.rglob("*") if path.is_file()))
    manifest = _manifest(held, now, progress)
    with (
        private_file(part) as file,
        tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK_BYTES) as archive,
    ):
        text = json.dumps(manifest, indent=1).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode = len(text), 0o600
        archive.addfile(info, io.BytesIO(text))
        for name in manifest["files"]:
            with (held / name).open("rb") as source:
                archive.addfile(archive.gettarinfo(arcname=name, fileobj=source), _Counted(source, progress))
            file.flush()
            os.fdatasync(file.fileno())  # all at the end would take long, and nobody could stop it
    return _described(manifest)


def _manifest(held: Path, now: datetime.datetime, progress: "_Progress") -> dict[str, Any]:
    """Hashes of everything, each content compared with its name. Raises: BadArchive."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(held.rglob("*")):
        if path.is_file():
            with path.open("rb") as source:
                sha256 = _hash(_Counted(source, progress))
            status = path.stat()
            name = path.relative_to(held).as_posix()
            files[name] = {"sha256": sha256, "size": status.st_size, "modified_ns": status.st_mtime_ns}
    for path in sorted((held / "blobs").glob("*/*")):
        name = path.relative_to(held).as_posix()
        inside = {one.removeprefix(f"{name}/"): facts for one, facts in files.items() if one.startswith(f"{name}/")}
        digests = {one: facts["sha256"] for one, facts in inside.items()}
        if path.name != (folder_digest(digests) if path.is_dir() else files[name]["sha256"]):
            raise BadArchive(
                reason=f"content {path.name} of the state folder is damaged; delete the models that use it first"
            )
    with contextlib.closing(sqlite3.connect(held / DATABASE)) as connection:
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("model", "tenant", "blob")
        }
    return {"format": FORMAT, "created_at": now.isoformat(), "counts": counts, "files": files}


def _hash(source: "_Counted") -> str:
    digest = hashlib.sha256()
    while block := source.read(CHUNK_BYTES):
        digest.update(block)
    return digest.hexdigest()


class _Progress:
    """Bytes done of all bytes."""

    def __init__(self, told: Told, all_bytes: int) -> None:
        self._told, self._all_bytes, self._done_bytes = told, all_bytes, 0

    def add(self, count: int) -> None:
        self._done_bytes += count
        self._told(min(self._done_bytes, self._all_bytes), self._all_bytes)


class _Counted:
    """A file that counts what is read of it."""

    def __init__(self, file: BinaryIO, progress: _Progress) -> None:
        self._file, self._progress = file, progress

    def read(self, count: int = -1) -> bytes:
        block = self._file.read(count)
        self._progress.add(len(block))
        return block


def _described(manifest: Mapping[str, Any]) -> Backup:
    counts = manifest["counts"]
    return Backup(
        datetime.datetime.fromisoformat(manifest["created_at"]),
        counts["model"],
        counts["tenant"],
        counts["blob"],
        sum(entry["size"] for entry in manifest["files"].values()),
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def extract(source: Path, part: Path, told: Told = unheard) -> Backup:
    """What a backup holds, into the folder `part`: each file checked against its hash, the database whole and of a
    version that is known, each content what its name says. Raises: BadArchive; StorageFull also where a box would have
    too little room left to start.
    """
    try:
        with tarfile.open(source, "r:") as archive:
            members = iter(archive)
            manifest = _read_manifest(archive, next(members, None))
            backup = _described(manifest)
            require_free(part, backup.size_bytes, RESERVE_BYTES)
            progress = _Progress(told, backup.size_bytes)
            missing = dict(manifest["files"])
            for member in members:
                entry = missing.pop(member.name, None)
                if entry is None or not member.isreg():
                    raise BadArchive(reason=f"{member.name!r} does not belong into a backup")
                _extract_file(archive, member, entry, part, progress)
    except NO_BACKUP as error:
        raise BadArchive(reason=f"this is no backup, or it is damaged: {error}") from error
    if missing:
        raise BadArchive(reason=f"the backup is cut short: {next(iter(missing))} is missing")
    _check_database(part / DATABASE, progress)
    _check_contents(part, progress)
    return backup


def _read_manifest(archive: tarfile.TarFile, member: tarfile.TarInfo | None) -> dict[str, Any]:
    stream = archive.extractfile(member) if member is not None and member.name == MANIFEST else None
    if stream is None or member is None or member.size > MANIFEST_BYTES_MAX:
        raise BadArchive(reason="this is no backup of a box: it does not begin with its manifest")
    manifest: dict[str, Any] = strict_json.read_checked(stream.read())
    if manifest["format"] != FORMAT:
        raise BadArchive(reason=f"the backup has format {manifest['format']}; this version reads {FORMAT}")
    return manifest


def _extract_file(
    archive: tarfile.TarFile, member: tarfile.TarInfo, entry: Mapping[str, Any], part: Path, progress: _Progress
) -> None:
    """One file, hashed while it is written. Raises: BadArchive."""
    pure = PurePosixPath(member.name)
    if not MEMBER.fullmatch(member.name) or {".", ".."} & set(pure.parts):
        raise BadArchive(reason=f"{member.name!r} does not belong into a backup")
    if member.size != entry["size"]:
        raise BadArchive(reason=f"{member.name} in the backup is damaged: it has another size")
    target = part.joinpath(*pure.parts)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256()
    stream = archive.extractfile(member)
    assert stream is not None
    with private_file(target) as file:
        for block in _blocks(stream):
            digest.update(block)
            file.write(block)
            progress.add(len(block))
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != entry["sha256"]:
        raise BadArchive(reason=f"{member.name} in the backup is damaged")
    os.utime(target, ns=(int(entry["modified_ns"]), int(entry["modified_ns"])))
    sync_folder(target.parent)


def _blocks(stream: Any) -> Iterator[bytes]:
    while block := stream.read(CHUNK_BYTES):
        yield block


def _check_database(database: Path, progress: _Progress) -> None:
    """Raises: BadArchive."""

    def goes_on() -> None:
        progress.add(0)  # what it raises ends the check

    if not database.is_file():
        raise BadArchive(reason="the backup holds no database")
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.set_progress_handler(goes_on, _STEPS)
            verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        goes_on()
        raise BadArchive(reason=f"the database in the backup is damaged: {error}") from error
    if verdict != "ok":
        raise BadArchive(reason=f"the database in the backup is damaged: {verdict}")
    revision = current_revision(database)
    if revision is None:
        raise BadArchive(reason="the database in the backup is not that of a box")
    if not is_known(revision):
        raise BadArchive(reason="the backup was made by a newer version; update this one first")


def _check_contents(part: Path, progress: _Progress) -> None:
    """Every content that the database names is there, and is what its name says. Raises: BadArchive."""
    try:
        wanted = _contents(part / DATABASE)
        tables = _schema(part / DATABASE)
    except sqlite3.Error as error:
        raise BadArchive(reason=f"the database in the backup is not that of a box: {error}") from error
    if tables:
        raise BadArchive(reason=f"the database in the backup is not that of a box: it has {', '.join(tables)}")
    for sha256 in wanted:
        if not isinstance(sha256, str) or not DIGEST.fullmatch(sha256):
            raise BadArchive(reason="the database in the backup names a content by something else than its digest")
        if not (part / "blobs" / sha256[:2] / sha256).exists():
            raise BadArchive(reason=f"the backup is cut short: content {sha256} is missing")
    for path in (part / "blobs").glob("*/*"):
        if _digest(path, progress) != path.name:
            raise BadArchive(reason=f"content {path.name} in the backup is damaged, or lies under a wrong name")


def _digest(content: Path, progress: _Progress) -> str:
    """Of a file, or a folder of files."""
    if content.is_dir():
        return folder_digest({entry.name: _digest(entry, progress) for entry in content.iterdir()})
    with content.open("rb") as source:
        return _hash(_Counted(source, progress))


def _schema(database: Path) -> list[str]:
    """What acts by itself in a database; a box makes none of it."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [
            f"the {kind} {name!r}"
            for kind, name in connection.execute("SELECT type, name FROM sqlite_master")
            if kind in ("trigger", "view")
        ]
