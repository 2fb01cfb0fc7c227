"""Which pages of this process are a mapped file, and what is done with them."""

import mmap
import os
from pathlib import Path

import pytest

from appliance.runtime.processors.cpu.mapped import CachedFile, Damaged, Mappings, ProcFiles, advise
from tests.fakes.mappings import resident_bytes

PAGE = mmap.PAGESIZE


def private(path: Path, pages: int = 64) -> mmap.mmap:
    """As the runtime maps weights: whoever writes gets pages of their own."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), pages * PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    mapping.madvise(mmap.MADV_RANDOM)  # else a single touch brings its neighbours
    return mapping


@pytest.fixture(params=["model.bin", "with a space.bin"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / request.param
    path.write_bytes(b"x" * (64 * PAGE))
    return path


@pytest.fixture
def mappings() -> Mappings:
    return Mappings(ProcFiles(), advise)


def test_pages_come_and_go(path: Path, mappings: Mappings) -> None:
    """A mapping that nobody has read is brought into memory as a whole, leaves it, and comes again."""
    mapping, weights = mappings.watch(path, lambda: private(path))
    assert weights.size_bytes == 64 * PAGE
    assert weights.are_the_files()
    for _ in range(2):
        weights.populate()
        assert resident_bytes(path) == 64 * PAGE
        weights.give_back()
        assert resident_bytes(path) == 0
    assert mapping[:] == b"x" * (64 * PAGE)


def test_others_over_the_same_file(path: Path, mappings: Mappings) -> None:
    """Who came before, and who came after, keeps its pages."""
    before = private(path)
    mapping, weights = mappings.watch(path, lambda: private(path))
    after = private(path)
    before[:], after[:] = b"b" * len(before), b"a" * len(after)
    weights.populate()
    weights.give_back()
    assert (before[0], mapping[0], after[0]) == (ord("b"), ord("x"), ord("a"))


def test_pages_that_were_written_to(path: Path, mappings: Mappings) -> None:
    """Giving them back would lose what they hold, and that is known before."""

    def begin() -> mmap.mmap:
        mapping = private(path)
        mapping[5 * PAGE] = 0
        return mapping

    mapping, weights = mappings.watch(path, begin)
    assert not weights.are_the_files()
    assert mapping[5 * PAGE] == 0


def test_what_has_ended_is_left_alone(path: Path, mappings: Mappings) -> None:
    """The addresses of a session that has ended may be anything's."""
    mapping, weights = mappings.watch(path, lambda: private(path))
    weights.forget()
    mapping[:] = b"y" * len(mapping)
    weights.give_back()
    assert mapping[0] == ord("y")


def test_pages_behind_the_end_of_the_file(path: Path, mappings: Mappings) -> None:
    """Reading them would end the process; populating says so."""
    _mapping, weights = mappings.watch(path, lambda: private(path))
    os.truncate(path, PAGE)
    with pytest.raises(Damaged):
        weights.populate()


def test_nothing_mapped(tmp_path: Path, mappings: Mappings) -> None:
    """Nothing to do, nothing done."""
    _, weights = mappings.watch(tmp_path / "none.bin", lambda: None)
    assert weights.size_bytes == 0
    weights.populate()
    weights.give_back()


def test_maps_that_cannot_be_read(path: Path) -> None:
    """Then nothing is known to be mapped."""
    mappings = Mappings(ProcFiles(maps="/proc/self/none"), advise)
    _mapping, weights = mappings.watch(path, lambda: private(path))
    assert weights.size_bytes == 0


@pytest.mark.parametrize("pages", [1, 64, 40 * 256 + 3])
def test_page_cache(tmp_path: Path, pages: int) -> None:
    """A file that was just written is in it as a whole, also after it was deleted; looking at it maps nothing."""
    path = tmp_path / "file"
    path.write_bytes(bytes(pages * PAGE - 1))
    file = CachedFile(path)
    path.unlink()
    file.read_ahead()
    assert file.cached_bytes() == file.size_bytes == pages * PAGE - 1
    assert resident_bytes(path) == 0


def test_no_page_cache_of_nothing(tmp_path: Path) -> None:
    """Neither of a file that is not there nor of an empty one."""
    with pytest.raises(OSError, match="none"):
        CachedFile(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        CachedFile(tmp_path / "empty")


def test_reading_ahead_says_what_is_damaged(path: Path) -> None:
    """A file that is whole, one that was cut short, and one that was deleted."""
    file = CachedFile(path)
    assert file.read_ahead()
    os.truncate(path, 8 * PAGE)
    assert not file.read_ahead()
    deleted = CachedFile(path)
    path.unlink()
    assert deleted.read_ahead()
