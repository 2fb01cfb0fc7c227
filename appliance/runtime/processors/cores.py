"""How fast the cores of this machine are, as the system says, and which are alike."""

from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path("/sys/devices/system/cpu")
ALIKE = 0.85
"""A core at least this much as fast as the fastest one of a sort is of that sort: the best cores of some processors
clock a few per cent higher than the others, and run the same."""
_FILES = ("cpu_capacity", "cpufreq/cpuinfo_max_freq")
"""What a core computes against the fastest one, where the system knows it; else its highest clock."""


def speeds(cores: Collection[int], root: Path = ROOT) -> dict[int, float]:
    """Core → how fast it is, relative to the fastest of them; all 1 where the system does not say."""
    for name in _FILES:
        found = {core: _number(root / f"cpu{core}" / name) for core in cores}
        most = max(found.values(), default=0.0)
        if all(found.values()):
            return {core: value / most for core, value in sorted(found.items())}
    return dict.fromkeys(sorted(cores), 1.0)


def sorts(speed: Mapping[int, float]) -> list[tuple[int, ...]]:
    """The cores by sort, the fastest first."""
    found: list[list[int]] = []
    for core in sorted(speed, key=lambda core: (-speed[core], core)):
        if found and speed[core] >= ALIKE * speed[found[-1][0]]:
            found[-1].append(core)
        else:
            found.append([core])
    return [tuple(sorted(one)) for one in found]


def mean_speed(cores: Collection[int], speed: Mapping[int, float]) -> float:
    """Of some cores together; of none in particular it is that of all."""
    known = [speed[core] for core in cores or speed]
    return sum(known) / len(known)


def _number(path: Path) -> float:
    """0 where there is none."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return 0.0
