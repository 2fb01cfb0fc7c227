"""Content is whole or not there: equal content once, damage found, orphans swept, a full disk leaves nothing."""

import hashlib
import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from appliance.domain.errors import ContentDamaged, LoadFailed, StorageFull
from appliance.modelstore.store.blobs import Blobs

MIB = 2**20


def blobs_in(folder: Path, reserve_bytes: int = 0) -> Blobs:
    return Blobs(folder / "blobs", folder / "quarantine", reserve_bytes)


def written(path: Path, body: bytes) -> Path:
    path.write_bytes(body)
    return path


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """No file may grow beyond this: the kernel answers a write as it does on a full quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(st.lists(st.tuples(st.binary(max_size=200), st.booleans()), min_size=1, max_size=12))
def test_equal_contents_are_stored_once_and_come_back(bodies: list[tuple[bytes, bool]]) -> None:
    """Whatever is put in, copied or moved, comes back by its digest; equal bytes share a file; sweeping keeps what
    is referenced.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blobs = blobs_in(folder)
        for number, (body, move) in enumerate(bodies):
            source = written(folder / f"in-{number}", body)
            ref = blobs.publish(blobs.stage([source], move=move))
            assert ref.sha256 == hashlib.sha256(body).hexdigest()
            assert ref.size_bytes == len(body)
            assert source.exists() != move
        digests = {hashlib.sha256(body).hexdigest(): body for body, _ in bodies}
        assert files_in(blobs.folder) == set(digests)
        kept = sorted(digests)[::2]
        assert set(blobs.sweep(kept)) == set(digests) - set(kept)
        fresh = blobs_in(folder)
        assert all(fresh.path(sha256).read_bytes() == digests[sha256] for sha256 in kept)


def test_content_of_several_files_is_one_blob(tmp_path: Path) -> None:
    """A model above 2 GB is a graph with external data: one digest over names and contents, and the graph is what is
    loaded.
    """
    blobs = blobs_in(tmp_path)
    graph, data = written(tmp_path / "model.onnx", b"graph"), written(tmp_path / "model.bin", b"data")
    ref = blobs.put(graph, data)
    path = blobs_in(tmp_path).path(ref.sha256)
    assert path.name == "model.onnx"
    assert path.with_name("model.bin").read_bytes() == b"data"
    assert [file.name for file in blobs.files(ref.sha256)] == ["model.onnx", "model.bin"]
    assert blobs.files(blobs.put(data).sha256)[0].read_bytes() == b"data"
    assert ref.size_bytes == 9
    data.write_bytes(b"Data")
    assert blobs.put(graph, data).sha256 != ref.sha256


@pytest.mark.parametrize("files", [("model.onnx",), ("model.onnx", "model.bin")])
def test_damaged_content_is_found_on_first_reading(tmp_path: Path, files: tuple[str, ...]) -> None:
    """A flipped bit is noticed, the content put away, and the error names it; a second look finds it missing."""
    sources = [written(tmp_path / name, name.encode() * 10) for name in files]
    ref = blobs_in(tmp_path).put(*sources)
    place = tmp_path / "blobs" / ref.sha256[:2] / ref.sha256
    victim = place / files[-1] if place.is_dir() else place
    body = bytearray(victim.read_bytes())
    body[3] ^= 1
    victim.write_bytes(body)
    blobs = blobs_in(tmp_path)
    with pytest.raises(ContentDamaged, match="damaged") as found:
        blobs.path(ref.sha256)
    assert found.value.build_id == ref.sha256
    assert (tmp_path / "quarantine" / ref.sha256).exists()
    with pytest.raises(LoadFailed, match="missing"):
        blobs.path(ref.sha256)


def test_damaged_content_found_by_two_loads_is_put_away_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both loads fail with the content damaged or missing, and the damaged file is kept for a person to look at."""
    ref = blobs_in(tmp_path).put(written(tmp_path / "model.onnx", b"weights"))
    place = tmp_path / "blobs" / ref.sha256[:2] / ref.sha256
    place.write_bytes(b"weighty")
    blobs, both_are_here = blobs_in(tmp_path), threading.Barrier(2)

    def rename(source: Path, target: Path) -> None:
        with suppress(threading.BrokenBarrierError):  # where only one comes so far
            both_are_here.wait(0.3)
        os.replace(source, target)

    def opened(_number: int) -> type[Exception]:
        with pytest.raises(Exception) as found:  # noqa: PT011 - its type is what is looked at
            blobs.path(ref.sha256)
        return found.type

    monkeypatch.setattr(os, "rename", rename)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(opened, range(2))) == [ContentDamaged, ContentDamaged]
    assert (tmp_path / "quarantine" / ref.sha256).read_bytes() == b"weighty"


def test_content_check_hashes_only_after_change_of_size_or_time(tmp_path: Path) -> None:
    """At start size and time are compared; a change of either leads to hashing, which tells harmless from damaged."""
    blobs = blobs_in(tmp_path)
    ref = blobs.put(written(tmp_path / "in", b"12345"))
    place = tmp_path / "blobs" / ref.sha256[:2] / ref.sha256
    assert blobs.problem(ref.sha256, ref.size_bytes, ref.modified_ns) == ""
    os.utime(place, ns=(1, 1))
    assert blobs.problem(ref.sha256, ref.size_bytes, ref.modified_ns) == ""
    place.write_bytes(b"12346")
    assert "damaged" in blobs.problem(ref.sha256, ref.size_bytes, ref.modified_ns)
    place.unlink()
    assert "missing" in blobs.problem(ref.sha256, ref.size_bytes, ref.modified_ns)


def test_staged_content_without_publication_is_swept_at_start(tmp_path: Path) -> None:
    blobs = blobs_in(tmp_path)
    blobs.stage([written(tmp_path / "in", b"half")])
    assert len(files_in(blobs.folder)) == 1
    blobs_in(tmp_path).sweep([])
    assert files_in(blobs.folder) == set()


@pytest.mark.parametrize("move", [False, True])
def test_content_published_twice_is_kept_once(tmp_path: Path, move: bool) -> None:
    """Two imports of one file at once: the second finds the content there, and its own copy goes."""
    blobs = blobs_in(tmp_path)
    staged = [blobs.stage([written(tmp_path / f"in-{number}", b"same")], move=move) for number in range(2)]
    refs = {blobs.publish(one).sha256 for one in staged}
    assert files_in(blobs.folder) == refs


def test_content_that_cannot_be_written_leaves_no_files(tmp_path: Path) -> None:
    """The kernel breaks the copy off half-way: StorageFull, and no trace of it."""
    blobs = blobs_in(tmp_path)
    source = written(tmp_path / "in", b"x" * 3 * MIB)
    with largest_file(2 * MIB), pytest.raises(StorageFull):
        blobs.put(source)
    assert files_in(blobs.folder) == set()
    assert blobs.put(source).size_bytes == 3 * MIB


def test_full_disk_leaves_no_partial_content(small_disk: Path, tmp_path: Path) -> None:
    """On a disk of 3 MiB a second content of 2 MiB is refused; the first stays readable."""
    blobs = blobs_in(small_disk)
    first = blobs.put(written(tmp_path / "in", b"a" * 2 * MIB))
    with pytest.raises(StorageFull):
        blobs.put(written(tmp_path / "in", b"b" * 2 * MIB))
    assert files_in(small_disk) == {first.sha256}
    assert blobs.path(first.sha256).stat().st_size == 2 * MIB


def test_content_that_would_take_disk_reserve_is_refused(small_disk: Path, tmp_path: Path) -> None:
    """Before a byte is written."""
    blobs = blobs_in(small_disk, reserve_bytes=2 * MIB)
    with pytest.raises(StorageFull):
        blobs.put(written(tmp_path / "in", b"a" * 2 * MIB))
    assert files_in(small_disk) == set()


def test_content_file_from_another_disk_is_moved(small_disk: Path, tmp_path: Path) -> None:
    """Taking a file over works across file systems, too, and takes it away there."""
    source = written(small_disk / "in", b"far away")
    blobs = blobs_in(tmp_path)
    ref = blobs.publish(blobs.stage([source], move=True))
    assert blobs.path(ref.sha256).read_bytes() == b"far away"
    assert not source.exists()
