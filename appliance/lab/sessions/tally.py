"""What became of one device's promise, as the device itself sees it: frames in time, and the age of what it shows.

Windows are 10 s of a promise of latency and 1 s of one of accuracy; only whole ones count in which it was served. Of
those of accuracy the ones in which the link was as good as when the device was admitted are counted by themselves, too:
what is promised is promised for that link.
All times are nanoseconds after the start.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.clock import NS_PER_S
from appliance.lab.sessions.losses import NOTHING, Loss

LATENCY_NS, ACCURACY_NS = 10 * NS_PER_S, NS_PER_S
MISSES_MAX = 0.01
"""Share of the frames of a window that may not be in time (the paper's target, JF-28)."""
TOLERANCE = 1e-9
LIKE_SHARE = 0.8
"""Of the uplink's rate at the admission: a link with less is another one (the fifth by which the box plans anew)."""


@dataclass(slots=True)
class Totals:
    """Sums over frames, of one device or of many."""

    windows: int = 0
    kept: int = 0
    like_windows: int = 0
    """Of the windows of accuracy, those in which the link was never worse than at the admission."""
    like_kept: int = 0
    due: int = 0
    """Frames of promises of latency that were captured to be answered while the device was served."""
    in_time: int = 0
    rated: int = 0
    """Of the due frames, those whose answers have an accuracy: of a pipeline's none have."""
    accuracy_in_time: float = 0.0
    """Sum of the accuracies of those of them that were in time."""
    intervals: int = 0
    interval_frames: int = 0
    """Between a sent frame of a promise of accuracy and the one before."""
    shown: int = 0
    """Frames of promises of accuracy for which a result was shown while it was served."""
    drop: float = 0.0
    """Sum of what they lose against the reference."""

    def add(self, other: "Totals") -> None:
        """Of another device, too."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class LatencyTally:
    """Of a promise of latency. `is_rated`: whether answers have an accuracy."""

    totals: Totals = field(default_factory=Totals)
    is_rated: bool = True
    _since_ns: int | None = None
    _due: Counter[int] = field(default_factory=Counter)
    _in_time: Counter[int] = field(default_factory=Counter)
    _open: dict[int, int] = field(default_factory=dict)
    """Frame → the window that it is due in, until it has ended."""
    _ended: set[int] = field(default_factory=set)
    """Windows that are over, by their beginnings."""

    def served(self, now_ns: int, *, is_served: bool) -> None:
        """Told when that changes."""
        if is_served and self._since_ns is None:
            self._since_ns = now_ns
        elif not is_served and self._since_ns is not None:
            whole = range(self._since_ns, now_ns - LATENCY_NS + 1, LATENCY_NS)
            self._ended.update(whole)
            self._since_ns = None

    def captured(self, frame: int, now_ns: int) -> None:
        """A frame that the plan asks for."""
        if self._since_ns is not None:
            window = self._since_ns + (now_ns - self._since_ns) // LATENCY_NS * LATENCY_NS
            self._open[frame] = window
            self._due[window] += 1
            self.totals.due += 1
            self.totals.rated += self.is_rated

    def answered(self, frame: int, accuracy: float | None) -> None:
        """In time; `accuracy` of an answer that has one."""
        window = self._open.pop(frame, None)
        if window is not None:
            self._in_time[window] += 1
            self.totals.in_time += 1
            self.totals.accuracy_in_time += accuracy or 0.0

    def close(self) -> None:
        """All answers are there: count the windows."""
        due = [window for window in self._ended if self._due[window]]
        self.totals.windows += len(due)
        self.totals.kept += sum(self._due[w] - self._in_time[w] <= MISSES_MAX * self._due[w] for w in due)


@dataclass(slots=True)
class AccuracyTally:
    """Of a promise of accuracy. `reference_stride`: frames, of the box that it is measured against, times what its
    variant loses with each; 0 for fresh results.
    """

    drop_max: float
    reference_stride: float
    uplink_bps: Callable[[int], float] | None = None
    """The rate of the device's uplink at a time; None: it is always the same."""
    totals: Totals = field(default_factory=Totals)
    _since_ns: int | None = None
    _newest: int | None = None
    _loss: Loss = NOTHING
    _last_sent: int | None = None
    _frames: int = 0
    _drop: float = 0.0
    _admitted_bps: float = 0.0
    _is_like: bool = True
    """Whether the link was as at the admission so far in the window."""

    def served(self, now_ns: int, *, is_served: bool) -> None:
        """Told when that changes."""
        if is_served != (self._since_ns is not None):
            self._roll(now_ns)
            self._since_ns = now_ns if is_served else None
            self._frames, self._drop, self._last_sent, self._is_like = 0, 0.0, None, True
            self._admitted_bps = 0.0 if self.uplink_bps is None else self.uplink_bps(now_ns)

    def sent(self, frame: int) -> None:
        """To the box."""
        if self._since_ns is not None:
            if self._last_sent is not None:
                self.totals.intervals += 1
                self.totals.interval_frames += frame - self._last_sent
            self._last_sent = frame

    def result(self, frame: int, loss: Loss = NOTHING) -> int | None:
        """One has come, of a variant that loses so; returns how many frames older what was shown for its frame was,
        where there was something."""
        before = self._newest
        if before is None or frame > before:
            self._newest, self._loss = frame, loss
        return None if before is None or frame <= before else frame - before

    def displayed(self, frame: int, now_ns: int, rate: float) -> None:
        """A frame is shown with the newest result; `rate`: what a frame of age loses now."""
        if self._since_ns is None:
            return
        if self._newest is None:
            self._since_ns = now_ns  # windows begin with the first result
            return
        drop = self._loss.at(rate, frame - self._newest) - rate * self.reference_stride
        self._roll(now_ns)
        if self.uplink_bps is not None:
            self._is_like = self._is_like and self.uplink_bps(now_ns) >= LIKE_SHARE * self._admitted_bps
        self._frames += 1
        self._drop += drop
        self.totals.shown += 1
        self.totals.drop += drop

    def close(self) -> None:
        """As of the other tally; its windows are counted when they are over."""

    def _roll(self, now_ns: int) -> None:
        """Count the windows that are over."""
        while self._since_ns is not None and now_ns - self._since_ns >= ACCURACY_NS:
            if self._frames:
                is_kept = self._drop / self._frames <= self.drop_max + TOLERANCE
                self.totals.windows += 1
                self.totals.kept += is_kept
                self.totals.like_windows += self._is_like
                self.totals.like_kept += self._is_like and is_kept
            self._since_ns += ACCURACY_NS
            self._frames, self._drop, self._is_like = 0, 0.0, True


Tally = LatencyTally | AccuracyTally
