"""The forecast family (Edge-MultiAI §III-A): when an application's next request comes, from when the earlier ones
came.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next arrival after now, and how far off (standard deviation) such predictions are."""

    next_ns: int
    spread_ns: int
    later_ns: tuple[int, ...] = ()
    """Of the arrivals after that, ascending, as far as the forecaster knows more than how often they come.

    Where the first is late they may be, too.
    """


class Forecaster(Protocol):
    """Pure: the same history and time give the same prediction.

    An instance is immutable; what training finds makes a new one.
    """

    @property
    def name(self) -> str:
        """As in the registry."""
        ...

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        """The first arrival after `now_ns`, given past ones (ascending, none after now) and the silence since the last.

        Looks at the last 64 at most.

        None with too little history, and once the silence says that nothing is to be expected until the next arrival.
        """
        ...


Fit = Callable[[Sequence[int], int], Forecaster | None]
"""(arrivals_ns, seed) → a forecaster for this history; None where the history is too short to learn from."""
