"""What came of the frames of one pipeline, as its device saw it, and what was read in them.

Owned by the demo's main thread; pure bookkeeping, time comes in as `now_ns`.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.demo.figures import KEPT_MAX, RECOGNISED_MAX, percentile, rate_per_s, recent
from appliance.demo.recognised import WORDS_MAX
from appliance.wire.pipelines import ItemShape


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """One answered frame."""

    at_ns: int
    latency_ms: float
    """From sending to the whole answer: HTTP, and all stages."""
    is_in_time: bool
    """As the box says."""
    items: int
    """Cut out of it."""
    cost_s: float
    """Processor time."""
    recognised: str = ""


@dataclass(slots=True)
class FrameFigures:
    """One pipeline of one tenant."""

    tenant: str
    name: str
    sent: int = 0
    in_time: int = 0
    answered: deque[SeenFrame] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    failures: Counter[str] = field(default_factory=Counter)
    recognised: deque[str] = field(default_factory=lambda: deque(maxlen=RECOGNISED_MAX))

    def add(self, seen: SeenFrame) -> None:
        """Count an answer."""
        self.sent += 1
        self.in_time += seen.is_in_time
        self.answered.append(seen)
        if seen.recognised and seen.recognised not in self.recognised:
            self.recognised.append(seen.recognised)

    def add_failure(self, reason: str) -> None:
        """Count a frame that got an error."""
        self.sent += 1
        self.failures[reason] += 1

    @property
    def in_time_share(self) -> float | None:
        """Of all frames that were sent."""
        return self.in_time / self.sent if self.sent else None

    def window(self, now_ns: int) -> list[SeenFrame]:
        """Answers of late, oldest first."""
        return recent(self.answered, now_ns)

    def rate_fps(self, now_ns: int) -> float:
        """Frames answered a second, of late."""
        return rate_per_s(self.window(now_ns), now_ns)

    def summary(self) -> dict[str, Any]:
        """The pipeline's entry in the JSON summary."""
        seen = self.answered
        latencies = [one.latency_ms for one in seen]
        return {
            "name": self.name,
            "tenant": self.tenant,
            "frames": self.sent,
            "answered": self.sent - self.failures.total(),
            "in_time": self.in_time,
            "p50_ms": percentile(latencies, 0.5),
            "p99_ms": percentile(latencies, 0.99),
            "items_per_frame": mean([one.items for one in seen]),
            "cost_s": mean([one.cost_s for one in seen]),
            "recognised": list(self.recognised),
        }


def mean(values: Sequence[float]) -> float | None:
    """None without values."""
    return sum(values) / len(values) if values else None


def cut_out(items: Sequence[ItemShape]) -> int:
    """Items that were cut out of a frame."""
    return sum(item.box is not None or item.quad is not None for item in every(items))


def frame_in_words(items: Sequence[ItemShape]) -> str:
    """The texts and things in a frame; empty where nothing was found."""
    texts, things, vectors = [], Counter[str](), 0
    for item in every(items):
        answer = item.answer or {}
        if (text := str(answer.get("text", "")).strip()) != "":
            texts.append(f"“{text}”")
        elif answer.get("labels"):
            things[str(answer["labels"][0]["label"]).split(",", maxsplit=1)[0]] += 1
        elif answer.get("label") and not item.items:
            things[str(answer["label"])] += 1
        vectors += "embedding" in answer
    told = texts + [f"{count} {thing}" if count > 1 else thing for thing, count in things.most_common(5)]
    if vectors:
        told.append(f"{vectors} face{'s' if vectors > 1 else ''} described")
    words = ", ".join(told)
    return words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…"


def every(items: Sequence[ItemShape]) -> Iterator[ItemShape]:
    """Of the whole tree, each before those below it."""
    for item in items:
        yield item
        yield from every(item.items)
