"""What the machine's sensors tell, and which devices they say are throttled."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

_CORE = re.compile(r"cpu\d+")


class Quantity(StrEnum):
    """What a sensor measures; the unit is a part of it."""

    CELSIUS = "celsius"
    WATTS = "watts"
    MEGAHERTZ = "megahertz"
    RPM = "rpm"
    PERCENT = "percent"
    BYTES = "bytes"


PLAUSIBLE: Mapping[Quantity, tuple[float, float]] = {
    Quantity.CELSIUS: (-60.0, 150.0),
    Quantity.WATTS: (0.0, 10_000.0),
    Quantity.MEGAHERTZ: (1.0, 100_000.0),
    Quantity.RPM: (0.0, 100_000.0),
    Quantity.PERCENT: (0.0, 100.0),
    Quantity.BYTES: (0.0, 1e15),
}
"""Beyond these a sensor is broken, switched off (Jetsons say -256 °C) or overflowing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One sensor. `value` None = unknown."""

    source: str
    """Who tells it: `thermal`, `hwmon`, `cpufreq`, `devfreq`, `rapl`, `nvml`, `jtop`."""
    name: str
    """As the source calls it."""
    quantity: Quantity
    value: float | None
    device: str = ""
    """`cpu`, `gpu` or `dla` where it is that device's; empty: the machine's, or not known."""
    limit: float | None = None
    """The highest that it may become: what makes the machine stop, or the highest clock."""


def plausible(quantity: Quantity, value: float | None) -> float | None:
    """The value, None where it is absent or absurd. No chip that computes has exactly 0 °C: that is a sensor which
    answers without measuring.
    """
    low, high = PLAUSIBLE[quantity]
    if value is None or not low <= value <= high or (quantity is Quantity.CELSIUS and value == 0):
        return None
    return value


@dataclass(frozen=True, slots=True)
class Sensed:
    """All sensors at one instant. `at_ns` on the clock's monotonic scale; 0 = nothing was read yet."""

    at_ns: int = 0
    readings: tuple[Reading, ...] = ()
    throttled: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Devices that compute more slowly than they could, because of heat or power, and why: `cpu` is all of it, `cpu3`
    the core of that number."""

    def why_throttled(self, device: str, cores: Collection[int] = ()) -> str:
        """Why what computes on a device is throttled, on some of its cores if they are named; empty: it is not."""
        if device in self.throttled:
            return self.throttled[device]
        if device != "cpu":
            return ""
        wanted = {f"cpu{core}" for core in cores}
        own = (one for one in sorted(self.throttled) if (one in wanted if wanted else _CORE.fullmatch(one)))
        return next((self.throttled[one] for one in own), "")
