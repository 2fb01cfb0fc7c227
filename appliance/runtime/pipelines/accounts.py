"""What pipelines' runs cost: processor-seconds, joules and price, by pipeline and kind of processor (SC-30).

A run that rows of others share is each one's by its rows, so what pipelines and single calls take adds up to what the
processors were busy for. CPU stages are of the kind `host`, and of no processor's busy time.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.pipeline import CostBy

HOST = "host"
"""Kind of what runs CPU stages: the media threads."""
RECENT_NS = 10 * NS_PER_S
"""What a pipeline costs now is told over so long ..."""
STEP_NS = 100 * NS_PER_MS
"""... in steps of so long at least: whoever asks often makes it no dearer to answer."""


@dataclass(frozen=True, slots=True)
class Watts:
    """What a worker of a kind takes while it runs. `by`: `measured` by sensors, or `declared` in the settings."""

    watts: float
    by: str


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a second of a worker costs."""

    watts: Callable[[str], Watts | None]
    """By kind; None: nobody knows."""
    price_per_hour: Mapping[str, float]
    """By kind; absent: no price is set."""

    def knows(self, unit: CostBy, kinds: Collection[str]) -> bool:
        """Whether a plan can be made by it: nothing that is unknown may look as if it cost nothing."""
        match unit:
            case CostBy.ENERGY:
                return all(self.watts(kind) is not None for kind in kinds)
            case CostBy.PRICE:
                prices = [self.price_per_hour.get(kind) for kind in kinds]
                return None not in prices and any(prices)
            case CostBy.SECONDS:
                return True

    def joules(self, kind: str, seconds: float) -> float | None:
        """What they took; None: nobody knows."""
        known = self.watts(kind)
        return None if known is None else known.watts * seconds

    def price(self, kind: str, seconds: float) -> float | None:
        """What they cost; None where no price is set."""
        known = self.price_per_hour.get(kind)
        return None if known is None else known * seconds / 3600.0

    def of(self, seconds: Mapping[str, float]) -> "Cost":
        """What processor time by kind costs now."""
        joules: float | None = 0.0
        price: float | None = 0.0
        for kind, took in seconds.items():
            joules = _sum(joules, self.joules(kind, took))
            price = _sum(price, self.price(kind, took))
        return Cost(sum(seconds.values()), joules, price)

    def energy_by(self, kinds: Mapping[str, float]) -> str | None:
        """How the watts of kinds are known: `measured`, `declared` where one of them is; None where one is unknown."""
        known = [self.watts(kind) for kind in kinds]
        if not known or None in known:
            return None
        return "measured" if all(one is not None and one.by == "measured" for one in known) else "declared"


UNPRICED = Tariff(lambda kind: None, {})
"""Nothing is known but seconds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Joules and price are None where watts, or prices, are not known of all that ran."""

    seconds: float = 0.0
    joules: float | None = None
    price: float | None = None

    def times(self, factor: float) -> "Cost":
        """So many of them."""
        joules = None if self.joules is None else self.joules * factor
        price = None if self.price is None else self.price * factor
        return Cost(self.seconds * factor, joules, price)


class Account:
    """Of one pipeline, as it is looked at from time to time. All instants are the caller's."""

    def __init__(self, tariff: Tariff) -> None:
        self._tariff = tariff
        self._seconds: dict[str, float] = {}
        """By kind, since the pipeline was defined or the box began."""
        self._joules: float | None = 0.0
        self._price: float | None = 0.0
        self._frames = 0
        self._steps: deque[tuple[int, int, dict[str, float], int]] = deque()
        """(begin, end, seconds by kind, frames) between two looks, or more of them."""
        self._seen_ns: int | None = None

    def look(self, now_ns: int, spent_ns: Mapping[str, int], frames: int) -> None:
        """What has been spent by kind since the start, and how many frames were answered."""
        since_ns, self._seen_ns = self._seen_ns, now_ns
        step: dict[str, float] = {}
        for kind, total_ns in spent_ns.items():
            seconds = total_ns / NS_PER_S - self._seconds.get(kind, 0.0)
            if seconds > 0.0:
                step[kind] = seconds
                self._seconds[kind] = total_ns / NS_PER_S
                self._joules = _sum(self._joules, self._tariff.joules(kind, seconds))
                self._price = _sum(self._price, self._tariff.price(kind, seconds))
        answered, self._frames = frames - self._frames, frames
        begin_ns = now_ns if since_ns is None else since_ns
        if self._steps and self._steps[-1][1] - self._steps[-1][0] < STEP_NS:
            begin_ns, _end_ns, before, earlier = self._steps.pop()
            step = {kind: before.get(kind, 0.0) + step.get(kind, 0.0) for kind in {**before, **step}}
            answered += earlier
        self._steps.append((begin_ns, now_ns, step, answered))
        while now_ns - self._steps[0][1] > RECENT_NS:
            self._steps.popleft()

    @property
    def seconds(self) -> Mapping[str, float]:
        """By kind, since the start."""
        return self._seconds

    @property
    def total(self) -> Cost:
        """Since the start."""
        return Cost(sum(self._seconds.values()), self._joules, self._price)

    @property
    def per_second(self) -> Cost:
        """Of late."""
        seconds, _frames, took_ns = self._recent()
        return self._tariff.of(seconds).times(NS_PER_S / took_ns if took_ns else 0.0)

    @property
    def per_frame(self) -> Cost | None:
        """Of late; None: no frame was answered."""
        seconds, frames, _took_ns = self._recent()
        return self._tariff.of(seconds).times(1.0 / frames) if frames else None

    @property
    def energy_by(self) -> str | None:
        """How the watts are known of what ran."""
        return self._tariff.energy_by(self._seconds)

    def _recent(self) -> tuple[dict[str, float], int, int]:
        total: dict[str, float] = {}
        for _begin_ns, _end_ns, seconds, _frames in self._steps:
            for kind, took in seconds.items():
                total[kind] = total.get(kind, 0.0) + took
        took_ns = self._steps[-1][1] - self._steps[0][0] if self._steps else 0
        return total, sum(frames for *_, frames in self._steps), took_ns


def _sum(total: float | None, more: float | None) -> float | None:
    return None if total is None or more is None else total + more
