"""Files are read whole when they are first needed, after each change, and whenever that is asked for."""

import errno
import threading
from pathlib import Path

import pytest

from appliance.domain.errors import ContentDamaged, LoadFailed
from appliance.modelstore.store.blobs import Blobs, content_digest
from appliance.modelstore.store.disk import hash_of
from appliance.modelstore.store.verified_files import VerifiedFiles


def test_verified_file_is_read_once_until_change(tmp_path: Path) -> None:
    read: list[str] = []

    def digest_of(path: Path) -> str:
        read.append(path.name)
        return hash_of(path)

    files, path = VerifiedFiles(digest_of), tmp_path / "weights"
    path.write_bytes(b"eight by")
    digest = hash_of(path)
    assert files.is_sound(path, digest)
    assert files.is_sound(path, digest)
    assert read == ["weights"]
    assert files.is_sound(path, digest, anew=True)
    path.write_bytes(b"eight bx")  # as long as before
    assert not files.is_sound(path, digest)
    path.write_bytes(b"eight by")
    assert files.is_sound(path, digest)
    assert read == ["weights"] * 4
    assert not files.is_sound(path, "another digest")
    path.unlink()
    assert not files.is_sound(path, digest)


def test_verified_file_is_answered_while_another_is_read(tmp_path: Path) -> None:
    """While one file is read whole, a file that was read before is answered at once."""
    reading, may_end = threading.Event(), threading.Event()

    def digest_of(path: Path) -> str:
        if path.name == "large" and reading.is_set() is False:
            reading.set()
            may_end.wait(60)
        return hash_of(path)

    files = VerifiedFiles(digest_of)
    small, large = tmp_path / "small", tmp_path / "large"
    for path in (small, large):
        path.write_bytes(path.name.encode())
    assert files.is_sound(small, hash_of(small))
    reader = threading.Thread(target=files.is_sound, args=(large, hash_of(large)))
    reader.start()
    assert reading.wait(60)
    assert files.is_sound(small, hash_of(small))
    may_end.set()
    reader.join()


def test_content_that_cannot_be_read_does_not_count_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files say nothing about a content: it stays where it is."""

    def digest_of(path: Path) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    path = tmp_path / "weights"
    path.write_bytes(b"sound")
    with pytest.raises(OSError, match="Too many"):
        VerifiedFiles(digest_of).is_sound(path, hash_of(path))
    kept = Blobs(tmp_path / "blobs", tmp_path / "quarantine").put(path)
    monkeypatch.setattr("appliance.modelstore.store.blobs.content_digest", digest_of)
    with pytest.raises(LoadFailed, match="cannot be read: Too many") as failed:
        Blobs(tmp_path / "blobs", tmp_path / "quarantine").path(kept.sha256)
    assert not isinstance(failed.value, ContentDamaged)
    assert not (tmp_path / "quarantine").exists()


def test_verified_folder_changes_with_each_file_in_it(tmp_path: Path) -> None:
    files = VerifiedFiles(content_digest)
    (tmp_path / "model.onnx").write_bytes(b"graph")
    (tmp_path / "model.bin").write_bytes(b"weights")
    digest = content_digest(tmp_path)
    assert files.is_sound(tmp_path, digest)
    (tmp_path / "model.bin").write_bytes(b"Weights")
    assert not files.is_sound(tmp_path, digest)
