"""Content-addressed files: what a variant is loaded from, named by the SHA-256 of its bytes.

A blob is one file, or for models above 2 GB a folder of `model.onnx` and its external data. It is written beside its
final place, synced and renamed; the database row follows, so a crash leaves at most an orphan that the next start
sweeps. Content is verified when it is first read in a process, and
once it has changed. Blocking: called from threads.
"""

import fcntl
import hashlib
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.domain.errors import ContentDamaged, LoadFailed
from appliance.modelstore.store.disk import copy_hashed, hash_of, move_hashed, remove, require_free, sync_folder
from appliance.modelstore.store.verified_files import VerifiedFiles

STAGED = "tmp-"
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A published blob."""

    sha256: str
    size_bytes: int
    modified_ns: int
    """Modification time of its (first) file; a change without a change of content is harmless, but worth a look."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Content that is safely on disk but not yet published: give it to `publish` or to `discard`."""

    path: Path
    sha256: str
    size_bytes: int


@contextmanager
def all_kept(folder: Path) -> Iterator[None]:
    """No content leaves the folder of blobs meanwhile, whichever process would remove it. Blocks while one leaves."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Blobs:
    """The folder `blobs/`, with `ab/abcd…` for each content."""

    def __init__(self, folder: Path, quarantine: Path, reserve_bytes: int = 0) -> None:
        self.folder = folder
        self.quarantine = quarantine
        self.reserve_bytes = reserve_bytes
        self._verified = VerifiedFiles(content_digest)
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, *sources: Path) -> BlobRef:
        """Copy files in and publish them as one blob. Raises: StorageFull."""
        return self.publish(self.stage(sources))

    def stage(self, sources: Sequence[Path], *, move: bool = False) -> Staged:
        """Bring files in under a temporary name; the first is the model, others are its external data.

        `move` takes them over.

        Raises: StorageFull (nothing is left behind).
        """
        size_bytes = sum(source.stat().st_size for source in sources)
        require_free(self.folder, 0 if move else size_bytes, self.reserve_bytes)
        bring = move_hashed if move else copy_hashed
        target = self.folder / f"{STAGED}{uuid.uuid4().hex}"
        try:
            if len(sources) == 1:
                digest = bring(sources[0], target)
            else:
                target.mkdir(mode=0o700)
                digests = {source.name: bring(source, target / source.name) for source in sources}
                sync_folder(target)
                digest = folder_digest(digests)
        except BaseException:
            remove(target)
            raise
        if self._final(digest).exists():
            with suppress(LoadFailed):
                self.check(digest)  # a damaged copy goes, and this one takes its place
        return Staged(target, digest, size_bytes)

    def publish(self, staged: Staged) -> BlobRef:
        """Rename to the final name. Content that is there already stays, and the staged copy goes."""
        final = self._final(staged.sha256)
        final.parent.mkdir(exist_ok=True, mode=0o700)
        if final.exists():
            remove(staged.path)
        else:
            os.rename(staged.path, final)
        sync_folder(final.parent)
        sync_folder(self.folder)
        return BlobRef(staged.sha256, staged.size_bytes, _first_file(final).stat().st_mtime_ns)

    def discard(self, staged: Staged) -> None:
        """Forget staged content; nothing happens when it was published."""
        remove(staged.path)

    def path(self, sha256: str) -> Path:
        """The file to load, verified once a process and after each change.

        Raises: ContentDamaged when it is missing or damaged; then it is quarantined. LoadFailed when it cannot be read.
        """
        return self._sound(sha256, anew=False)

    def check(self, sha256: str) -> None:
        """Read a content whole. Raises: as `path`."""
        self._sound(sha256, anew=True)

    def _sound(self, sha256: str, *, anew: bool) -> Path:
        final = self._final(sha256)
        try:
            problem = self._problem(sha256, final, anew=anew)
            if not problem:
                return _first_file(final)
            with self._lock:  # two loads of one content put it away once, and not what was brought back meanwhile
                if self._problem(sha256, final, anew=False):
                    self.put_away(sha256)
        except OSError as error:  # too many open files, a network that is away: the content may be sound
            raise LoadFailed(build_id=sha256, reason=f"its file cannot be read: {error.strerror}") from error
        raise ContentDamaged(build_id=sha256, reason=problem)

    def files(self, sha256: str) -> tuple[Path, ...]:
        """All files of a blob, the one to load first. Raises: LoadFailed."""
        model = self.path(sha256)
        if model.parent.name != sha256:
            return (model,)
        return (model, *sorted(other for other in model.parent.iterdir() if other != model))

    def problem(self, sha256: str, size_bytes: int, modified_ns: int) -> str:
        """What is wrong with a blob, empty when nothing is. Hashes it only when size or time are not as recorded."""
        final = self._final(sha256)
        if not final.exists():
            return "its content is missing from the disk"
        if blob_size(final) == size_bytes and _first_file(final).stat().st_mtime_ns == modified_ns:
            return ""
        try:
            return self._problem(sha256, final, anew=False)
        except OSError:  # a load will say so
            return ""

    def is_as_recorded(self, sha256: str, size_bytes: int, modified_ns: int) -> bool:
        """Whether it is there with that size and time, so that its content need not be looked at."""
        final = self._final(sha256)
        try:
            return blob_size(final) == size_bytes and _first_file(final).stat().st_mtime_ns == modified_ns
        except (OSError, StopIteration):
            return False

    def modified_ns(self, sha256: str) -> int:
        """Modification time of a blob that is there."""
        return _first_file(self._final(sha256)).stat().st_mtime_ns

    def _problem(self, sha256: str, final: Path, *, anew: bool) -> str:
        if not final.exists():
            return "its content is missing from the disk"
        return "" if self._verified.is_sound(final, sha256, anew=anew) else "its content on disk is damaged"

    def put_away(self, sha256: str) -> None:
        """Move a damaged blob to the quarantine folder, for a person to look at."""
        final = self._final(sha256)
        if final.exists():
            self.quarantine.mkdir(parents=True, exist_ok=True, mode=0o700)
            remove(self.quarantine / sha256)
            os.rename(final, self.quarantine / sha256)

    def remove(self, contents: Iterable[str]) -> bool:
        """Remove blobs whose rows are gone; False, and nothing is removed, while all are kept."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            for sha256 in contents:
                remove(self._final(sha256))
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def sweep(self, referenced: Iterable[str]) -> list[str]:
        """Remove whatever no row refers to, half-written files too; only at start, before anything is staged.

        Returns their names.
        """
        kept, gone = set(referenced), []
        for entry in self.folder.iterdir():
            for orphan in entry.iterdir() if entry.is_dir() and len(entry.name) == 2 else [entry]:
                if orphan.name not in kept:
                    remove(orphan)
                    gone.append(orphan.name)
        return gone

    def _final(self, sha256: str) -> Path:
        assert DIGEST.fullmatch(sha256), sha256
        return self.folder / sha256[:2] / sha256


def folder_digest(digests: Mapping[str, str]) -> str:
    """Digest of several files: the SHA-256 of their `sha256sum` lines, sorted by name."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def content_digest(path: Path) -> str:
    """Digest of a blob on disk, file or folder."""
    if path.is_dir():
        return folder_digest({entry.name: hash_of(entry) for entry in path.iterdir()})
    return hash_of(path)


def blob_size(path: Path) -> int:
    """Bytes of a blob on disk, file or folder."""
    return sum(entry.stat().st_size for entry in path.iterdir()) if path.is_dir() else path.stat().st_size


def _first_file(path: Path) -> Path:
    """What is given to a loader: the file itself, or the graph in a folder."""
    return next(path.glob("*.onnx")) if path.is_dir() else path
