"""NVIDIA's GPUs by NVML (`nvidia-ml-py`), where both the package and a driver are there.

Not run on a GPU yet: the functions and their units are those of NVIDIA's reference, tested against a fake of them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from appliance.domain.sensors import Quantity, Reading, plausible

_Q = Quantity
_THROTTLES: Mapping[int, str] = {
    0x08: "it is too hot, or short of power",
    0x20: "it is too hot",
    0x40: "it is too hot",
    0x80: "its power supply holds it back",
}
"""Bits of the clock event reasons. A power cap that was set (0x04) is none: under load a card is always there."""
_DRIVER = "proc/driver/nvidia/version"


def nvml(root: Path = Path("/")) -> Any:
    """The library, initialised; None where there is no driver, or no package. Not imported without a driver."""
    if not (root / _DRIVER).exists():
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, a driver of another version, a device that hangs
        return None
    return pynvml


class NvmlSensors:
    """Source over NVML. The first card is the device `gpu`."""

    def __init__(self, library: Callable[[], Any] = nvml) -> None:
        """`library`: NVML's functions, initialised, or None."""
        self._library = library
        self._nvml: Any = None
        self._cards: list[Any] = []
        self._throttled: dict[str, str] = {}

    def look_round(self) -> None:
        if self._nvml is None:
            self._nvml = self._library()
        self._cards = []
        if self._nvml is not None:
            with suppress(Exception):
                count = self._nvml.nvmlDeviceGetCount()
                self._cards = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def read(self) -> list[Reading]:
        self._throttled = {}
        return [one for index, card in enumerate(self._cards) for one in self._of(card, index)]

    def throttled(self) -> Mapping[str, str]:
        return self._throttled

    def close(self) -> None:
        if self._nvml is not None:
            with suppress(Exception):
                self._nvml.nvmlShutdown()
        self._nvml, self._cards = None, []

    def _of(self, card: Any, index: int) -> list[Reading]:
        library, device = self._nvml, "gpu" if index == 0 else f"gpu{index}"

        def reading(
            name: str, quantity: Quantity, ask: Callable[[], float], limit: Callable[[], float] | None = None
        ) -> Reading:
            most = None if limit is None else _asked(limit)
            return Reading("nvml", f"{device} {name}", quantity, plausible(quantity, _asked(ask)), device, most)

        reasons = _asked(lambda: library.nvmlDeviceGetCurrentClocksEventReasons(card))
        for bit, why in _THROTTLES.items():
            if reasons is not None and int(reasons) & bit:
                self._throttled.setdefault(device, why)
        return [
            reading("temperature", _Q.CELSIUS, lambda: library.nvmlDeviceGetTemperature(card, 0)),
            reading(
                "power",
                _Q.WATTS,
                lambda: library.nvmlDeviceGetPowerUsage(card) / 1000,
                lambda: library.nvmlDeviceGetEnforcedPowerLimit(card) / 1000,
            ),
            reading(
                "clock",
                _Q.MEGAHERTZ,
                lambda: library.nvmlDeviceGetClockInfo(card, 1),
                lambda: library.nvmlDeviceGetMaxClockInfo(card, 1),
            ),
            reading("load", _Q.PERCENT, lambda: library.nvmlDeviceGetUtilizationRates(card).gpu),
            reading("fan", _Q.PERCENT, lambda: library.nvmlDeviceGetFanSpeed(card)),
            reading(
                "memory",
                _Q.BYTES,
                lambda: library.nvmlDeviceGetMemoryInfo(card).used,
                lambda: library.nvmlDeviceGetMemoryInfo(card).total,
            ),
        ]


def _asked(question: Callable[[], float]) -> float | None:
    """None where the card has no such sensor, or does not answer."""
    try:
        return float(question())
    except Exception:  # NVMLError in many kinds; some cards answer with text
        return None
