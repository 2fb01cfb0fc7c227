"""A Jetson by jtop (the extra `jetson`), whose service reads more than a user may. Asked only where the settings say
so: jetson-stats is under the AGPL, and whoever may use its service is trusted by a process of root's.

Not run on a Jetson yet: the attributes are those of jetson-stats 7.2, tested against a fake of them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from appliance.domain.sensors import Quantity, Reading, plausible

_Q = Quantity


def jtop_client() -> Any:
    """A connected client, None where there is no such package or no service."""
    try:
        from jtop import jtop

        client = jtop(interval=1)
        client.start()
    except Exception:  # not installed, no service, another version's service
        return None
    return client


class JtopSensors:
    """Source over a client of jtop, which has a thread that fills its attributes."""

    def __init__(self, client: Callable[[], Any] = jtop_client) -> None:
        self._connect = client
        self._client: Any = None

    def look_round(self) -> None:
        if self._client is None:
            self._client = self._connect()

    def read(self) -> list[Reading]:
        if self._client is None:
            return []
        try:
            if not self._client.ok(spin=True):  # the service has gone
                self.close()
                return []
            return [*self._temperatures(), *self._power(), *self._gpu(), *self._fans()]
        except Exception:  # attributes of another version
            return []

    def throttled(self) -> Mapping[str, str]:
        """It does not tell; the kernel does."""
        return {}

    def close(self) -> None:
        if self._client is not None:
            with suppress(Exception):
                self._client.close()
        self._client = None

    def _temperatures(self) -> Iterator[Reading]:
        for name, one in self._client.temperature.items():
            value = _number(one.get("temp")) if one.get("online", True) else None
            yield _reading(name, _Q.CELSIUS, value, limit=_number(one.get("crit")))

    def _power(self) -> Iterator[Reading]:
        power = self._client.power
        total = {"total": power["tot"]} if "tot" in power else {}
        for name, one in {**power.get("rail", {}), **total}.items():
            yield _reading(name, _Q.WATTS, _scaled(one.get("power"), 1e-3))

    def _gpu(self) -> Iterator[Reading]:
        for name, one in self._client.gpu.items():
            clock, limit = one.get("freq", {}).get("cur"), one.get("freq", {}).get("max")
            yield _reading(f"{name} clock", _Q.MEGAHERTZ, _scaled(clock, 1e-3), "gpu", _scaled(limit, 1e-3))
            yield _reading(f"{name} load", _Q.PERCENT, _number(one.get("status", {}).get("load")), "gpu")

    def _fans(self) -> Iterator[Reading]:
        for name, one in self._client.fan.items():
            for number, speed in enumerate(one.get("rpm", [])):
                yield _reading(f"{name} {number}", _Q.RPM, _number(speed))


def _reading(
    name: str, quantity: Quantity, value: float | None, device: str = "", limit: float | None = None
) -> Reading:
    lower = name.lower()
    known = next((one for one in ("gpu", "cpu", "dla") if one in lower), "")
    return Reading("jtop", name, quantity, plausible(quantity, value), device or known, limit)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _scaled(value: Any, scale: float) -> float | None:
    known = _number(value)
    return None if known is None else round(known * scale, 3)
