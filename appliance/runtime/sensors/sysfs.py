"""Sensors that the kernel shows as files: thermal zones, hwmon, clocks, cooling devices and the energy counters of the
processor.

Every value is read by a path that was found once, for a directory costs more to list than a file to read.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.clock import NS_PER_S, Clock
from appliance.domain.sensors import Quantity, Reading, plausible

_Q = Quantity
_HWMON: Mapping[str, tuple[Quantity, float]] = {
    "temp": (_Q.CELSIUS, 1e-3),
    "power": (_Q.WATTS, 1e-6),
    "fan": (_Q.RPM, 1.0),
}
"""First part of a file's name → what it measures, and what one of its units is."""
_DEVICES = (
    ("gpu", re.compile(r"gpu|ga10b|gv11b|gp10b|devfreq|amdgpu|nouveau|radeon|i915|\bxe\b", re.I)),
    ("dla", re.compile(r"dla|\bcv\d?|nvdla", re.I)),
    ("cpu", re.compile(r"cpu|core|package|tctl|tdie|k10temp|x86_pkg|processor|powerclamp", re.I)),
)
"""Device → names of sensors and of things that cool it; the first that fits."""
_THROTTLES = re.compile(r"^(?!.*fan).*(^processor$|cpufreq|idle|powerclamp|devfreq|throttle-alert|gpu|dla)", re.I)
"""Cooling devices that work by computing less. The others are fans, settings and the like."""
_CORES_CLOCK = re.compile(r"cpufreq-(cpu\d+)$")


@dataclass(frozen=True, slots=True)
class _File:
    """A reading that is one file, or the product of two."""

    source: str
    name: str
    quantity: Quantity
    path: Path
    scale: float
    times: Path | None = None
    limit: float | None = None

    def reading(self) -> Reading:
        value = number(self.path)
        if value is not None and self.times is not None:
            factor = number(self.times)
            value = None if factor is None else value * factor
        value = None if value is None else round(value * self.scale, 3)
        known = plausible(self.quantity, value)
        return Reading(self.source, self.name, self.quantity, known, device_of(self.name), self.limit)


@dataclass(slots=True)
class _Counter:
    """A reading that is how fast a counter of microjoules grows."""

    name: str
    path: Path
    wraps_at: float | None
    last: tuple[int, float] | None = None

    def reading(self, now_ns: int) -> Reading:
        count, before = number(self.path), self.last
        self.last = None if count is None else (now_ns, count)
        watts = None
        if count is not None and before is not None and now_ns > before[0]:
            grown = count - before[1]
            if grown < 0 and self.wraps_at is not None:
                grown += self.wraps_at
            watts = round(grown * 1e-6 / ((now_ns - before[0]) / NS_PER_S), 3)
        return Reading("rapl", self.name, _Q.WATTS, plausible(_Q.WATTS, watts), device_of(self.name))


class SysfsSensors:
    """Source over the files below `root`/sys."""

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._sys = root / "sys"
        self._files: list[_File] = []
        self._counters: dict[Path, _Counter] = {}
        self._cooling: list[tuple[str, tuple[str, ...], Path]] = []
        """Kind, devices that it slows, and the file that says how much of that it does."""
        self._throttle_counts: dict[Path, float | None] = {}
        """File of a core's or package's throttling events → how many there were at the last read."""
        self._throttled: dict[str, str] = {}

    def look_round(self) -> None:
        """Find the files; counters that are known go on from where they were."""
        sys = self._sys
        self._files = _unique([*_thermal(sys), *_hwmon(sys), *_cpufreq(sys), *_devfreq(sys)])
        found = {one.path: one for one in _rapl(sys)}
        self._counters = {path: self._counters.get(path, one) for path, one in found.items()}
        self._cooling = list(_cooling(sys))
        counts = sorted(sys.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count"))
        self._throttle_counts = {path: self._throttle_counts.get(path) for path in counts}

    def read(self) -> list[Reading]:
        now_ns = self._clock.now_ns()
        readings = [one.reading() for one in self._files]
        readings += [one.reading(now_ns) for one in self._counters.values()]
        self._throttled = self._look_for_throttling()
        return readings

    def throttled(self) -> Mapping[str, str]:
        return self._throttled

    def close(self) -> None:
        """Nothing is held open."""

    def _look_for_throttling(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for kind, devices, path in self._cooling:
            if (number(path) or 0) > 0:  # idle injection says -1 when it is off
                for device in devices:
                    found.setdefault(device, f"the kernel holds it back ({kind})")
        cores = dict[str, str]()
        for path, before in self._throttle_counts.items():
            count = self._throttle_counts[path] = number(path)
            if count is not None and before is not None and count > before:
                what = path.name.removesuffix("_throttle_count")
                of = cores if what == "core" else found
                of.setdefault(path.parts[-3] if what == "core" else "cpu", f"it is too hot ({what} throttled)")
        if cores and len(cores) == len({path.parts[-3] for path in self._throttle_counts}):
            found.setdefault("cpu", next(iter(cores.values())))
        else:
            found = {**cores, **found}
        return found


def _unique(files: list[_File]) -> list[_File]:
    """Each with a name of its own: two disks of one kind call theirs alike."""
    seen = Counter[tuple[str, str, Quantity]]()
    for place, one in enumerate(files):
        key = (one.source, one.name, one.quantity)
        seen[key] += 1
        if seen[key] > 1:
            files[place] = replace(one, name=f"{one.name} ({seen[key]})")
    return files


def device_of(name: str) -> str:
    """Whose a sensor is, by its name; empty where that does not tell."""
    return next((device for device, pattern in _DEVICES if pattern.search(name)), "")


def number(path: Path) -> float | None:
    """What a file says; None where it cannot be read, or is no number."""
    try:
        return float(path.read_bytes())
    except (OSError, ValueError):
        return None


def _text(path: Path, otherwise: str) -> str:
    try:
        return path.read_text(errors="replace").strip("\0\n ") or otherwise
    except OSError:
        return otherwise


def _thermal(sys: Path) -> Iterator[_File]:
    for zone in sorted(sys.glob("class/thermal/thermal_zone*")):
        limits = [
            limit
            for kind in zone.glob("trip_point_*_type")
            if _text(kind, "") == "critical"
            and (limit := _limit(kind.with_name(kind.name.replace("_type", "_temp")), _Q.CELSIUS, 1e-3)) is not None
        ]
        name = _text(zone / "type", zone.name)
        yield _File("thermal", name, _Q.CELSIUS, zone / "temp", 1e-3, limit=min(limits, default=None))


def _limit(path: Path, quantity: Quantity, scale: float) -> float | None:
    value = number(path)
    return None if value is None else plausible(quantity, value * scale)


def _hwmon(sys: Path) -> Iterator[_File]:
    for chip in sorted(sys.glob("class/hwmon/hwmon*")):
        name = _text(chip / "name", chip.name)
        for prefix, (quantity, scale) in _HWMON.items():
            for path in _inputs(chip, prefix):
                channel = path.name.partition("_")[0]
                told = f"{name} {_text(chip / f'{channel}_label', channel)}"
                limit = _limit(chip / f"{channel}_crit", quantity, scale)
                yield _File("hwmon", told, quantity, path, scale, limit=limit)
        yield from _rails(chip, name)


def _inputs(chip: Path, prefix: str) -> list[Path]:
    """Of each channel the momentary value, or else its average."""
    found = {path.name.partition("_")[0]: path for path in chip.glob(f"{prefix}[0-9]*_average")}
    found |= {path.name.partition("_")[0]: path for path in chip.glob(f"{prefix}[0-9]*_input")}
    return [found[channel] for channel in sorted(found)]


def _rails(chip: Path, name: str) -> Iterator[_File]:
    """Watts as volts times amperes, of chips that tell both but not the product (INA3221, on Jetsons)."""
    if any(chip.glob("power[0-9]*_input")):
        return
    for current in sorted(chip.glob("curr[0-9]*_input")):
        channel = re.sub(r"\D", "", current.name)
        volts = chip / f"in{channel}_input"
        if volts.exists():
            told = f"{name} {_text(chip / f'in{channel}_label', f'rail{channel}')}"
            yield _File("hwmon", told, _Q.WATTS, current, 1e-6, times=volts)


def _cpufreq(sys: Path) -> Iterator[_File]:
    for policy in sorted(sys.glob("devices/system/cpu/cpufreq/policy*")):
        limit = _limit(policy / "cpuinfo_max_freq", _Q.MEGAHERTZ, 1e-3)
        name = policy.name.replace("policy", "cpu")
        yield _File("cpufreq", name, _Q.MEGAHERTZ, policy / "scaling_cur_freq", 1e-3, limit=limit)


def _devfreq(sys: Path) -> Iterator[_File]:
    for device in sorted(sys.glob("class/devfreq/*")):
        limit = _limit(device / "max_freq", _Q.MEGAHERTZ, 1e-6)
        yield _File("devfreq", device.name, _Q.MEGAHERTZ, device / "cur_freq", 1e-6, limit=limit)
        if (device / "device" / "load").exists():  # of Tegra's GPU, in thousandths
            yield _File("devfreq", f"{device.name} load", _Q.PERCENT, device / "device" / "load", 0.1)


def _rapl(sys: Path) -> Iterator[_Counter]:
    """Only root may read them on most machines."""
    for domain in sorted(sys.glob("class/powercap/intel-rapl:*")):
        if number(domain / "energy_uj") is not None:
            wraps_at = number(domain / "max_energy_range_uj")
            yield _Counter(_text(domain / "name", domain.name), domain / "energy_uj", wraps_at)


def _cooling(sys: Path) -> Iterator[tuple[str, tuple[str, ...], Path]]:
    """What cools by computing less: its kind, what it slows, and the file that says how much of that it does."""
    is_one: Callable[[str], object] = _THROTTLES.search
    for device in sorted(sys.glob("class/thermal/cooling_device*")):
        kind = _text(device / "type", "")
        if is_one(kind):
            yield kind, _slowed_by(sys, kind), device / "cur_state"


def _slowed_by(sys: Path, kind: str) -> tuple[str, ...]:
    """Devices: of what lowers the clock of some cores (`cpufreq-cpu4`) these cores."""
    core = _CORES_CLOCK.search(kind)
    if core is None:
        return (device_of(kind) or "cpu",)
    related = _text(sys / f"devices/system/cpu/{core[1]}/cpufreq/related_cpus", core[1].removeprefix("cpu"))
    return tuple(f"cpu{one}" for one in related.split())
