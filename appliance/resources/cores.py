"""Cores that the box may have: the cores of its cpuset and affinity.

At once it may use no more cores than its quota of processor time allows.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.resources.cgroups import MACHINE, Cgroup, own_cgroups

_CPUSETS = {1: ("cpuset.effective_cpus", "cpuset.cpus"), 2: ("cpuset.cpus.effective",)}
_ONLINE = "sys/devices/system/cpu/online"


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores by number, and how many of them may be at work at once."""

    numbers: frozenset[int]
    count: int
    """Cores that may be at work at once, at least 1; a quota that is no whole number is rounded down."""
    bound: str = ""
    """Name of the limit that allows no more cores; empty where the machine has no more.

    The name is a cgroup's file with its quota in cores (`cpu.max: 1.5`), the file of a cpuset, or `affinity`.
    """


def usable_cores() -> Cores:
    """Return the cores of this process on this machine. Threads of it that are kept to a core change nothing."""
    return cores_within(os.sched_getaffinity(os.getpid()))


def cores_within(affinity: Collection[int], root: Path = MACHINE) -> Cores:
    """Return the cores of a process with this affinity, by the files below `root`."""
    numbers, bound = frozenset(affinity), ""
    online = cores_in(_text(root / _ONLINE)) or numbers
    for file, allowed in _cpusets(root):
        numbers = numbers & allowed or numbers
        if online - allowed:
            bound = file
    if not bound and online - numbers:
        bound = "affinity"
    quota, file = min(_quotas(root), default=(float(len(numbers)), ""))
    count = max(1, min(len(numbers), int(quota)))
    return Cores(numbers, count, f"{file}: {quota:g}" if count < len(numbers) else bound)


def cores_in(text: str) -> frozenset[int]:
    """Return the numbers in a list as the kernel writes it: `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _cpusets(root: Path) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield the file of the nearest cpuset, and the cores that it names; nothing where no cgroup has such a file.

    The nearest cpuset is enough, because it lies within the cpusets above.
    """
    for cgroup in own_cgroups("cpuset", root):
        for file in _CPUSETS[cgroup.version]:
            if allowed := cores_in(cgroup.text(file)):
                yield file, allowed
                return


def _quotas(root: Path) -> Iterator[tuple[float, str]]:
    """Yield each quota in cores, with the name of the file that states it."""
    for cgroup in own_cgroups("cpu", root):
        file, microseconds, period = _quota(cgroup)
        if microseconds.isdigit() and period.isdigit() and int(period):
            yield int(microseconds) / int(period), file


def _quota(cgroup: Cgroup) -> tuple[str, str, str]:
    """Return the file's name, the quota in microseconds and its period; a text that is no number means no quota."""
    if cgroup.version == 1:
        return "cpu.cfs_quota_us", cgroup.text("cpu.cfs_quota_us"), cgroup.text("cpu.cfs_period_us")
    microseconds, _, period = cgroup.text("cpu.max").partition(" ")
    return "cpu.max", microseconds, period


def _text(path: Path) -> str:
    """Return the text of a file; empty where the file cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
