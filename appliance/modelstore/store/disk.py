"""Writing files so that a power cut leaves the old state or the new one, and a full disk leaves nothing behind."""

import contextlib
import errno
import hashlib
import os
import shutil
import sqlite3
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from appliance.domain.errors import StorageFailed, StorageFull

CHUNK_BYTES = 2**20
FULL_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
UNUSABLE_ERRNOS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR, errno.ELOOP})


@contextlib.contextmanager
def full_disk_is_typed() -> Iterator[None]:
    """Raises: StorageFull in place of the operating system's ways to say so."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise StorageFull() from error
        raise
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in FULL_CODES:
            raise StorageFull() from error
        raise


@contextlib.contextmanager
def failed_disk_is_typed() -> Iterator[None]:
    """The same, and where the state folder may not be written or read at all. Raises: StorageFull, StorageFailed."""
    try:
        with full_disk_is_typed():
            yield
    except OSError as error:
        if error.errno in UNUSABLE_ERRNOS:
            raise StorageFailed(reason=f"{error.filename or 'a file'}: {error.strerror}") from error
        raise


def require_free(folder: Path, need_bytes: int, reserve_bytes: int) -> None:
    """Raises: StorageFull when `need_bytes` would leave less than `reserve_bytes`, which the database needs to go
    on.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < need_bytes + reserve_bytes:
        raise StorageFull(free_bytes=free_bytes, need_bytes=need_bytes, reserve_bytes=reserve_bytes)


def sync_file(path: Path) -> None:
    """Force the bytes of a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with full_disk_is_typed():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Force the entries of a folder (new names, renames) to the disk."""
    sync_file(path)


def make_private(folder: Path) -> None:
    """Take from everybody but the owner what they may do with a folder and all that is in it."""
    for parent, _folders, files in os.walk(folder):
        restrict(Path(parent), 0o700)
        for name in files:
            restrict(Path(parent, name), 0o600)


def restrict(path: Path, mode: int) -> None:
    """Take a file's or folder's permissions beyond `mode` away; file systems without permissions are left alone."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) & ~mode:
            path.chmod(mode)


def private_file(path: Path) -> BinaryIO:
    """A new file that nobody else may read, open for writing."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def copy_hashed(source: Path, target: Path) -> str:
    """Copy and sync a file; returns its SHA-256 in hex. Raises: StorageFull (then `target` is gone)."""
    digest = hashlib.sha256()
    try:
        with full_disk_is_typed(), source.open("rb") as reader, private_file(target) as writer:
            while block := reader.read(CHUNK_BYTES):
                digest.update(block)
                writer.write(block)
            writer.flush()
            os.fsync(writer.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return digest.hexdigest()


def move_hashed(source: Path, target: Path) -> str:
    """Take a file over: sync, hash and rename it, or copy it when it lies on another disk.

    Returns its SHA-256 in hex.
    """
    if source.stat().st_dev != target.parent.stat().st_dev:
        digest = copy_hashed(source, target)
        source.unlink()
        return digest
    sync_file(source)
    digest = hash_of(source)
    os.rename(source, target)
    return digest


def file_size(path: Path) -> int:
    """Bytes of a file."""
    return path.stat().st_size


def hash_of(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def keep_only(folder: Path, names: Collection[str]) -> None:
    """Remove everything in a folder but what is named."""
    if folder.is_dir():
        for entry in folder.iterdir():
            if entry.name not in names:
                remove(entry)
