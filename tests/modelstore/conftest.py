"""A box's store, and a disk that is really small."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from appliance.modelstore.store.store import Store
from tests.harness.lacking import lacks_mounts, skip_if
from tests.modelstore.boxes import Parts, parts


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Parts]:
    """A box in `tmp_path / "state"` whose importer does not run."""
    async with parts(tmp_path / "state", runs=False) as made:
        yield made


@pytest.fixture
def store(box: Parts) -> Store:
    """The store of `box`."""
    return box.store


@pytest.fixture
def disk_mib() -> int:
    """The size of `small_disk`."""
    return 3


@pytest.fixture
def small_disk(processes: None, tmp_path: Path, disk_mib: int) -> Iterator[Path]:
    """A folder on a file system of its own; skips where mounting is not allowed."""
    skip_if(lacks_mounts())
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mib}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
