"""A forecast given from outside, in place of one that the box makes itself."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.policies.forecast.base import Prediction


@dataclass(frozen=True, slots=True)
class Given:
    """Implements `Forecaster`: the first of `times_ns` (ascending, on the clock's scale) after now that the last arrival has not answered.

    An arrival answers the time that is nearest to it, so one that comes early is not expected a second time. Nothing is known of how far off times are.
    """

    times_ns: tuple[int, ...]
    name: str = "given"

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        after_ns = max(now_ns, self._answered_ns(arrivals_ns[-1])) if arrivals_ns and self.times_ns else now_ns
        index = bisect_right(self.times_ns, after_ns)
        return Prediction(self.times_ns[index], 0) if index < len(self.times_ns) else None

    def _answered_ns(self, at_ns: int) -> int:
        index = bisect_right(self.times_ns, at_ns)
        return min(self.times_ns[max(0, index - 1) : index + 1], key=lambda time_ns: abs(at_ns - time_ns))
