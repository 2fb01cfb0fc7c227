"""Trims of the C heap are few, and never forgotten."""

import subprocess
import sys
import threading
from itertools import count

import pytest

from appliance.runtime.processors.cpu.heap import Trimmer, free_bytes
from tests.harness.lacking import lacks_glibc, skip_if

LONG_S = 240.0
PAGES_OF_A_ROUND = 24 * 256


class Trims:
    """Counts what stands in for the trim."""

    def __init__(self) -> None:
        self._came = threading.Semaphore(0)

    def __call__(self) -> None:
        self._came.release()

    def comes(self, wait_s: float) -> bool:
        return self._came.acquire(timeout=wait_s)


def test_first_trim_comes_at_once() -> None:
    """It does not wait for a rest."""
    trims = Trims()
    trimmer = Trimmer(trims, rest_s=2 * LONG_S)
    assert not trims.comes(0.05)
    trimmer.want()
    assert trims.comes(LONG_S)
    trimmer.close()


def test_trim_requests_during_a_trim_are_served_by_a_single_trim() -> None:
    """And those during the rest after it."""
    trims, may_end = Trims(), threading.Event()

    def held_trim() -> None:
        trims()
        may_end.wait()

    trimmer = Trimmer(held_trim, rest_s=0.05)
    trimmer.want()
    assert trims.comes(LONG_S)
    for _ in range(50):
        trimmer.want()
    may_end.set()
    assert trims.comes(LONG_S)
    assert not trims.comes(0.5)
    trimmer.close()


@pytest.mark.parametrize(("patience_s", "comes"), [(LONG_S, False), (0.2, True)])
def test_trim_waits_for_a_quiet_moment_until_patience_ends(patience_s: float, comes: bool) -> None:
    """A process that runs all the time keeps the pages, as long as the patience lasts."""
    trims, runs = Trims(), count()
    trimmer = Trimmer(trims, runs=lambda: next(runs), rest_s=LONG_S, quiet_s=0.02, patience_s=patience_s)
    trimmer.want()
    assert trims.comes(LONG_S if comes else 0.3) is comes
    trimmer.close()


def test_heap_left_large_by_a_rush_is_trimmed_once() -> None:
    """Without a request: nothing runs any more, and much is free. Little that is free stays."""
    trims, ran, free = Trims(), [0], [0]
    trimmer = Trimmer(trims, runs=lambda: ran[0], free=lambda: free[0], rest_s=0.05)
    free[0] = 1 << 30
    assert not trims.comes(0.3)  # nothing has run
    ran[0] = 1
    assert trims.comes(LONG_S)
    assert not trims.comes(0.3)
    free[0], ran[0] = 1 << 20, 2
    assert not trims.comes(0.3)
    trimmer.close()


def test_heap_left_large_by_a_rush_is_trimmed_while_others_run() -> None:
    """Of a process that always has runs; what one of them needed at any look of the last minute stays."""
    trims, runs, looks, used = Trims(), count(), count(), 6

    def free() -> int:
        return 1 << 30 if next(looks) % used else 1 << 20

    trimmer = Trimmer(trims, runs=lambda: next(runs), free=free, rest_s=0.02, patience_s=used * 0.02)
    assert not trims.comes(0.5)
    used = 1 << 60
    assert trims.comes(LONG_S)
    trimmer.close()


def test_free_bytes_are_those_of_the_heap() -> None:
    """What many small objects leave is free until it is trimmed."""
    skip_if(lacks_glibc())
    kept = [bytearray(2000) for _ in range(20_000)]
    before = free_bytes()
    del kept[::2]
    assert free_bytes() - before > 15_000_000


def test_closed_trimmer_trims_no_more() -> None:
    """Closing wakes the thread, and it ends."""
    trims = Trims()
    trimmer = Trimmer(trims, rest_s=LONG_S)
    trimmer.close()
    trimmer.want()
    assert not trims.comes(0.1)


@pytest.mark.usefixtures("processes")
def test_heap_freed_by_a_run_serves_the_next_without_page_faults() -> None:
    """24 MB in blocks of 1 MB: by itself the heap gives them back to the system every time."""

    def faults(*arguments: str) -> int:
        child = [sys.executable, "-m", "tests.runtime.processors.cpu.heap_child", *arguments]
        return int(subprocess.run(child, check=True, capture_output=True, text=True).stdout)

    skip_if(lacks_glibc())
    assert faults("plain") >= PAGES_OF_A_ROUND
    assert faults() < PAGES_OF_A_ROUND // 10
