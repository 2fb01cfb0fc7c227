"""What a session's device loses with the age of what it shows, by the variant that it is a result of: its drop curves.

As far as the device has measured them they are its own, within reason. Of other variants the gap is what their measured
accuracy is below the best one's, and the rate follows from its own by how those of others compare; where nobody has
compared them it is the one that the device has named last: gap and stride add up.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import median

from appliance.domain.session import DeviceReport, VariantDrop
from appliance.policies.sending.drop import Drop
from appliance.runtime.sessions.zoo import Rung

RATE_PRIOR = 0.006
"""Share of 1 per frame, before a device has estimated its own (ARISE's middle)."""
RATE_MIN, RATE_MAX = 1e-4, 0.2
BASE_MAX = 0.5
TIMES_MAX = 10.0
"""How many times faster or slower than those of the best one a variant's results are taken to age, where another device
says so: of a still picture, and of a device that makes its reports up, the two rates compare as anything.
"""


class Curves:
    """Of one session."""

    def __init__(self) -> None:
        self.rate = RATE_PRIOR
        """Share of 1 per frame of whatever the device does not tell apart."""
        self.base = 0.0
        """Share of 1 that tracking loses at once, by the device's word."""
        self.times: Mapping[str, float] = {}
        """Variant → its rate times the best one's, as other devices of its tenant have measured both."""
        self._drops: Mapping[str, VariantDrop] = {}
        self._gaps: dict[str, float] = {}
        """By the accuracies that the box knows."""
        self._best = ""

    def report(self, report: DeviceReport) -> bool:
        """Believe what a device says, within reason. Whether it says at which rate it loses."""
        if report.drop_base is not None and not isnan(report.drop_base):
            self.base = _within(report.drop_base, 0.0, BASE_MAX)
        if report.drop_curves is not None:
            self._drops = report.drop_curves
        if report.drop_rate is None or isnan(report.drop_rate):
            return False
        self.rate = _within(report.drop_rate, RATE_MIN, RATE_MAX)
        return True

    def know(self, rungs: Sequence[Rung], best: Rung) -> None:
        """What variants there are, as they were measured when they came to the box."""
        self._best = best.name
        self._gaps = {rung.name: max(0.0, best.accuracy - rung.accuracy) / 100.0 for rung in rungs}

    def gap_of(self, variant: str) -> float:
        """Share of 1 that fresh results of a variant are behind those of the best one."""
        said = None if variant not in self._drops else self._drops[variant].gaps.get(self._best)
        if variant == self._best or said is None or isnan(said):
            return self._gaps.get(variant, 0.0)
        return _within(said, 0.0, BASE_MAX)

    def rate_of(self, variant: str) -> float:
        """Share of 1 that results of a variant lose with each frame of age."""
        if self.is_measured(variant):
            return _within(self._drops[variant].rate, RATE_MIN, RATE_MAX)
        if variant not in self.times:
            return self.rate
        of_best = [self.rate_of(name) / times for name, times in self.times.items() if times and self.is_measured(name)]
        return _within(median(of_best) * self.times[variant], RATE_MIN, RATE_MAX) if of_best else self.rate

    def is_measured(self, variant: str) -> bool:
        """Whether the device has said what results of a variant lose with age."""
        return variant in self._drops and not isnan(self._drops[variant].rate)

    def is_guessed(self, variant: str) -> bool:
        """Whether nobody has said so, while the device has of some other one."""
        is_any = any(self.is_measured(name) for name in self._gaps)
        return is_any and not self.is_measured(variant) and variant not in self.times

    @property
    def best_rate(self) -> float:
        """Of the best variant."""
        return self.rate_of(self._best)

    def times_measured(self) -> dict[str, float]:
        """Variant → its rate times the best one's, of those measured; empty where the best one is not, or it alone."""
        names = [name for name in self._gaps if self.is_measured(name)]
        if self._best not in names or len(names) < 2:
            return {}
        return {name: _within(self.rate_of(name) / self.best_rate, 1.0 / TIMES_MAX, TIMES_MAX) for name in names}

    def measured(self) -> dict[str, Drop]:
        """Of the variants that there are, those that the device tells apart."""
        return {name: Drop(self.gap_of(name), self.rate_of(name)) for name in self._gaps if self.is_measured(name)}


def _within(value: float, least: float, most: float) -> float:
    return min(most, max(least, value))
