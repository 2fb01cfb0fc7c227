"""What a tenant's devices of an application lose with age that have not said so yet: what others of these do, or did.

Where tenants share an application each goes by its own devices: those of another one may say what they like.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from appliance.clock import NS_PER_S
from appliance.runtime.sessions.curves import RATE_PRIOR
from appliance.runtime.sessions.live import LiveSession

RATE_NS = 60 * NS_PER_S
"""So long the rate counts of devices that are there no more. Else one that saw something hectic, or made its reports
up, would keep out all that come after it: who is not let in never says what it loses."""
Key = tuple[str, str]
"""A tenant, and the application that its devices' frames go to."""


class DropPriors:
    """Of all tenants. Event-loop thread only."""

    def __init__(self) -> None:
        self._rates: dict[Key, tuple[float, int]] = {}
        """With the time at which a device was there that knew it."""
        self._times: dict[Key, dict[str, float]] = {}
        """The same → variant → what its results lose with a frame of age, times what those of the best one do."""

    def forget(self, application_id: str) -> None:
        """It is no more, or asks another model, whose variants may have the same names."""
        self._forget(lambda key: key[1] == application_id)

    def forget_tenant(self, tenant: str) -> None:
        """It is no more."""
        self._forget(lambda key: key[0] == tenant)

    def _forget(self, is_gone: Callable[[Key], bool]) -> None:
        for key in [key for key in {*self._rates, *self._times} if is_gone(key)]:
            self._rates.pop(key, None)
            self._times.pop(key, None)

    def estimate(self, key: Key, known: Iterable[LiveSession], sessions: Sequence[LiveSession], now_ns: int) -> None:
        """Tell `sessions` of a tenant at an application what those of it that are `known` have measured: the rate as
        three of four do at most, and how the rates of variants compare where some device has measured both.
        """
        own = [live for live in known if live.ageing.is_rate_known and _key_of(live) == key]
        rates = sorted(live.curves.rate for live in own)
        if rates:
            self._rates[key] = rates[3 * len(rates) // 4], now_ns
        times = self._times.setdefault(key, {})
        measured = [one for live in own if (one := live.curves.times_measured())]
        for variant in {name for one in measured for name in one}:
            times[variant] = median(one[variant] for one in measured if variant in one)
        rate, last_ns = self._rates.get(key, (None, 0))
        if now_ns - last_ns > RATE_NS:
            rate = RATE_PRIOR
        for live in sessions:
            live.curves.times = times
            if not live.ageing.is_rate_known and rate is not None:
                live.curves.rate = rate


def _key_of(live: LiveSession) -> Key:
    return live.session.tenant, live.session.application_id
