"""What devices of an application lose with age that have not said so yet: what others of it do, or did."""

from collections.abc import Iterable, Sequence
from statistics import median

from appliance.runtime.sessions.live import LiveSession


class DropPriors:
    """By application. Event-loop thread only."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self._times: dict[str, dict[str, float]] = {}
        """Application → variant → what its results lose with a frame of age, times what those of the best one do."""

    def forget(self, application_id: str) -> None:
        """It is no more, or asks another model, whose variants may have the same names."""
        self._rates.pop(application_id, None)
        self._times.pop(application_id, None)

    def estimate(self, application_id: str, known: Iterable[LiveSession], sessions: Sequence[LiveSession]) -> None:
        """Tell `sessions` what those that are `known` have measured: the rate as three of four do at most, and how the
        rates of variants compare where some device has measured both.
        """
        own = [live for live in known if live.ageing.is_rate_known and live.session.application_id == application_id]
        rates = sorted(live.curves.rate for live in own)
        if rates:
            self._rates[application_id] = rates[3 * len(rates) // 4]
        times = self._times.setdefault(application_id, {})
        measured = [one for live in own if (one := live.curves.times_measured())]
        for variant in {name for one in measured for name in one}:
            times[variant] = median(one[variant] for one in measured if variant in one)
        for live in sessions:
            live.curves.times = times
            if not live.ageing.is_rate_known:
                live.curves.rate = self._rates.get(application_id, live.curves.rate)
