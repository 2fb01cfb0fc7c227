"""Mapping a weights file in before the first run."""

import mmap
from pathlib import Path

import pytest

from appliance.runtime.processors.cpu.mapped import populate

PAGE = mmap.PAGESIZE


def resident_bytes(path: Path) -> int:
    """Bytes of this process's mappings of `path` that are in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.parametrize("name", ["model.bin", "with a space.bin"])
def test_pages_are_there_afterwards(tmp_path: Path, name: str) -> None:
    """A mapping that nobody has read is in memory as a whole."""
    path = tmp_path / name
    path.write_bytes(b"x" * (64 * PAGE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        mapping.madvise(mmap.MADV_RANDOM)  # else a single touch brings its neighbours
        done = populate(path)
        if not done:
            pytest.skip("this kernel cannot populate a mapping")
        assert done == 64 * PAGE
        assert resident_bytes(path) == 64 * PAGE


def test_file_that_is_not_mapped(tmp_path: Path) -> None:
    """Nothing to do, nothing done."""
    assert populate(tmp_path / "none.bin") == 0
