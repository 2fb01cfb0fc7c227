"""Memory that the box may have: the machine's, within the limits of the cgroups that the box is in."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.resources.cgroups import MACHINE, Cgroup, limit_in, own_cgroups

_LIMIT = "memory.limit_in_bytes"
_STAT = "memory.stat"
_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
_LIMITS = {1: (_LIMIT,), 2: ("memory.max", "memory.high")}
_FILES = ("memory.use_hierarchy", _STAT, *_USED.values(), *_LIMITS[1], *_LIMITS[2])
_PLENTY = 0.2
"""Share of the total memory. While so much is available, stalls do not show that the box lacks memory.

They are stalls of other processes, within limits of their own. Or they are stalls of processes that write files, for
which the kernel drops page cache.
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes: the total under the tightest limit, and the least that any limit leaves available and free."""

    total_bytes: int
    available_bytes: int
    """Bytes that could be taken without swapping; page cache that can be dropped counts as available."""
    free_bytes: int
    """Bytes that are free; page cache counts as used."""
    bound: str = ""
    """File of the cgroup whose limit is `total_bytes`; empty where `total_bytes` is the machine's."""

    def is_scarce(self, reserve_bytes: int) -> bool:
        """Return whether programs that wait for memory lack it.

        They do where less than `reserve_bytes` is free, and less than a fifth of the total is available.
        """
        return self.free_bytes < reserve_bytes and self.available_bytes < _PLENTY * self.total_bytes


class MemoryLimits:
    """Limits of memory, read anew at each question, because they may change. The cgroups are looked up once."""

    def __init__(self, root: Path = MACHINE) -> None:
        """Look up the cgroups and read their limits. Raises: OSError where the machine says nothing of its memory."""
        self._meminfo = root / "proc/meminfo"
        self._cgroups = own_cgroups("memory", root)
        self._last = self._read()

    @property
    def files(self) -> list[str]:
        """Return the paths of the cgroups' files that `now` reads."""
        return [str(one.folder / name) for one in self._cgroups for name in _FILES]

    def now(self) -> Memory:
        """Return the memory now; where this process may open no more files, return what was read last."""
        with suppress(OSError):
            self._last = self._read()
        return self._last

    def _read(self) -> Memory:
        found = _of_machine(self._meminfo.read_text())
        for at, cgroup in enumerate(self._cgroups):
            for one in _of_cgroup(cgroup, is_own=at == 0):
                tightest = min(found, one, key=lambda memory: memory.total_bytes)
                found = Memory(
                    tightest.total_bytes,
                    min(found.available_bytes, one.available_bytes),
                    min(found.free_bytes, one.free_bytes),
                    tightest.bound,
                )
        return found


def _of_machine(meminfo: str) -> Memory:
    rows = (line.replace(":", " ").split() for line in meminfo.splitlines())
    known = {row[0]: int(row[1]) * 1024 for row in rows if len(row) > 1}
    total, free = known.get("MemTotal", 0), known.get("MemFree", 0)
    return Memory(total, min(total, known.get("MemAvailable", free)), free)


def _of_cgroup(cgroup: Cgroup, *, is_own: bool) -> Iterator[Memory]:
    """Yield the memory under each limit of a cgroup; nothing where there is no limit."""
    limits = {name: cgroup.number(name) for name in _LIMITS[cgroup.version]}
    stat: Mapping[str, int] = {}
    if is_own or any(limit is not None for limit in limits.values()):
        stat = cgroup.numbers(_STAT)
    if cgroup.version == 1:
        if not is_own and cgroup.number("memory.use_hierarchy") == 0:
            return  # what is in cgroups below does not count here
        # The tightest limit above, which a container does not see otherwise.
        above = limit_in(str(stat.get("hierarchical_memory_limit")))
        limits[_LIMIT] = min((one for one in (limits[_LIMIT], above) if one is not None), default=None)
    used = cgroup.number(_USED[cgroup.version]) or 0
    held = max(0, used - _cache_bytes(stat, "total_" if cgroup.version == 1 else ""))
    for name, limit in limits.items():
        if limit is not None:
            yield Memory(limit, max(0, limit - held), max(0, limit - used), name)


def _cache_bytes(stat: Mapping[str, int], prefix: str) -> int:
    """Return the bytes that the kernel drops when other programs need memory.

    These are file pages that no process has mapped, and caches of the kernel's own. Mapped pages are left out, because
    weights in use are mapped files.
    """
    pages = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
    mapped = stat.get("total_mapped_file" if prefix else "file_mapped", 0)
    return max(0, pages - mapped) + stat.get("slab_reclaimable", 0)
