"""What the devices saw of one application: counts, latencies and the last recognised things.

Fed by reports of device processes.

Owned by the demo's main thread; pure bookkeeping, time comes in as `now_ns`.
"""

from collections import Counter, deque
from collections.abc import Reversible, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from appliance.clock import NS_PER_S

WINDOW_NS = 10 * NS_PER_S
"""What the live table's rate and percentiles look back on."""
KEPT_MAX = 20_000
"""Requests kept for the percentiles of the summary; at 31 a second that is over ten minutes."""
RECOGNISED_MAX = 5


class Timed(Protocol):
    """Something that was seen at an instant."""

    @property
    def at_ns(self) -> int: ...


TimedT = TypeVar("TimedT", bound=Timed)


@dataclass(frozen=True, slots=True)
class Seen:
    """One answered request as its device saw it."""

    at_ns: int
    latency_ms: float
    """From sending to the whole answer: HTTP, decoding, waiting and computing."""
    variant: str
    is_warm: bool
    accuracy: float | None = None
    """Of the variant that answered."""
    recognised: str = ""


@dataclass(slots=True)
class DeviceFigures:
    """One application of one tenant."""

    tenant: str
    name: str
    task: str
    requests: int = 0
    ok: int = 0
    warm: int = 0
    answered: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    failures: Counter[str] = field(default_factory=Counter)
    """Errors in words, without those of a model that is still being imported."""
    recognised: deque[str] = field(default_factory=lambda: deque(maxlen=RECOGNISED_MAX))

    def add(self, seen: Seen) -> None:
        """Count an answer."""
        self.requests += 1
        self.ok += 1
        self.warm += seen.is_warm
        self.answered.append(seen)
        if seen.recognised and seen.recognised not in self.recognised:
            self.recognised.append(seen.recognised)

    def add_failure(self, reason: str) -> None:
        """Count a request that got an error."""
        self.requests += 1
        self.failures[reason] += 1

    @property
    def variant(self) -> str:
        """The variant that answered last; empty before the first answer."""
        return self.answered[-1].variant if self.answered else ""

    @property
    def accuracy(self) -> float | None:
        """Of that variant; None while it is not measured."""
        return self.answered[-1].accuracy if self.answered else None

    @property
    def warm_share(self) -> float | None:
        """Share of answers that found a variant in memory."""
        return self.warm / self.ok if self.ok else None

    def window(self, now_ns: int) -> list[Seen]:
        """Answers of the last `WINDOW_NS`, oldest first."""
        return recent(self.answered, now_ns)

    def rate_per_s(self, now_ns: int) -> float:
        """Answers a second over the window."""
        return rate_per_s(self.window(now_ns), now_ns)

    def summary(self) -> dict[str, Any]:
        """The application's entry in the JSON summary; its variant is the one that answered last, its latencies
        those of all.
        """
        latencies = [seen.latency_ms for seen in self.answered]
        return {
            "name": self.name,
            "tenant": self.tenant,
            "variant": self.variant or None,
            "requests": self.requests,
            "ok": self.ok,
            "p50_ms": percentile(latencies, 0.5),
            "p99_ms": percentile(latencies, 0.99),
            "accuracy": self.accuracy,
            "recognised": list(self.recognised),
        }


def recent(seen: Reversible[TimedT], now_ns: int) -> list[TimedT]:
    """Those of the last `WINDOW_NS`, oldest first."""
    found: list[TimedT] = []
    for one in reversed(seen):
        if now_ns - one.at_ns > WINDOW_NS:
            break
        found.append(one)
    return found[::-1]


def rate_per_s(window: Sequence[Timed], now_ns: int) -> float:
    """Over the window, or since the first one where that is shorter."""
    if not window:
        return 0.0
    span_ns = max(now_ns - window[0].at_ns, NS_PER_S)
    return len(window) * NS_PER_S / span_ns


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return round(ordered[int(rank) - 1], 3)
