"""Figures of one session since it began, as the papers measure them (ARISE 6.4-6.6, Jellyfish VI-A)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.clock import NS_PER_MS


@dataclass(slots=True)
class Mean:
    """Running mean of a figure."""

    count: int = 0
    total: float = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, or the sum of several."""
        self.count += count
        self.total += value

    @property
    def value(self) -> float | None:
        """Return the mean; None before the first value."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class SessionFigures:
    """Means over the windows and the frames of one session."""

    drop: Mean = field(default_factory=Mean)
    """Drop of accuracy of the windows that were served, shares of 1."""
    drop_error: Mean = field(default_factory=Mean)
    """Estimated less measured drop of these windows; above 0: the estimate was too high."""
    estimated_drop: float | None = None
    """Drop by the plan at the beginning of the window under way; None: there was no plan."""
    batch_rows: Mean = field(default_factory=Mean)
    """Rows of the runs of the session's frames, rows of other sessions included."""
    start_ms: Mean = field(default_factory=Mean)
    """Real less planned start of the runs that were planned."""
    start_ms_max: float = 0.0
    """Largest difference between real and planned start, without its sign."""
    in_time: Counter[str] = field(default_factory=Counter)
    """Variant → frames that it answered in time."""
    busy_before: tuple[float, int] | None = None
    """Busy time of all workers when the session began, in milliseconds, and that instant; None: not known."""

    def window(self, drop: float) -> None:
        """Count a window that is over."""
        self.drop.add(drop)
        if self.estimated_drop is not None:
            self.drop_error.add(self.estimated_drop - drop)

    def run(self, rows: int, started_ns: int, planned_ns: int | None) -> None:
        """Count the run of a frame; `planned_ns`: its planned start, None where none was planned."""
        self.batch_rows.add(rows)
        if planned_ns is not None:
            late_ms = (started_ns - planned_ns) / NS_PER_MS
            self.start_ms.add(late_ms)
            self.start_ms_max = max(self.start_ms_max, abs(late_ms))

    def utilisation(self, busy_ms: float, now_ns: int, workers: int) -> float | None:
        """Return the share of all workers' time that runs took since the session began, 0 to 1."""
        if self.busy_before is None or now_ns <= self.busy_before[1]:
            return None
        before_ms, began_ns = self.busy_before
        return min(1.0, (busy_ms - before_ms) * NS_PER_MS / (workers * (now_ns - began_ns)))

    def against_original(self, agreements: Mapping[str, float]) -> Mean:
        """Return the mean agreement with the original of the frames answered in time; `agreements` by variant.

        A frame of a variant without a figure does not count.
        """
        mean = Mean()
        for variant, count in self.in_time.items():
            if variant in agreements:
                mean.add(agreements[variant] * count, count)
        return mean
