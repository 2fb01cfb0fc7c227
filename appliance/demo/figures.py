"""What the devices saw of an application or a pipeline: counts, latencies and the last recognised things.

Pure bookkeeping, fed by reports of device processes; time comes in as `now_ns`.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from appliance.clock import NS_PER_S

WINDOW_NS = 10 * NS_PER_S
"""What the live table's rate and percentiles look back on."""
KEPT_MAX = 20_000
"""Requests kept for the percentiles of the summary; at 31 a second that is over ten minutes."""
RECOGNISED_MAX = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """One answered request; its latency is from sending to the whole answer: HTTP, decoding, waiting and computing."""

    at_ns: int
    latency_ms: float
    variant: str
    is_warm: bool
    accuracy: float | None = None
    """Of the variant that answered."""
    recognised: str = ""


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """One frame that a pipeline answered: items cut out of it, and processor time."""

    at_ns: int
    latency_ms: float
    is_in_time: bool
    items: int
    cost_s: float
    recognised: str = ""


class Timed(Protocol):
    """Something that was seen at an instant."""

    @property
    def at_ns(self) -> int: ...

    @property
    def latency_ms(self) -> float: ...

    @property
    def recognised(self) -> str: ...


SeenT = TypeVar("SeenT", bound=Timed)


@dataclass
class Figures(Generic[SeenT]):
    """Requests or frames of one application or pipeline: how many were answered, the last answers, and the failures."""

    tenant: str
    name: str
    ok: int = 0
    answered: deque[SeenT] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    failures: Counter[str] = field(default_factory=Counter)
    """Errors in words, without those of a model that is still being imported."""
    recognised: deque[str] = field(default_factory=lambda: deque(maxlen=RECOGNISED_MAX))

    def add(self, seen: SeenT) -> None:
        """Count an answer."""
        self.ok += 1
        self.answered.append(seen)
        if seen.recognised and seen.recognised not in self.recognised:
            self.recognised.append(seen.recognised)

    @property
    def sent(self) -> int:
        return self.ok + self.failures.total()

    @property
    def trouble(self) -> str:
        """The commonest error, while nothing has been answered."""
        return self.failures.most_common(1)[0][0] if self.failures and not self.ok else ""

    def window(self, now_ns: int) -> list[SeenT]:
        """Answers of the last `WINDOW_NS`, oldest first."""
        found: list[SeenT] = []
        for one in reversed(self.answered):
            if now_ns - one.at_ns > WINDOW_NS:
                break
            found.append(one)
        return found[::-1]

    def rate_per_s(self, now_ns: int) -> float:
        """Answers a second over the window, or since its first one where that is shorter."""
        window = self.window(now_ns)
        return len(window) * NS_PER_S / max(now_ns - window[0].at_ns, NS_PER_S) if window else 0.0


@dataclass
class DeviceFigures(Figures[Seen]):
    """One application of one tenant."""

    warm: int = 0

    def add(self, seen: Seen) -> None:
        """Count an answer."""
        super().add(seen)
        self.warm += seen.is_warm

    @property
    def variant(self) -> str:
        """The variant that answered last; empty before the first answer."""
        return self.answered[-1].variant if self.answered else ""

    @property
    def accuracy(self) -> float | None:
        """Of that variant; None while it is not measured."""
        return self.answered[-1].accuracy if self.answered else None

    def summary(self) -> dict[str, Any]:
        """The application's entry in the JSON summary; its variant is the one that answered last."""
        return {
            "name": self.name,
            "tenant": self.tenant,
            "variant": self.variant or None,
            "requests": self.sent,
            "ok": self.ok,
            **latencies(self.answered),
            "accuracy": self.accuracy,
            "recognised": list(self.recognised),
        }


@dataclass
class FrameFigures(Figures[SeenFrame]):
    """One pipeline of one tenant."""

    in_time: int = 0

    def add(self, seen: SeenFrame) -> None:
        """Count an answer."""
        super().add(seen)
        self.in_time += seen.is_in_time

    def summary(self) -> dict[str, Any]:
        """The pipeline's entry in the JSON summary."""
        return {
            "name": self.name,
            "tenant": self.tenant,
            "frames": self.sent,
            "answered": self.ok,
            "in_time": self.in_time,
            **latencies(self.answered),
            "items_per_frame": mean([one.items for one in self.answered]),
            "cost_s": mean([one.cost_s for one in self.answered]),
            "recognised": list(self.recognised),
        }


def latencies(seen: Sequence[Timed]) -> dict[str, float | None]:
    """The median and the 99th percentile."""
    values = [one.latency_ms for one in seen]
    return {"p50_ms": percentile(values, 0.5), "p99_ms": percentile(values, 0.99)}


def mean(values: Sequence[float]) -> float | None:
    """None without values."""
    return sum(values) / len(values) if values else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above; None without values."""
    if not values:
        return None
    rank = max(1, -(-len(values) * share // 1))
    return round(sorted(values)[int(rank) - 1], 3)
