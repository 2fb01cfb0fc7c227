"""A session as it stands: its link, its frames under way, its plan, and what became of all that it sent.

It keeps the rules of its frames (credit, numbers, deadlines); who is served, and with which plan, others decide.
Event-loop thread only.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from statistics import median

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import CreditExceeded, FrameDropped, FrameMismatch, UnknownSession
from appliance.domain.session import (
    AccuracyPromise,
    DeviceReport,
    DropCause,
    FrameCounts,
    FrameEnd,
    FrameHead,
    LatencyPromise,
    Notice,
    NoticeKind,
    Promise,
    Reference,
    Session,
    SessionPlan,
)
from appliance.domain.slots import Slot
from appliance.domain.states import SESSION_MOVES, SessionState, move
from appliance.policies.limits.requests import is_too_late
from appliance.runtime.sessions.ageing import Ageing
from appliance.runtime.sessions.answers import RESULTS_NS, KeptAnswers
from appliance.runtime.sessions.curves import Curves
from appliance.runtime.sessions.figures import SessionFigures
from appliance.runtime.sessions.frame import Frame, FrameCall, FrameResult, anew
from appliance.runtime.sessions.holding import Holding
from appliance.runtime.sessions.link import LinkEstimate
from appliance.runtime.sessions.patience import Patience
from appliance.runtime.sessions.rate import TokenBucket
from appliance.runtime.sessions.sent import SentPictures
from appliance.runtime.sessions.windows import AccuracyWindows, LatencyWindows
from appliance.tasks.base import Media
from appliance.tasks.image_header import longer_side

NUMBERS_BEHIND = 64
"""A frame may come so many numbers behind the newest, or `RESULTS_NS` of frames ..."""
AHEAD_S = 3600.0
"""... and so many seconds of frames ahead of it."""
FUTURE_NS = 50 * NS_PER_MS
"""So far ahead a capture may seem to lie: clocks are not known better."""
ACCURACY_WITHIN_NS = NS_PER_S
"""A result that comes later after its capture is of no use to a device that tracks."""
STALE_NS = 2 * NS_PER_S
"""So long after its last frame a session that waits is taken to have another link than its frames have shown: nothing
comes of it that could show a better one, and it would wait for ever."""
PROBE_NS = NS_PER_S
"""What a link was like longer ago decides about no frame: one is let in to see."""
RTT_MS_MAX = 10_000.0
SHOWN_TOLERANCE = 1e-6
"""Frames; what comes at the very instant of a capture is shown with it."""
NOTICES_MAX = 16
RECENT = 16
"""Frames whose arrivals are remembered."""

Predict = Callable[["LiveSession", Frame, Media, str], Awaitable[bytes]]
SlotOf = Callable[["LiveSession", Frame], Slot]
HasRoom = Callable[["LiveSession"], bool]
Ended = Callable[["LiveSession", Frame, FrameResult], None]
Received = Callable[["LiveSession"], None]
Told = Callable[["LiveSession", Notice], None]


class Notices:
    """What one device is to be told; the newest plan replaces older ones that were not fetched."""

    def __init__(self) -> None:
        self._waiting: deque[Notice] = deque(maxlen=NOTICES_MAX)
        self._arrived = asyncio.Event()

    def put(self, notice: Notice) -> None:
        """Tell it."""
        if notice.plan is not None:
            kept = [one for one in self._waiting if one.kind is not NoticeKind.PLAN]
            self._waiting.clear()
            self._waiting.extend(kept)
        self._waiting.append(notice)
        self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[Notice]:
        """Ends after `NoticeKind.ENDED`."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            notice = self._waiting.popleft()
            yield notice
            if notice.kind is NoticeKind.ENDED:
                return


class LiveSession:
    """One device's session; port `FrameSession` of its frames."""

    def __init__(
        self,
        clock: Clock,
        session: Session,
        *,
        credit: int,
        predict: Predict,
        slot: SlotOf,
        has_room: HasRoom,
        on_received: Received,
        on_ended: Ended,
        answers: KeptAnswers,
        on_told: Told | None = None,
        link: LinkEstimate | None = None,
        state: SessionState = SessionState.WAITING,
    ) -> None:
        """`slot`: as of a `FrameCall`. `has_room`: whether a processor is free for who is not planned.
        `on_told`: hears what its device is told.
        """
        self._clock = clock
        self._predict, self._slot, self._has_room = predict, slot, has_room
        self._on_received, self._on_ended, self._on_told = on_received, on_ended, on_told
        self._credit, self._answers = credit, answers
        self.session, self.state = session, state
        self.reason = ""
        """Why it is in its state, for a person."""
        self.plan: SessionPlan | None = None
        self.lane = 0
        """Of a promise of accuracy: the worker that it is planned on."""
        self.beyond_share = self.lowers_quality = False
        """Whether it takes more than its tenant's share of the processors: the first to be removed. Whether its device
        says at which quality it sends pictures, and so chooses it."""
        self.counts = FrameCounts()
        self.link = link or LinkEstimate()
        self.last_heard_ns = clock.now_ns()
        before = max(0.0, (clock.wall_now() - session.began_at).total_seconds())
        self._began_ns = clock.now_ns() - int(before * NS_PER_S)
        self.holds_until_ns = 0
        """Of one that is suspended: until when its capacity is kept."""
        self.ended_ns: int | None = None
        self.streams = 0
        """Open streams; of a session that only posts, 0."""
        self.tries = 0
        """How often it was tried in vain while it waited."""
        self.expected_run_ms = self.load = 0.0
        """By the plan: of its variant, and the share of all workers that it takes."""
        self.least_load: float | None = None
        """Of a promise of latency: what it takes at least, by the last plan; None: nobody has planned it."""
        # What the device is like, as far as it says so.
        self.downlink_ms: float | None = None
        self.curves = Curves()
        self.reference_stride = 0.0
        """The mean age in frames of what a dedicated box would show, by the last plan."""
        self.ageing, self.patience, self.holding = Ageing(), Patience(), Holding()
        # What frames have shown.
        self.sent = SentPictures()
        self._head_delays_ms: deque[float] = deque(maxlen=RECENT)
        self._head_delay_ms: float | None = None  # their median; None: to be computed
        self.arrivals: deque[tuple[int, int, int]] = deque(maxlen=RECENT)
        """(frame, captured, complete) of the latest."""
        self.last_result: tuple[int, int, int] | None = None
        """(frame, captured, ended) of the newest that was answered."""
        self.latency_windows, self.accuracy_windows = LatencyWindows(), AccuracyWindows()
        self.figures = SessionFigures()
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        """Under way, and those that ended of late."""
        self._newest: int | None = None
        self._unacknowledged = self._numbers = 0
        self._rate = TokenBucket(clock.now_ns())
        self._notices: set[Notices] = set()

    # -- what others read ----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def credit(self) -> int:
        """Frames that may be on their way without acknowledgement."""
        return self._credit

    @property
    def promise(self) -> Promise:
        return self.session.promise

    @property
    def windows(self) -> int:
        """Windows of its promise that are over, of those in which it was served."""
        return self.latency_windows.windows + self.accuracy_windows.windows

    @property
    def kept(self) -> int:
        """Those of them in which the promise was kept."""
        return self.latency_windows.kept + self.accuracy_windows.kept

    @property
    def totals(self) -> tuple[int, ...]:
        """Return its windows as `PromiseCounts` does: kept, late, refused and failed; none is late or refused."""
        return self.kept, 0, 0, self.windows - self.kept

    @property
    def newest(self) -> int | None:
        """The highest frame that has come."""
        return self._newest

    @property
    def head_delay_ms(self) -> float:
        """From a capture to the head of the frame: the device's encoding, its waiting, and the way."""
        if not self._head_delays_ms:
            return self.link.rtt_ms / 2.0
        if self._head_delay_ms is None:
            self._head_delay_ms = median(self._head_delays_ms)
        return self._head_delay_ms

    @property
    def down_ms(self) -> float:
        """From the box to the device, of a result."""
        return self.link.rtt_ms / 2.0 if self.downlink_ms is None else self.downlink_ms

    @property
    def variant(self) -> str:
        return "" if self.plan is None else self.plan.variant

    def frames_kept(self) -> int:
        """Frames that it remembers, with or without their answers."""
        return len(self._frames)

    def next_due(self, now_ns: int) -> tuple[int | None, float]:
        """The next frame to send (None: whichever is captured next) and the milliseconds until its capture."""
        plan, newest = self.plan, self.newest
        if plan is None or newest is None or not self.arrivals:
            return None, 0.0
        ahead = [number for number in plan.frames if number > newest]
        number = ahead[0] if ahead else newest + plan.interval
        came, captured_ns, _ = self.arrivals[-1]
        due_ns = captured_ns + int((number - came) * NS_PER_S / self.session.fps)
        return number, max(0.0, (due_ns - now_ns) / NS_PER_MS)

    # -- its state -----------------------------------------------------------------------------------------------------

    def become(self, state: SessionState, reason: str = "", *, is_broken: bool = False) -> None:
        """Move on, as the table allows; the device is told of what concerns it. `is_broken`: its promise
        is kept no more.
        """
        before, self.state = self.state, move(SESSION_MOVES, self.state, state)
        self.reason = reason
        now_ns = self._clock.now_ns()
        windows = self._windows()
        if state is SessionState.SERVED:
            self.tries = 0
            windows.begin(now_ns)
            if before is SessionState.WAITING:
                self.patience.served(now_ns)
        elif is_broken:
            windows.remove(now_ns)
        else:
            windows.stop()
        if state in (SessionState.WAITING, SessionState.ENDED):
            self.plan, self.load, self.least_load = None, 0.0, None
        if state is SessionState.ENDED:
            self.ended_ns = now_ns
            self._answers.clear()
            self.tell(Notice(NoticeKind.ENDED, state, None, reason))
        elif state is SessionState.SERVED:
            self.tell(Notice(NoticeKind.SERVED, state, self.plan, reason))
        elif before is SessionState.SERVED and state is SessionState.WAITING:
            self.tell(Notice(NoticeKind.REMOVED, state, None, reason))

    def check_alive(self) -> None:
        """Raises: UnknownSession where it has ended."""
        if self.state is SessionState.ENDED:
            raise UnknownSession(name=self.id)

    def copy_device(self, other: "LiveSession") -> None:
        """Take over what another session knows of its device: as that says itself, and as frames have shown."""
        self.downlink_ms = other.downlink_ms
        self.ageing, self.curves = other.ageing, other.curves
        self.sent = other.sent
        self.lowers_quality = other.lowers_quality
        self._head_delays_ms, self._head_delay_ms = other._head_delays_ms.copy(), other._head_delay_ms

    def take(self, plan: SessionPlan, reason: str = "") -> None:
        """Follow another plan; one that says the same tells the device nothing new. `reason`: for a person."""
        before, self.plan = self.plan, plan
        self.sent.ask(plan.size, self._clock.now_ns())
        is_other = before is not None and before.answering != plan.answering
        self.tell(Notice(NoticeKind.VARIANT if is_other else NoticeKind.PLAN, self.state, plan, reason))

    def next_number(self) -> int:
        """Of a plan."""
        self._numbers += 1
        return self._numbers

    def forget_shown(self) -> None:
        """It is planned as one that begins: what it shows is as old as its promise before allowed."""
        self.arrivals.clear()
        self.last_result = None

    def promised(self, session: Session) -> None:
        """Another promise, or paused, or not any more; windows of another kind of promise begin anew."""
        if type(session.promise) is not type(self.session.promise):
            self._windows().stop()
            self.session = session
            if self.state is SessionState.SERVED:
                self._windows().begin(self._clock.now_ns())
        self.session, self.least_load = session, None

    def tell(self, notice: Notice) -> None:
        """All who listen."""
        if self._on_told is not None:
            self._on_told(self, notice)
        for notices in self._notices:
            notices.put(notice)

    def listen(self) -> Notices:
        """From now on, the present plan first."""
        notices = Notices()
        if self.state is SessionState.ENDED:
            notices.put(Notice(NoticeKind.ENDED, self.state, None, self.reason))
        elif self.plan is not None:
            notices.put(Notice(NoticeKind.PLAN, self.state, self.plan, self.reason))
        self._notices.add(notices)
        return notices

    def unlisten(self, notices: Notices) -> None:
        """No more."""
        self._notices.discard(notices)

    def roll(self, now_ns: int) -> None:
        """Close windows that are over, and forget results that nobody may ask for again."""
        promise = self.promise
        if isinstance(promise, AccuracyPromise):
            drop_of = self.drop_of if promise.reference is Reference.FRESH else self.drop_beside_dedicated
            closed = self.accuracy_windows.roll(now_ns, self.session.fps, drop_of, promise.drop_max)
            for window in closed:
                self.figures.window(window.drop)
            if closed:
                self.ageing.observe(sum(window.stride for window in closed) / len(closed), self.stride_allowed)
            if closed or self.figures.estimated_drop is None or self.plan is None:
                self.figures.estimated_drop = None if self.plan is None else self.plan.expected_drop
        else:
            self.latency_windows.roll(now_ns)
        if self.state is SessionState.WAITING and self.arrivals and now_ns - self.arrivals[-1][2] > STALE_NS:
            self._forget_link()
        self._forget(now_ns)

    def drop_of(self, stride: float, variant: str = "") -> float:
        """What the device shows of a variant (empty: the best one) loses so much at a mean age of so many frames,
        against a fresh result of the best one."""
        curves = self.curves
        rate = curves.rate_of(variant) if variant else curves.best_rate
        return curves.base + curves.gap_of(variant) + rate * stride

    def drop_beside_dedicated(self, stride: float, variant: str = "") -> float:
        """The same against what a box shows that serves nobody else; no less than 0."""
        curves = self.curves
        reference = curves.base + curves.best_rate * self.reference_stride
        return max(0.0, self.drop_of(stride, variant) - reference)

    @property
    def stride_allowed(self) -> float:
        """Mean age in frames beyond the reference that a promise of accuracy allows of the best variant."""
        assert isinstance(self.promise, AccuracyPromise)
        base = self.curves.base if self.promise.reference is Reference.FRESH else 0.0
        return max(0.0, self.promise.drop_max - base) / self.curves.best_rate

    def report(self, report: DeviceReport) -> None:
        """Believe what the device says of itself, within reason."""
        counts = self.counts
        if report.skipped is not None:
            counts.skipped = max(counts.skipped, min(report.skipped, self._captured_max() - counts.sent))
        self.ageing.is_rate_known = self.curves.report(report) or self.ageing.is_rate_known
        if report.rtt_ms is not None and 0.0 <= report.rtt_ms <= RTT_MS_MAX:
            self.link.rtt_ms = report.rtt_ms
        if report.downlink_ms is not None and 0.0 <= report.downlink_ms <= RTT_MS_MAX:
            self.downlink_ms = report.downlink_ms
        if report.uplink_bps is not None:
            self.link.expect(report.uplink_bps)

    def _captured_max(self) -> int:
        """No device has captured more since the session began."""
        age_s = (self._clock.now_ns() - self._began_ns) / NS_PER_S
        return int(max(0.0, age_s + 1.0) * self.session.fps)

    def _windows(self) -> LatencyWindows | AccuracyWindows:
        return self.accuracy_windows if isinstance(self.promise, AccuracyPromise) else self.latency_windows

    # -- frames --------------------------------------------------------------------------------------------------------

    def begin(self, head: FrameHead, refused: DropCause | None = None) -> Frame:
        """A frame's head has come. `refused`: why it is dropped, whatever else its head says.

        Raises: as `Sessions.frame_begins`.
        """
        self.check_alive()
        now_ns = self._clock.now_ns()
        self.last_heard_ns = now_ns
        if head.report is not None:
            self.report(head.report)
        known = self._frames.get(head.frame)
        if known is not None:
            return self._repeated(known, head)
        self._check_number(head.frame)
        captured_ns = self._captured_ns(head)
        frame = Frame(self, head, captured_ns, self._deadline_ns(captured_ns))
        self._frames[head.frame] = frame
        self._newest = head.frame if self._newest is None else max(self._newest, head.frame)
        self.counts.sent += 1
        self._unacknowledged += 1
        if self._unacknowledged > self._credit:
            frame.drop(DropCause.CREDIT)
            raise CreditExceeded(credit=self._credit, frame=head.frame)
        frame.is_planned = self._is_planned(head.frame, now_ns)
        self.counts.unplanned += not frame.is_planned
        expected_ms = self._expected_ms(head, now_ns)
        cause = refused or self._hopeless(frame, expected_ms, now_ns)
        if cause is not None:
            if head.body_bytes:  # what is never read has its size all the same
                self.sent.observe(head.body_bytes, head.quality, head.size, now_ns)
            if cause is not DropCause.HOPELESS:
                raise frame.drop(cause)
            raise frame.drop(cause, (frame.deadline_ns - now_ns) / NS_PER_MS, expected_ms)
        self.link.begin(head.frame, head.body_bytes, head.arrived_ns)
        return frame

    def results_since(self, frame: int | None) -> list[FrameResult]:
        """Of frames after `frame`, in the order in which they ended."""
        oldest_ns = self._clock.now_ns() - RESULTS_NS
        found = [one.result for number, one in self._frames.items() if frame is None or number > frame]
        ended = [result for result in found if result is not None and result.ended_ns >= oldest_ns]
        return sorted(ended, key=lambda result: result.ended_ns)

    def _repeated(self, known: Frame, head: FrameHead) -> Frame:
        """Raises: FrameDropped again for one that was not run; FrameMismatch where its answer is kept no more."""
        if known.result is not None:
            if isinstance(known.result.error, FrameDropped):
                raise anew(known.result.error)
            if known.result.end is FrameEnd.ANSWERED and known.result.body is None:
                raise FrameMismatch(name=str(head.frame), reason="it was answered, and the answer is kept no more")
        return Frame(self, head, known.captured_ns, known.deadline_ns, first=known)

    def _check_number(self, number: int) -> None:
        newest, fps = self._newest, self.session.fps
        if newest is None:
            return
        behind = max(NUMBERS_BEHIND, int(fps * RESULTS_NS / NS_PER_S))
        if number < newest - behind:
            raise FrameMismatch(name=str(number), reason=f"it lies far behind frame {newest}, which has come")
        if number > newest + AHEAD_S * fps:
            raise FrameMismatch(name=str(number), reason=f"it lies far ahead of frame {newest}, the newest so far")

    def _captured_ns(self, head: FrameHead) -> int:
        """On the box's clock; a stated age counts from the sending, so half a round trip comes on top."""
        if head.captured_ns is not None:
            return head.captured_ns
        age_ms = 0.0 if head.age_ms is None else head.age_ms
        return head.arrived_ns - int((age_ms + self.link.rtt_ms / 2.0) * NS_PER_MS)

    def _deadline_ns(self, captured_ns: int) -> int:
        """Capture + SLO − downlink (X-02)."""
        if isinstance(self.promise, LatencyPromise):
            return captured_ns + int((self.promise.slo_ms - self.down_ms) * NS_PER_MS)
        return captured_ns + ACCURACY_WITHIN_NS - int(self.down_ms * NS_PER_MS)

    def _is_planned(self, number: int, now_ns: int) -> bool:
        """Whether a frame that comes now is within the promised rate: that of the promise, or, of a promise of
        accuracy, of the plan, whose own frames are so in any case.
        """
        if self.state is not SessionState.SERVED:
            return True  # it is not run at all
        promise, plan, rate = self.promise, self.plan, self.session.fps
        if isinstance(promise, LatencyPromise):
            return self._rate.take(min(promise.rate_rps, rate), now_ns)
        has_place = self._rate.take(rate if plan is None else rate / plan.interval, now_ns)
        return has_place or (plan is not None and number in plan.frames)

    def _expected_ms(self, head: FrameHead, now_ns: int) -> float:
        """Return the expected time of the rest of a frame's way and of its run."""
        last_ns = self.link.last_ns
        if head.body_bytes and last_ns is not None and now_ns - last_ns <= PROBE_NS:
            return self.expected_run_ms + self.link.transfer_ms(head.body_bytes, now_ns)
        return self.expected_run_ms

    def _hopeless(self, frame: Frame, expected_ms: float, now_ns: int) -> DropCause | None:
        """Why the frame need not be read."""
        if frame.captured_ns > now_ns + FUTURE_NS or frame.deadline_ns <= now_ns:
            return DropCause.EXPIRED
        if self.state is not SessionState.SERVED:
            return DropCause.NOT_SERVED
        if is_too_late(0.0, expected_ms, (frame.deadline_ns - now_ns) / NS_PER_MS):
            return DropCause.HOPELESS
        return None if frame.is_planned or self._has_room(self) else DropCause.OVER_RATE

    def _forget_link(self) -> None:
        """What it has said of its link counts again, as when it joined."""
        self.link.forget()
        self.ageing.forget()
        self._head_delays_ms.clear()
        self.forget_shown()

    def _forget(self, now_ns: int) -> None:
        """Answers go first; that a number was used is known for as long as it may come again."""
        self._answers.forget(now_ns)
        behind = max(NUMBERS_BEHIND, int(self.session.fps * RESULTS_NS / NS_PER_S))
        newest = self._newest or 0
        for number, frame in list(self._frames.items()):
            if frame.result is not None and number < newest - behind:
                del self._frames[number]

    # -- port FrameSession ---------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """The box's clock."""
        return self._clock.now_ns()

    def call_of(self, frame: Frame) -> FrameCall:
        """What a frame's run is asked with now: the variant of the present plan, whatever it was made for (JF-22)."""
        frame.variant = self.variant
        return FrameCall(
            frame.received_ns or self._clock.now_ns(),
            frame.deadline_ns,
            self.variant or None,
            frame.is_planned,
            partial(self._slot, self, frame),
            frame.ran,
        )

    async def predict(self, frame: Frame, media: Media, request_id: str) -> bytes:
        """The answer of the engine."""
        return await self._predict(self, frame, media, request_id)

    def frame_received(self, frame: Frame, body: bytes) -> float:
        """Its body is complete: the link's estimate learns of it."""
        self._unacknowledged -= 1
        head, now_ns = frame.head, frame.received_ns
        took_ms = self.link.end(head.frame, len(body), now_ns)
        if head.captured_ns is not None or head.age_ms is not None:
            self._head_delays_ms.append(max(0.0, (head.arrived_ns - frame.captured_ns) / NS_PER_MS))
            self._head_delay_ms = None
        self.arrivals.append((head.frame, frame.captured_ns, now_ns))
        self.lowers_quality = head.quality is not None
        self.sent.observe(len(body), head.quality, head.size or longer_side(body), now_ns)
        self._on_received(self)
        return took_ms

    def _shown_ns(self, frame: Frame, ended_ns: int) -> int:
        """When the device shows a result: with its next capture after that has come."""
        frame_ns = NS_PER_S / self.session.fps
        age_ns = ended_ns + self.down_ms * NS_PER_MS - frame.captured_ns
        return frame.captured_ns + int(math.ceil(age_ns / frame_ns - SHOWN_TOLERANCE) * frame_ns)

    def frame_ended(self, frame: Frame, result: FrameResult) -> None:
        """Counted once, whatever became of it."""
        if not frame.received_ns:
            self._unacknowledged -= 1
            self.link.broken(frame.number)
        self.counts.end(result.end, result.cause)
        if frame.run_rows:
            self.figures.run(frame.run_rows, frame.started_ns, frame.planned_ns)
        if result.end is FrameEnd.ANSWERED:
            self.figures.in_time[result.variant] += 1
        if self.state is SessionState.SERVED:
            in_time = result.end is FrameEnd.ANSWERED
            if isinstance(self.promise, LatencyPromise):
                if frame.is_planned and result.cause is not DropCause.BAD_MEDIA:  # nobody can answer those
                    self.latency_windows.ended(result.ended_ns, in_time=in_time)
            elif in_time:
                self.accuracy_windows.shown(frame.captured_ns, self._shown_ns(frame, result.ended_ns), result.variant)
        if result.end is FrameEnd.ANSWERED and (self.last_result is None or frame.number > self.last_result[0]):
            self.last_result = frame.number, frame.captured_ns, result.ended_ns
        self._on_ended(self, frame, result)
        self._answers.put(frame, is_asked_for=self.state is not SessionState.ENDED)
