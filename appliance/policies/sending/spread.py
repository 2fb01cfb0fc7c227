"""What a quantity stays below but for a share of its latest samples: an empirical quantile.

Both ends of a link count with the same: the device when it fits a picture to its deadline, the box when it plans for
which network pictures are sent. Rates of links change in steps and not normally, so that no mean and deviation tell how
far the next transfer may be off.
"""

from collections import deque

SAMPLES_MAX = 128
"""Some eight seconds of a camera: links of phones change within a second, networks within minutes."""
SAMPLES_MIN = 16
"""With fewer of them it is not below its prior."""
SHARE = 0.01
"""Of the samples that may be above: a promise of latency allows one frame of a hundred."""
MARGIN_PRIOR, MARGIN_MIN, MARGIN_MAX = 1.5, 1.1, 2.0
"""Of transfer times over what was expected of them. No more than half of a link is ever left free: what stands is no
rate to be planned with."""


class Spread:
    """Of one quantity. `value` takes some 10 µs after an `observe`."""

    def __init__(self, prior: float, share: float = SHARE) -> None:
        self._prior = prior
        self._share = share
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._value: float | None = None

    def observe(self, sample: float) -> None:
        """The newest."""
        self._samples.append(sample)
        self._value = None

    @property
    def value(self) -> float:
        """What all but the share are below."""
        if self._value is None:
            count = len(self._samples)
            ordered = sorted(self._samples, reverse=True)
            found = ordered[int(self._share * count)] if count else self._prior
            self._value = found if count >= SAMPLES_MIN else max(found, self._prior)
        return self._value


class TransferMargin:
    """What transfers take at most of what was expected of them, as a factor."""

    def __init__(self) -> None:
        self._spread = Spread(MARGIN_PRIOR)

    def observe(self, took_ms: float, expected_ms: float) -> None:
        """Of one frame's bytes."""
        if expected_ms > 0.0:
            self._spread.observe(took_ms / expected_ms)

    @property
    def factor(self) -> float:
        """At least 1."""
        return min(MARGIN_MAX, max(MARGIN_MIN, self._spread.value))
