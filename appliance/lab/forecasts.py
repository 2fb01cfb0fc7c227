"""A forecast given from outside, in place of one that the box makes itself."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.policies.forecast.base import Prediction


@dataclass(frozen=True, slots=True)
class Given:
    """Implements `Forecaster`: the first of `times_ns` (ascending, on the clock's scale) after now; nothing is known of how far off it is."""

    times_ns: tuple[int, ...]
    name: str = "given"

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        index = bisect_right(self.times_ns, now_ns)
        return Prediction(self.times_ns[index], 0) if index < len(self.times_ns) else None
