"""A disk that is really small."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.lacking import lacks_mounts, skip_if


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 3 MiB; skips where mounting is not allowed."""
    skip_if(lacks_mounts())
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
