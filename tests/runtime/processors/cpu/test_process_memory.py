"""What a process has by itself is counted by what it did, not by what others do."""

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.runtime.processors.cpu.process_memory import own_bytes

SIZE, TOLERATED = 16 << 20, 1 << 20
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


def test_own_files_count_in_full_whoever_else_maps_them(tmp_path: Path) -> None:
    path = _file(tmp_path / "form" / "model.bin")
    base = own_bytes(path.parent)
    with _touched(path):
        assert abs(own_bytes(path.parent) - base - SIZE) < TOLERATED
        with _mapped_by_another(path):
            assert abs(own_bytes(path.parent) - base - SIZE) < TOLERATED
    assert abs(own_bytes(path.parent) - base) < TOLERATED


def test_files_elsewhere_do_not_count(tmp_path: Path) -> None:
    path = _file(tmp_path / "libraries" / "other.so")
    base = own_bytes(tmp_path / "form")
    with _touched(path):
        assert abs(own_bytes(tmp_path / "form") - base) < TOLERATED


def test_pages_of_a_file_that_were_written_count_once(tmp_path: Path) -> None:
    path = _file(tmp_path / "form" / "model.bin")
    base = own_bytes(path.parent)
    with _touched(path, mmap.ACCESS_COPY) as mapped:
        mapped[:] = b"y" * SIZE
        assert abs(own_bytes(path.parent) - base - SIZE) < TOLERATED


def test_a_folder_is_the_one_that_a_link_leads_to(tmp_path: Path) -> None:
    path = _file(tmp_path / "form" / "model.bin")
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    base = own_bytes(link)
    with _touched(path):
        assert abs(own_bytes(link) - base - SIZE) < TOLERATED
