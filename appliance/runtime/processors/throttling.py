"""Which processors are throttled, as the machine's sensors say: those that dispatch spares as far as others have time.

A processor that is throttled computes all the same, more slowly; one that was shut down because of heat is lost.
"""

from collections.abc import Callable, Mapping
from functools import partial

from appliance.domain.hardware import ProcessorDescription
from appliance.domain.sensors import Sensed


class Throttling:
    """Event-loop thread only."""

    def __init__(self, devices: Mapping[str, str]) -> None:
        """`devices`: kind of processor → the device that it computes on."""
        self._devices = devices
        self._told: dict[str, bool] = {}
        self.sensed: Callable[[], Sensed] = Sensed
        """What sensors say now."""

    def why(self, one: ProcessorDescription) -> str:
        """Why a processor is throttled; empty: it is not."""
        device = self._devices.get(one.kind)
        return "" if device is None else self.sensed().why_throttled(device, one.cores)

    def of(self, one: ProcessorDescription) -> Callable[[], bool]:
        """Whether that one is throttled, whenever it is asked."""
        return partial(self._is_throttled, one)

    def has_changed(self, one: ProcessorDescription) -> bool:
        """Whether a processor is throttled, or is not, other than when this was asked last."""
        now, before = self._is_throttled(one), self._told.get(one.name, False)
        self._told[one.name] = now
        return now is not before

    def _is_throttled(self, one: ProcessorDescription) -> bool:
        return bool(self.why(one))
