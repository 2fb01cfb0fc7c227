"""What came of a simulation: one answer per request, and the figures that `appliance simulate --json` prints."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from appliance.clock import NS_PER_MS
from appliance.domain.robustness import Served, robustness
from appliance.lab.processors import MemoryParts

Kind = Literal["warm", "cold", "failed", "dropped"]
KINDS: tuple[Kind, ...] = ("warm", "cold", "failed", "dropped")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request got.

    `variant` and `accuracy` are None unless it was served; times are nanoseconds after the start.
    """

    application: str
    kind: Kind
    at_ns: int
    latency_ns: int
    variant: str | None = None
    accuracy: float | None = None
    is_late: bool = False
    has_slo: bool = False
    reason: str = ""
    """Why it was not served."""
    wait_ns: int = 0
    """Until its run began, or it was told that there is none."""


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Shares of the time that all workers together had."""

    busy: float
    batches: int
    items: int


@dataclass(frozen=True)
class Outcome:
    """Everything that a scenario led to.

    `decisions` holds wall-clock timings, which differ from run to run; nothing else does.
    """

    end_ns: int
    """When the simulation ended, after the start."""
    applications: tuple[str, ...]
    answers: tuple[Answer, ...]
    processors: Mapping[str, ProcessorUse]
    memory_bytes: int
    memory_peak_bytes: int
    loads: int
    replacements: int
    evictions: int
    wakes: int = 0
    """Builds that came into memory by waking; they are not among the loads."""
    decisions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sessions: Mapping[str, object] | None = None
    """Of a scenario with devices."""
    pipelines: Mapping[str, object] | None = None
    """Of a scenario with pipelines."""
    fullest: MemoryParts | None = None
    """Parts of the budget at the moment when least was free; None: not counted."""

    def document(self) -> dict[str, object]:
        """As the format has it."""
        by_application: dict[str, list[Answer]] = {name: [] for name in self.applications}
        for answer in self.answers:
            by_application[answer.application].append(answer)
        with_slo = [a for a in self.answers if a.has_slo]
        in_time = sum(a.accuracy is not None and not a.is_late for a in with_slo)
        batches = sum(p.batches for p in self.processors.values())
        items = sum(p.items for p in self.processors.values())
        return {
            "requests": len(self.answers),
            **_counts(self.answers),
            "late": sum(a.is_late for a in self.answers),
            "slo_attainment": ratio(in_time, len(with_slo)),
            **_quality(self.answers),
            "robustness": _robustness(by_application.values()),
            "latency_ms": _latency(self.answers),
            "wait_ms": _wait(self.answers),
            "memory_peak_mb": self.memory_peak_bytes / 1e6,
            **_fullest(self.fullest),
            "batch_mean": ratio(items, batches),
            "processors": {
                name: {"busy": _rounded(use.busy), "idle": _rounded(1 - use.busy), "batches": use.batches}
                for name, use in sorted(self.processors.items())
            },
            "applications": {
                name: {
                    "requests": len(answers),
                    **_counts(answers),
                    **_quality(answers),
                    "latency_ms": _latency(answers),
                }
                for name, answers in by_application.items()
            },
            **({} if self.sessions is None else {"sessions": dict(self.sessions)}),
            **({} if self.pipelines is None else {"pipelines": dict(self.pipelines)}),
            "loads": self.loads,
            "wakes": self.wakes,
            "replacements": self.replacements,
            "evictions": self.evictions,
            "decisions": dict(self.decisions),
        }


def _fullest(parts: MemoryParts | None) -> dict[str, dict[str, float]]:
    return {} if parts is None else {"memory_fullest_mb": {name: count / 1e6 for name, count in asdict(parts).items()}}


def _counts(answers: Sequence[Answer]) -> dict[str, int]:
    return {kind: sum(a.kind == kind for a in answers) for kind in KINDS}


def _quality(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Mean accuracy over the answered, and over all (who got no answer counts 0)."""
    accuracies = [a.accuracy for a in answers if a.accuracy is not None]
    return {
        "accuracy_mean": ratio(sum(accuracies), len(accuracies)),
        "utility": ratio(sum(accuracies), len(answers)),
    }


def _robustness(groups: Iterable[Sequence[Answer]]) -> float | None:
    """Return Edge-MultiAI's equation 4."""
    found = robustness(_served(answers) for answers in groups)
    return None if found is None else _rounded(found)


def _served(answers: Sequence[Answer]) -> Served:
    accuracies = [a.accuracy for a in answers if a.accuracy is not None]
    warm, cold = (sum(a.kind == kind for a in answers) for kind in ("warm", "cold"))
    return Served(len(answers), warm, cold, len(accuracies), sum(accuracies))


def _latency(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Percentiles (the nearest rank) over the answered."""
    ordered = sorted(a.latency_ns for a in answers if a.accuracy is not None)
    return {"p50": percentile(ordered, 50), "p99": percentile(ordered, 99)}


def _wait(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Mean and percentile over all requests: what each waited before its run, or before it got none."""
    ordered = sorted(a.wait_ns for a in answers)
    return {"mean": ratio(sum(ordered) / NS_PER_MS, len(ordered)), "p99": percentile(ordered, 99)}


def percentile(ordered: Sequence[int], percent: int) -> float | None:
    """Of ascending nanoseconds, the nearest rank, in milliseconds; None of none."""
    if not ordered:
        return None
    rank = -(-percent * len(ordered) // 100)
    return _rounded(ordered[max(0, rank - 1)] / NS_PER_MS)


def ratio(part: float, whole: float) -> float | None:
    """None where there is nothing to take a part of."""
    return _rounded(part / whole) if whole else None


def _rounded(value: float) -> float:
    return round(value, 6)
