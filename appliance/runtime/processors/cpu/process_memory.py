"""What this process, or another one, has in memory, and its high-water mark, as the kernel counts them."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CLEAR_REFS = "/proc/self/clear_refs"
"""Written to by `reset_peak`."""


def memory_of(field: str, process: int | str = "self") -> int:
    """Bytes of a field of smaps_rollup: Pss, Rss. Raises: OSError of another process that has gone, or may not be
    looked into.
    """
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def own_bytes(*folders: Path) -> int:
    """What this process alone has in memory: what it allocated, and of mapped files those below `folders`. Of the
    libraries nothing counts, whose part of each process (Pss) grows by megabytes when another one ends; and the files
    below `folders` count in full, whoever else maps them. A few milliseconds.
    """
    taken = memory_of("Pss_Shmem")
    with Path("/proc/self/smaps").open("rb") as file:  # line by line: all of it would be memory of this process, too
        return taken + own_of(file, *folders)


def own_of(mappings: Iterable[bytes], *folders: Path) -> int:
    """The bytes of `own_bytes` in lines of smaps, shared memory apart."""
    places = [f" {place}/".encode() for folder in folders for place in {folder.absolute(), folder.resolve()}]
    taken, is_ours = 0, False
    for line in mappings:
        if not line[:1].isupper():  # a mapping; what follows is about it
            is_ours = any(place in line for place in places)
        elif line.startswith(b"Rss:" if is_ours else b"Anonymous:"):
            taken += int(line.split()[1]) * 1024
    return taken


def peak_rss() -> int:
    """The most bytes that were resident since the last `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """From now on `peak_rss` begins anew."""
    with suppress(OSError):
        Path(CLEAR_REFS).write_text("5")
