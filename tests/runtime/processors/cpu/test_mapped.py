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


def test_mapped_pages_are_populated_and_given_back(path: Path, mappings: Mappings) -> None:
    """A mapping that was never read is brought into memory as a whole, leaves it, and comes again."""
    mapping, weights = mappings.watch(path, lambda: private(path))
    assert weights.size_bytes == 64 * PAGE
    assert weights.are_the_files()
    for _ in range(2):
        weights.populate()
        assert resident_bytes(path) == 64 * PAGE
        weights.give_back()
        assert resident_bytes(path) == 0
    assert mapping[:] == b"x" * (64 * PAGE)


def test_give_back_leaves_other_mappings_of_the_file_unchanged(path: Path, mappings: Mappings) -> None:
    """A mapping made before, and one made after, keeps its pages."""
    before = private(path)
    mapping, weights = mappings.watch(path, lambda: private(path))
    after = private(path)
    before[:], after[:] = b"b" * len(before), b"a" * len(after)
    weights.populate()
    weights.give_back()
    assert (before[0], mapping[0], after[0]) == (ord("b"), ord("x"), ord("a"))


def test_mapping_with_written_pages_is_told_apart_from_the_file(path: Path, mappings: Mappings) -> None:
    """Giving the pages back would lose what they hold, and that is known before."""

    def begin() -> mmap.mmap:
        mapping = private(path)
        mapping[5 * PAGE] = 0
        return mapping

    mapping, weights = mappings.watch(path, begin)
    assert not weights.are_the_files()
    assert mapping[5 * PAGE] == 0


def test_pages_of_a_forgotten_mapping_are_left_alone(path: Path, mappings: Mappings) -> None:
    """The addresses of a session that has ended may be anything's."""
    mapping, weights = mappings.watch(path, lambda: private(path))
    weights.forget()
    mapping[:] = b"y" * len(mapping)
    weights.give_back()
    assert mapping[0] == ord("y")


def test_populating_pages_behind_the_end_of_the_file_raises_damaged(path: Path, mappings: Mappings) -> None:
    """Reading them would end the process."""
    _mapping, weights = mappings.watch(path, lambda: private(path))
    os.truncate(path, PAGE)
    with pytest.raises(Damaged):
        weights.populate()


def test_load_that_maps_no_file_has_no_mapped_weights(tmp_path: Path, mappings: Mappings) -> None:
    _, weights = mappings.watch(tmp_path / "none.bin", lambda: None)
    assert weights.size_bytes == 0
    weights.populate()
    weights.give_back()


def test_mapping_is_unknown_where_the_process_maps_cannot_be_read(path: Path) -> None:
    mappings = Mappings(ProcFiles(maps="/proc/self/none"), advise)
    _mapping, weights = mappings.watch(path, lambda: private(path))
    assert weights.size_bytes == 0


@pytest.mark.parametrize("pages", [1, 64, 40 * 256 + 3])
def test_written_file_is_whole_in_the_page_cache(tmp_path: Path, pages: int) -> None:
    """Also after it was deleted; looking at it maps nothing."""
    path = tmp_path / "file"
    path.write_bytes(bytes(pages * PAGE - 1))
    file = CachedFile(path)
    path.unlink()
    file.read_ahead()
    assert file.cached_bytes() == file.size_bytes == pages * PAGE - 1
    assert resident_bytes(path) == 0


def test_cached_file_of_a_missing_or_empty_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        CachedFile(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        CachedFile(tmp_path / "empty")


def test_reading_ahead_reports_a_truncated_file(path: Path) -> None:
    """A whole file is read, and so is one that was deleted."""
    file = CachedFile(path)
    assert file.read_ahead()
    os.truncate(path, 8 * PAGE)
    assert not file.read_ahead()
    deleted = CachedFile(path)
    path.unlink()
    assert deleted.read_ahead()
