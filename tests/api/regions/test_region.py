"""Shared memory objects: whose they are, what is no object, reading and writing within what is there."""

import os
import stat
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from appliance.api.regions.region import FOLDER, Region, SharedObject
from appliance.domain.errors import BadRegion

NOBODY = 64_900


def buffer(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None
    return memory.buf


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory(create=True, size=100)
    buffer(made)[:] = bytes(range(100))
    yield made
    made.close()
    made.unlink()


def region(memory: SharedMemory, offset: int, size: int) -> Region:
    return Region("r", memory.name, offset, size, "key", SharedObject(memory.name, os.geteuid()))


def test_region_reads_and_writes_at_its_offsets_within_its_bounds(memory: SharedMemory) -> None:
    """Offsets count from the beginning of the region; a copy is aligned, and later changes do not reach it."""
    one = region(memory, 10, 90)
    copy = one.read(5, 20)
    buffer(memory)[15:35] = bytes(20)
    assert copy.tobytes() == bytes(range(15, 35))
    one.write(80, b"abcdefghij")
    assert bytes(buffer(memory)[90:]) == b"abcdefghij"
    assert one.read(90, 0).tobytes() == b""
    for offset, size in ((0, 91), (90, 1), (91, 0)):
        with pytest.raises(BadRegion, match="do not fit"):
            one.check(offset, size, "here")


def test_region_of_a_truncated_object_is_refused_and_not_extended(memory: SharedMemory) -> None:
    """Beyond what is left it is neither read nor written."""
    one = region(memory, 0, 100)
    os.truncate(FOLDER / memory.name, 50)
    assert one.read(0, 50).tobytes() == bytes(range(50))
    for call in (lambda: one.read(0, 51), lambda: one.write(45, b"123456")):
        with pytest.raises(BadRegion, match="shorter"):
            call()
    assert (FOLDER / memory.name).stat().st_size == 50


def test_region_of_another_users_object_is_refused(memory: SharedMemory) -> None:
    """By its owner, not by what the box may open; and also with a mode that lets all users write."""
    path = FOLDER / memory.name
    path.chmod(0o666)
    with pytest.raises(BadRegion, match="belongs to another user"):
        SharedObject(memory.name, os.geteuid() + 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
        SharedObject(memory.name, NOBODY)
        with pytest.raises(BadRegion, match="belongs to another user"):
            SharedObject(memory.name, 0)


@pytest.mark.parametrize("key", ["", "/", ".", "..", "a/b", "../etc/passwd", "/../etc/passwd", "//x/", "a\0", "\ud800"])
def test_region_key_that_is_no_object_name_is_refused(key: str) -> None:
    """A key is the name of one object, with or without a slash before it."""
    with pytest.raises(BadRegion, match="is no key"):
        SharedObject(key, os.geteuid())


def test_region_object_file_is_closed_with_its_last_reference(memory: SharedMemory) -> None:
    """Also that of an object which was refused."""
    folder = Path(f"/proc/{os.getpid()}/fd")

    def count() -> int:
        return sum(os.path.realpath(link) == f"{FOLDER}/{memory.name}" for link in folder.iterdir())

    before = count()
    one = region(memory, 0, 10)
    other = one.object
    assert count() == before + 1
    del one
    assert other.size == 100
    assert count() == before + 1
    del other
    assert count() == before
    with pytest.raises(BadRegion):
        SharedObject(memory.name, os.geteuid() + 1)
    assert count() == before
