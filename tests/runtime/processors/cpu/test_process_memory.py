"""What a process has by itself is counted by what it did, not by what others do.

Each test looks at the mapping that it made: those are the kernel's exact figures, whatever else the process does.
"""

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.runtime.processors.cpu.process_memory import own_bytes, own_of
from tests.fakes.mappings import smaps_of

SIZE = 16 << 20
MAPS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[:: mmap.PAGESIZE])
print("mapped", flush=True)
sys.stdin.read()
"""


def _file(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * SIZE)
    return path


def _touched(path: Path, access: int = mmap.ACCESS_READ) -> mmap.mmap:
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=access)
    sum(mapped[:: mmap.PAGESIZE])
    return mapped


@contextmanager
def _mapped_by_another(path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", MAPS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"mapped\n"
        yield
        other.stdin.close()


@pytest.mark.usefixtures("processes")
def test_own_files_count_in_full_when_another_process_maps_them(tmp_path: Path) -> None:
    path = _file(tmp_path / "form" / "model.bin")
    with _touched(path):
        assert own_of(smaps_of(path), path.parent) == SIZE
        with _mapped_by_another(path):
            assert own_of(smaps_of(path), path.parent) == SIZE
        assert own_bytes(path.parent) >= SIZE
    assert own_of(smaps_of(path), path.parent) == 0


def test_process_memory_leaves_out_files_of_other_folders(tmp_path: Path) -> None:
    path = _file(tmp_path / "libraries" / "other.so")
    with _touched(path):
        assert smaps_of(path)
        assert own_of(smaps_of(path), tmp_path / "form") == 0


def test_written_pages_of_a_mapped_file_count_once(tmp_path: Path) -> None:
    """Wherever the file lies: the pages are this process's alone."""
    path = _file(tmp_path / "form" / "model.bin")
    with _touched(path, mmap.ACCESS_COPY) as mapped:
        mapped[:] = b"y" * SIZE
        assert own_of(smaps_of(path), path.parent) == SIZE
        assert own_of(smaps_of(path), tmp_path / "elsewhere") == SIZE


def test_folder_given_by_a_link_counts_files_of_the_target(tmp_path: Path) -> None:
    path = _file(tmp_path / "form" / "model.bin")
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    with _touched(path):
        assert own_of(smaps_of(path), link) == SIZE


def test_process_memory_is_anonymous_pages_and_files_of_the_folders(tmp_path: Path) -> None:
    """Lines as the kernel writes them: memory of no file, a library, and a form."""
    lines = f"""\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
Rss:                 400 kB
Anonymous:           300 kB
7f0000100000-7f0000200000 r-xp 00000000 fe:01 17         /usr/lib/libonnxruntime.so
Rss:                5000 kB
Anonymous:            20 kB
7f0000200000-7f0000300000 r--p 00000000 fe:01 18         {tmp_path}/model.bin
Rss:                1000 kB
Anonymous:             4 kB
""".encode().splitlines(keepends=True)
    assert own_of(lines, tmp_path) == (300 + 20 + 1000) * 1024
    assert own_of(lines) == (300 + 20 + 4) * 1024
