"""Files are read whole when they are first needed, after each change, and whenever that is asked for."""

from pathlib import Path

from appliance.modelstore.store.blobs import content_digest
from appliance.modelstore.store.disk import hash_of
from appliance.modelstore.store.verified_files import VerifiedFiles


def test_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
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


def test_folder_changes_with_each_of_its_files(tmp_path: Path) -> None:
    files = VerifiedFiles(content_digest)
    (tmp_path / "model.onnx").write_bytes(b"graph")
    (tmp_path / "model.bin").write_bytes(b"weights")
    digest = content_digest(tmp_path)
    assert files.is_sound(tmp_path, digest)
    (tmp_path / "model.bin").write_bytes(b"Weights")
    assert not files.is_sound(tmp_path, digest)
