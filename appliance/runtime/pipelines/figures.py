"""What a pipeline did: frames, items by stage, seconds. Only counted here; what they mean is for those who plan and
show. Event-loop thread only.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.pipeline import NoAnswer
from appliance.domain.promised import PromiseCounts, PromiseEnd
from appliance.domain.request import RunMeter
from appliance.runtime.pipelines.items import Outcome
from appliance.runtime.pipelines.ports import StageAnswer

SECONDS = 10
"""That are remembered one by one."""
_TIMES = 128
"""Of a stage, that its median is of."""


@dataclass(frozen=True, slots=True)
class RanAs:
    """What has to be the same for times of runs to be compared."""

    variant: str
    kind: str
    """Of processors."""
    batch: int
    """Rows of the run."""
    at_once: int = 1
    """Runs that were under way, itself among them."""


@dataclass(frozen=True, slots=True)
class StageCounts:
    """Of a stage's name since the start, whatever stages have had it: a counter never falls."""

    items: int = 0
    condition: int = 0
    """Of the items: without an answer, as by `NoAnswer`."""
    dropped: int = 0
    error: int = 0
    late_frames: int = 0


@dataclass(slots=True)
class StageFigures:
    """Of one stage, since the start, or since it is what it is."""

    frames_before: int = 0
    """Of its pipeline, until then."""
    before: StageCounts = StageCounts()
    """Of stages that had its name until then."""
    items: int = 0
    """That it could begin with ..."""
    items_squared: int = 0
    """... and those of each frame, squared, added up."""
    answered: int = 0
    dropped: int = 0
    errors: int = 0
    no_condition: int = 0
    outdone: int = 0
    """Of these: the condition held, but others were better."""
    late_frames: int = 0
    """Frames that were not in time, and of which this stage was the first to drop an item, or to end one too late."""
    compute_ns: int = 0
    """Of the runs of those that were answered."""
    ran: int = 0
    """Items that processor time was spent on here, answered or not ..."""
    spent_ns: int = 0
    """... and that time: of runs that were shared, the parts that its rows have."""
    variant: str = ""
    """The last that answered; empty: none, or a CPU stage."""
    ran_as: dict["RanAs", tuple[int, int]] = field(default_factory=dict)
    """Items that a network has answered, and their nanoseconds of processor time, by how they ran."""
    recent_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_TIMES))
    """From when an item could begin to its end, of those that were answered."""

    def began(self, count: int, before: int) -> None:
        """With so many items of a frame, of which there were so many `before`."""
        self.items += count
        self.items_squared += (before + count) ** 2 - before**2

    def ended(self, outcome: Outcome, took_ns: int) -> None:
        """An item has; `took_ns` since it could begin."""
        match outcome.none:
            case None:
                self.answered += 1
                self.recent_ns.append(took_ns)
                if outcome.answer is not None:
                    self.compute_ns += outcome.answer.compute_ns
                    self.variant = outcome.answer.variant
            case NoAnswer.CONDITION:
                self.no_condition += 1
                self.outdone += outcome.is_outdone
            case NoAnswer.DROPPED:
                self.dropped += 1
            case NoAnswer.ERROR:
                self.errors += 1

    def ran_on(self, answer: StageAnswer, spent_ns: int, at_once: int) -> None:
        """An item was answered that so much processor time was spent on: its part of a run, one of so many."""
        if not spent_ns:
            return
        ran_as = RanAs(answer.variant, answer.kind, max(1, round(answer.compute_ns / spent_ns)), at_once)
        count, total_ns = self.ran_as.get(ran_as, (0, 0))
        self.ran_as[ran_as] = count + 1, total_ns + spent_ns

    @property
    def counts(self) -> StageCounts:
        before = self.before
        return StageCounts(
            before.items + self.items,
            before.condition + self.no_condition,
            before.dropped + self.dropped,
            before.error + self.errors,
            before.late_frames + self.late_frames,
        )

    @property
    def p50_ms(self) -> float | None:
        return median(self.recent_ns) / NS_PER_MS if self.recent_ns else None


class StageMeter:
    """Implements `RunMeter`: what is spent on an item at a stage is spent for its frame, too."""

    __slots__ = ("_figures", "_frame", "_has_run", "at_once", "spent_ns")

    def __init__(self, figures: StageFigures, frame: RunMeter) -> None:
        self._figures, self._frame = figures, frame
        self._has_run = False
        self.spent_ns = 0
        self.at_once = 1

    def ran(self, kind: str, took_ns: int, at_once: int = 1) -> None:
        if not self._has_run:
            self._has_run = True
            self._figures.ran += 1
        self.spent_ns += took_ns
        self.at_once = at_once
        self._figures.spent_ns += took_ns
        self._frame.ran(kind, took_ns)


@dataclass(slots=True)
class FrameSecond:
    """Frames that were sent within one second of the clock, and those of them that were answered in time."""

    second: int
    sent: int = 0
    in_time: int = 0
    spent_ns: int = 0
    """Processor time of those that are over."""


@dataclass(slots=True)
class FrameFigures:
    """Of a pipeline, since the start."""

    sent: int = 0
    begun: int = 0
    """Of the sent: those that were read, so that stages could begin with them. One that the plan does not count on,
    where not all fit, is turned away before that."""
    joined: int = 0
    """Of the sent: of clients that joined."""
    promise: PromiseCounts = field(default_factory=PromiseCounts)
    """Ends of frames. Kept: answered in time, with all items. Late: answered too late, or without an item that would
    have been late. Refused: turned away because the plan has no room.
    """
    answered: int = 0
    late: int = 0
    dropped: int = 0
    """Of the answered: some item of it could no longer be in time."""
    errors: int = 0
    """Of the answered: some item of it failed."""
    failed: int = 0
    """Its input could not be read, or a stage failed that must not."""
    under_way: int = 0
    seconds: deque[FrameSecond] = field(default_factory=lambda: deque(maxlen=SECONDS + 1))

    def begins(self, now_ns: int, *, is_joined: bool = False) -> FrameSecond:
        """A frame has come; returns where it counts."""
        self.sent += 1
        self.joined += is_joined
        self.under_way += 1
        second = self._second(now_ns)
        second.sent += 1
        return second

    @property
    def in_time(self) -> int:
        """Return the number of frames that were answered in time with all items."""
        return self.promise.kept

    def ends(
        self,
        second: FrameSecond,
        *,
        is_answered: bool,
        is_late: bool,
        is_dropped: bool,
        has_errors: bool,
        broken: PromiseEnd | None = PromiseEnd.FAILED,
    ) -> bool:
        """Count the end of a frame, and return whether it was in time with all items. `is_answered` False: the frame
        failed. `broken`: how the failure of the frame or of an item broke the promise; None: it did not.
        """
        self.under_way -= 1
        if not is_answered:
            self.failed += 1
            if broken is not None:
                self.promise.count(broken)
            return False
        self.answered += 1
        self.dropped += is_dropped
        self.errors += has_errors
        self.late += is_late
        is_in_time = not (is_late or is_dropped or has_errors)
        if broken is PromiseEnd.REFUSED or has_errors:
            self.promise.count(broken or PromiseEnd.FAILED)
        else:
            self.promise.count(PromiseEnd.KEPT if is_in_time else PromiseEnd.LATE)
        second.in_time += is_in_time
        return is_in_time

    def recent(self, now_ns: int) -> list[FrameSecond]:
        """The last seconds, those without a frame, too; the newest last. What is under way is not in time yet."""
        known = {one.second: one for one in self.seconds}
        last = now_ns // NS_PER_S
        return [known.get(second, FrameSecond(second)) for second in range(last - SECONDS + 1, last + 1)]

    def rate_fps(self, now_ns: int) -> float:
        """Frames a second, of the last whole ones."""
        whole = self.recent(now_ns)[:-1]
        return sum(one.sent for one in whole) / len(whole)

    def _second(self, now_ns: int) -> FrameSecond:
        second = now_ns // NS_PER_S
        if not self.seconds or self.seconds[-1].second != second:
            self.seconds.append(FrameSecond(second))
        return self.seconds[-1]
