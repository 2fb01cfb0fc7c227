"""What the devices saw of an application or a pipeline: counts, latencies and the last recognised things.

Pure bookkeeping, fed by reports of devices; time comes in as `now_ns`.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from appliance.clock import NS_PER_S

WINDOW_NS = 10 * NS_PER_S
"""What the live table's rate and percentiles look back on."""
KEPT_MAX = 20_000
"""Requests kept for the percentiles of the summary; at 31 a second that is over ten minutes."""
RECOGNISED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One answered request or frame; its latency is from sending to the whole answer."""

    at_ns: int
    latency_ms: float
    recognised: str = ""
    variant: str = ""
    is_warm: bool = False
    accuracy: float | None = None
    """Of the variant that answered."""
    is_in_time: bool = False
    """Of a frame of a pipeline, like the following ones."""
    items: int = 0
    """Cut out of it."""
    cost_s: float = 0.0
    """Processor time."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a device with a session was promised, and in how many of the stretches of 10 s that are over it was kept."""

    application: str
    promised: str
    state: str
    windows: int
    kept: int
    captured: int
    sent: int
    in_time: int


Report = Seen | Streamed | str
"""Report of a device; text is the reason why a request or frame has no answer."""


@dataclass
class Figures:
    """One application of one tenant, or one pipeline: how many were answered, the last answers, and the failures."""

    tenant: str
    name: str
    is_pipeline: bool = False
    ok: int = 0
    warm: int = 0
    in_time: int = 0
    answered: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    failures: Counter[str] = field(default_factory=Counter)
    """Errors in words, without those of a model that is still being imported."""
    recognised: deque[str] = field(default_factory=lambda: deque(maxlen=RECOGNISED_MAX))
    streamed: Streamed | None = None

    def take(self, report: Report) -> None:
        """Count what a device reported."""
        if isinstance(report, str):
            self.failures[report] += 1
        elif isinstance(report, Streamed):
            self.streamed = report
        else:
            self.ok += 1
            self.warm += report.is_warm
            self.in_time += report.is_in_time
            self.answered.append(report)
            if report.recognised and report.recognised not in self.recognised:
                self.recognised.append(report.recognised)

    @property
    def sent(self) -> int:
        return self.ok + self.failures.total()

    @property
    def trouble(self) -> str:
        """The commonest error, while nothing has been answered."""
        return self.failures.most_common(1)[0][0] if self.failures and not self.ok else ""

    @property
    def variant(self) -> str:
        """The variant that answered last; empty before the first answer."""
        return self.answered[-1].variant if self.answered else ""

    @property
    def accuracy(self) -> float | None:
        """Of that variant; None while it is not measured."""
        return self.answered[-1].accuracy if self.answered else None

    def window(self, now_ns: int) -> list[Seen]:
        """Answers of the last `WINDOW_NS`, oldest first."""
        latest = takewhile(lambda one: now_ns - one.at_ns <= WINDOW_NS, reversed(self.answered))
        return list(latest)[::-1]

    def rate_per_s(self, now_ns: int) -> float:
        """Answers a second over the window, or since its first one where that is shorter."""
        window = self.window(now_ns)
        return len(window) * NS_PER_S / max(now_ns - window[0].at_ns, NS_PER_S) if window else 0.0

    def summary(self) -> dict[str, Any]:
        """The entry in the JSON summary."""
        said: dict[str, Any] = {"name": self.name, "tenant": self.tenant}
        if self.is_pipeline:
            said |= {"frames": self.sent, "answered": self.ok, "in_time": self.in_time, **latencies(self.answered)}
            said |= {"items_per_frame": mean([one.items for one in self.answered])}
            said |= {"cost_s": mean([one.cost_s for one in self.answered])}
        else:
            said |= {"variant": self.variant or None, "requests": self.sent, "ok": self.ok, **latencies(self.answered)}
            said |= {"accuracy": self.accuracy}
        session = {"session": asdict(self.streamed)} if self.streamed else {}
        return said | {"recognised": list(self.recognised)} | session

    def in_lines(self) -> Iterator[str]:
        """The summary for a person: how many were answered, what was recognised, the commonest errors."""
        done = f"{self.ok} of {self.sent} answered"
        if self.is_pipeline:
            done = f"{self.in_time} of {self.sent} frames in time"
        yield f"{self.tenant}/{self.name:<14} {done}   {self.recognised[-1] if self.recognised else ''}"
        for reason, times in self.failures.most_common(2):
            yield f"    {times} × {reason}"


def latencies(seen: Sequence[Seen]) -> dict[str, float | None]:
    """The median and the 99th percentile."""
    values = [one.latency_ms for one in seen]
    return {"p50_ms": percentile(values, 0.5), "p99_ms": percentile(values, 0.99)}


def mean(values: Sequence[float]) -> float | None:
    """None without values."""
    return sum(values) / len(values) if values else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above; None without values."""
    return round(float(np.quantile(values, share, method="inverted_cdf")), 3) if values else None
