"""An emulated device (AR-25): the sender of a real one on an emulated link, with tracking looked up in place of done.

A frame crosses the link as a head and a body; acknowledgements, results and plans come back over the other direction.
What a connection loses in an outage is lost with it: once a frame is overdue by far, the device dials until it has
another connection, as the SDK does. The box takes a device to be gone that it has not heard of for 10 s.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.errors import CreditExceeded, FrameDropped, TooManySessions
from appliance.domain.session import DeviceReport, DropCause, FrameEnd, FrameHead, Notice, NoticeKind, SessionPlan
from appliance.domain.states import SessionState
from appliance.lab.drop_rates import Rates
from appliance.lab.links.link import Link
from appliance.lab.loop import START_NS, VirtualClock, VirtualLoop
from appliance.lab.outcome import Answer, Kind
from appliance.lab.sessions.camera import Camera
from appliance.lab.sessions.ladder import Ladder
from appliance.lab.sessions.losses import Losses
from appliance.lab.sessions.network import DeviceNetwork
from appliance.lab.sessions.tally import AccuracyTally, LatencyTally, Tally
from appliance.lab.sessions.target import Found, Target
from appliance.policies.sending.curves import DropCurves
from appliance.policies.sending.schedule import Orders
from appliance.policies.sending.sender import Send, Sender
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession, Notices
from appliance.runtime.sessions.orders import JoinOrder
from appliance.runtime.sessions.sessions import Sessions

HEAD_BYTES, ACK_BYTES, PLAN_BYTES = 300, 100, 500
PART_BYTES = 16_384
"""Of a body: between two of them a frame can be withdrawn."""
LOOK_NS = 100 * NS_PER_MS
"""How often a device looks whether its line is dead."""
DIAL_NS = 250 * NS_PER_MS
"""Between two tries to connect."""
DIAL_ROUND_TRIPS = 2
LINGER_NS = NS_PER_S
"""So long a device waits for its last answers before it leaves."""
SILENCE_NS = 10 * NS_PER_S
"""After which the box takes a silent connection to be gone."""


@dataclass(frozen=True, slots=True)
class BoxSide:
    """What a device meets on the box."""

    sessions: Sessions
    credit: int
    """Frames that a device may have on their way without acknowledgement."""


@dataclass(frozen=True, slots=True)
class Stay:
    """When a device is there, and for what. Times are nanoseconds on the clock; `order` is what it asks for."""

    name: str
    order: JoinOrder
    arrives_ns: int
    leaves_ns: int
    slo_ms: float | None
    """Of a promise of latency."""
    fits_deadline: bool
    """Whether pictures are made so small that they are in time; else only so that the link keeps up with them."""
    result_bytes: int
    sends_px: int | None = None
    """Longer side of all its pictures; None: as plans and the link say."""


class Device:
    """One device's stay. `live` is all of it; then `answers` and `tally` tell what became of it."""

    def __init__(
        self,
        clock: VirtualClock,
        box: BoxSide,
        stay: Stay,
        network: DeviceNetwork,
        camera: Camera,
        rates: Rates,
        tally: Tally,
        target: Target,
        ladder: Ladder | None,
        losses: Losses,
    ) -> None:
        """`ladder`: what answers are worth; None: nobody knows, of a pipeline. `losses`: what they lose with age."""
        self._clock = clock
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self._box = box
        self._stay = stay
        self._network = network
        self._camera = camera
        self._rates = rates
        self._target = target
        self._ladder = ladder
        self._losses = losses
        self.tally = tally
        self.answers: list[Answer] = []
        """One for each frame that was sent."""
        self.sender = Sender(
            fps=stay.order.fps,
            deadline_ms=stay.slo_ms if stay.fits_deadline else None,
            side_px=camera.side_px,
            aspect=1.0,
        )
        self.session: LiveSession | None = None
        self.removals = 0
        self.reconnects = 0
        self._drops = DropCurves()
        self._newest = ""
        """The variant of the newest result."""
        self._captured: dict[int, int] = {}
        """Frames sent that have not ended → when they were captured."""
        self._sides: dict[int, int] = {}
        """The same → the longer sides of their pictures."""
        self._outgoing: deque[tuple[Send, int]] = deque()
        """Pictures and their bytes, the first one on its way."""
        self._begun: dict[int, Frame] = {}
        """Frames whose head has come to the box, and whose body has not."""
        self._runs: set[asyncio.Task[None]] = set()
        self._connection = 0
        self._attached = ExitStack()
        self._told: asyncio.Task[None] | None = None
        self._is_dialling = False
        self._look_ns = 0
        self._heard_ns = 0
        self._way_ms = network.shape.rtt_ms / 2.0
        """Of a small message from the box."""
        self._downlink_ms = self._way_ms
        """Of a result: were it taken for that of any message, each result would come later than the box plans."""

    # -- its stay ------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Come, stream, and leave."""
        clock, stay, sessions = self._clock, self._stay, self._box.sessions
        await clock.sleep_until_ns(stay.arrives_ns)
        try:
            self.session = await sessions.join(stay.order)
        except TooManySessions:
            return
        self._attach()
        frame_ns, frame = NS_PER_S / stay.order.fps, 0
        begin_ns = clock.now_ns()
        while (now_ns := begin_ns + int(frame * frame_ns)) < stay.leaves_ns:
            await clock.sleep_until_ns(now_ns)
            self._capture(frame, now_ns)
            frame += 1
        await clock.sleep_until_ns(stay.leaves_ns)
        self.tally.served(self._since_start(), is_served=False)
        self.sender.orders = None
        while self._captured and clock.now_ns() < stay.leaves_ns + LINGER_NS:
            await clock.sleep_until_ns(clock.now_ns() + LOOK_NS)
        await self._leave()

    @property
    def is_served(self) -> bool:
        """By the box's word."""
        return self.session is not None and self.session.state is SessionState.SERVED

    @property
    def is_leaving(self) -> bool:
        """Whether it captures nothing any more."""
        return self._clock.now_ns() >= self._stay.leaves_ns

    async def _leave(self) -> None:
        assert self.session is not None
        self.tally.close()
        self.sender.closed()
        self._detach()
        self._connection += 1
        self._give_up_begun()
        await self._box.sessions.end(self.session)
        if self._runs:
            await asyncio.wait(self._runs)
        for frame in sorted(self._captured):
            self._ended(frame, "failed", "lost on the way")

    # -- the camera's side ---------------------------------------------------------------------------------------------

    def _capture(self, frame: int, now_ns: int) -> None:
        is_due = self.sender.captured(frame, now_ns / NS_PER_MS)
        if isinstance(self.tally, AccuracyTally):
            self.tally.displayed(frame, self._since_start(), self._rate())
        elif is_due:
            self.tally.captured(frame, self._since_start())
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self._look()
        if is_due:
            self._pump()

    def _rate(self) -> float:
        return self._rates.at(self._clock.now_ns() - self._stay.arrives_ns)

    def _pump(self) -> None:
        """Send what there is to send."""
        while (send := self.sender.next(self._now_ms())) is not None:
            if self._stay.sends_px is not None:
                self._sent(replace(send, size_px=self._stay.sends_px, quality=Orders().quality))
                continue
            size = self._camera.bytes_of(send.size_px, send.quality)
            again = self.sender.smaller(size, self._now_ms())
            if again is not None:
                send = again
                size = self._camera.bytes_of(send.size_px, send.quality)
                self.sender.smaller(size, self._now_ms())
            self._sent(send)

    def _sent(self, send: Send) -> None:
        size = self._camera.bytes_of(send.size_px, send.quality)
        self.sender.sent(size, self._now_ms())
        self._send(send, size)

    def _send(self, send: Send, size: int) -> None:
        self._captured[send.frame] = round(send.captured_ms * NS_PER_MS)
        self._sides[send.frame] = send.size_px
        if isinstance(self.tally, AccuracyTally):
            self.tally.sent(send.frame)
        self._outgoing.append((send, size))
        if len(self._outgoing) == 1:
            self._begin_next()

    def _report(self) -> DeviceReport:
        drop = self._drops.fitted(self._newest)
        return DeviceReport(
            skipped=self.sender.counts.skipped,
            drop_rate=None if drop is None else drop.rate,
            drop_curves=self._drops.known(),
            rtt_ms=2.0 * self._way_ms,
            downlink_ms=self._downlink_ms,
        )

    def _planned(self, plan: SessionPlan, following: int | None, credit: int) -> None:
        """What to send from now on."""
        frames = plan.frames or (() if following is None else (following,))
        self.sender.credit = credit
        side_px = Orders().size_px if plan.size is None else plan.size
        self.sender.orders = Orders(side_px, plan.quality, float(plan.interval), frozenset(frames))

    def _answered(self, result: FrameResult, found: Found | None) -> None:
        """A frame's end has come back."""
        frame, now_ms = result.frame, self._now_ms()
        if result.end is FrameEnd.ANSWERED:
            end = self.sender.answered(frame, now_ms)
        else:
            end = self.sender.ended(frame, result.end, result.cause)
        if end is None:
            return
        if end is FrameEnd.ANSWERED and self._is_late(frame):
            end = FrameEnd.LATE
        if found is None:
            reason = "late" if result.cause is None else result.cause.value
            kind: Kind = "failed" if end is FrameEnd.LOST else "dropped"
            self._ended(frame, kind, reason, is_late=end is FrameEnd.LATE)
        else:
            if isinstance(self.tally, LatencyTally) and end is FrameEnd.ANSWERED:
                self.tally.answered(frame, self._worth(found, self._sides[frame]))
            self._ended(frame, "warm" if found.is_warm else "cold", "", found, is_late=end is FrameEnd.LATE)
            if isinstance(self.tally, AccuracyTally):
                self._compare(frame, self.tally, found.variant or "")
        self._pump()

    def _compare(self, frame: int, tally: AccuracyTally, variant: str) -> None:
        """A result of a variant, with what was shown for its frame."""
        stride = tally.result(frame, self._losses.of(variant))
        if stride is not None:
            lost = self._losses.between(self._newest, variant, self._rate(), stride)
            self._drops.observe(self._newest, variant, stride, lost)
        if stride is not None or not self._newest:
            self._newest = variant

    def _worth(self, found: Found, side_px: int) -> float | None:
        """What an answer about a picture of that size is worth, in the unit of accuracies; None: nobody knows."""
        if self._ladder is None or found.variant is None:
            return None
        return self._ladder.accuracy(found.variant, side_px)

    def _is_late(self, frame: int) -> bool:
        age_ms = (self._clock.now_ns() - self._captured[frame]) / NS_PER_MS
        return self._stay.slo_ms is not None and age_ms > self._stay.slo_ms

    def _ended(self, frame: int, kind: Kind, reason: str, found: Found | None = None, *, is_late: bool = False) -> None:
        captured_ns = self._captured.pop(frame)
        del self._sides[frame]
        latency_ns = self._clock.now_ns() - captured_ns
        variant = None if found is None else found.variant
        self.answers.append(
            Answer(
                self._target.name,
                kind,
                captured_ns - START_NS,
                latency_ns,
                variant,
                None if self._ladder is None or variant is None else self._ladder.own(variant),
                is_late,
                self._stay.slo_ms is not None,
                reason,
                latency_ns - (0 if found is None else found.compute_ns),
            )
        )

    # -- the line ------------------------------------------------------------------------------------------------------

    def _over(self, link: Link, size: int, come: Callable[[], None] | None) -> None:
        """Send something; `come` when it has crossed, never if it is lost."""
        passage = link.passes(self._since_start(), size)
        if passage.out_ns is not None and come is not None:
            self._loop.call_at_ns(START_NS + passage.out_ns, come)

    def _down(self, size: int, come: Callable[[], None]) -> None:
        """The box says something on the present connection."""
        connection, sent_ns = self._connection, self._clock.now_ns()

        def there() -> None:
            if connection == self._connection:
                took_ms = (self._clock.now_ns() - sent_ns) / NS_PER_MS
                if size == self._stay.result_bytes:
                    self._downlink_ms += 0.1 * (took_ms - self._downlink_ms)
                else:
                    self._way_ms += 0.1 * (took_ms - self._way_ms)
                come()

        self._over(self._network.down, size, there)

    def _begin_next(self) -> None:
        """Send the head of the next frame and then its body, in parts, as the SDK does."""
        while self._outgoing and not self.sender.is_under_way(self._outgoing[0][0].frame):
            self._outgoing.popleft()
        if self._outgoing:
            send, size = self._outgoing[0]
            connection, report = self._connection, self._report()
            self._over(self._network.up, HEAD_BYTES, lambda: self._head_came(send, size, report, connection))
            self._go_on(send, size, size, connection)

    def _go_on(self, send: Send, size: int, left: int, connection: int) -> None:
        """The next part of a body; none where the box has said meanwhile that the frame will not be in time."""
        if connection != self._connection:
            return
        up = self._network.up
        if left and self.sender.is_under_way(send.frame):
            part = min(left, PART_BYTES)
            left -= part
            whole = None if left else lambda: self._body_came(send.frame, size, connection)
            self._over(up, part, whole)
            free_ns = max(self._clock.now_ns(), START_NS + up.free_ns)
            self._loop.call_at_ns(free_ns, self._go_on, send, size, left, connection)
            return
        if left:
            self._over(up, ACK_BYTES, lambda: self._withdrawn(send.frame, connection))
        self._outgoing.popleft()
        self._begin_next()

    def _look(self) -> None:
        """Whether the line is dead, by the device's sender and by the box's patience."""
        is_there = self._told is not None
        if is_there and self._outage_ns() is not None and self._clock.now_ns() - self._heard_ns > SILENCE_NS:
            self._detach()
        if not self._is_dialling and (self._told is None or self.sender.is_silent(self._now_ms())):
            self._is_dialling = True
            self._dial()

    def _dial(self) -> None:
        if self._told is not None and not self.sender.is_silent(self._now_ms()):
            self._is_dialling = False
        elif self._clock.now_ns() < self._stay.leaves_ns:
            took_ns = int(DIAL_ROUND_TRIPS * self._network.shape.rtt_ms * NS_PER_MS)
            is_out = self._outage_ns() is not None
            self._after(DIAL_NS if is_out else took_ns, self._dial if is_out else self._opened)

    def _opened(self) -> None:
        if self._outage_ns() is not None or self._clock.now_ns() >= self._stay.leaves_ns:
            self._dial()
            return
        self._is_dialling = False
        assert self.session is not None
        if self.session.state is SessionState.ENDED:
            return
        self.reconnects += 1
        self._connection += 1
        lost = self.sender.unacknowledged()
        before = set(self._captured)
        self.sender.interrupted()
        self._outgoing.clear()
        if lost:
            for frame in sorted(before):
                if not self.sender.is_under_way(frame):
                    self._ended(frame, "failed", "lost on the way")
        self._give_up_begun()
        self._attach()
        for result in self._box.sessions.results_since(self.session, self.sender.known_to):
            self._again(result)
        self._pump()

    def _again(self, result: FrameResult) -> None:
        """A result of the last seconds that the old connection may have lost."""
        if self.sender.is_under_way(result.frame):
            self._down(self._stay.result_bytes, lambda: self._answered(result, None))

    def _after(self, ns: int, what: Callable[[], None]) -> None:
        self._loop.call_at_ns(self._clock.now_ns() + ns, what)

    def _outage_ns(self) -> int | None:
        """Since when nothing comes through."""
        outage = self._network.outage_at(self._since_start())
        return None if outage is None else START_NS + outage[0]

    # -- the box's side ------------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        """A stream of the session is open, in place of the one before."""
        assert self.session is not None
        before, told = self._attached, self._told
        self._attached = ExitStack()
        self._heard_ns = self._clock.now_ns()
        self._attached.enter_context(self._box.sessions.attached(self.session))
        notices = self._attached.enter_context(self._box.sessions.subscribe(self.session))
        self._told = asyncio.create_task(self._tell(notices, self.session), name=f"plans of {self._stay.name}")
        if told is not None:
            told.cancel()
        before.close()

    def _detach(self) -> None:
        if self._told is not None:
            self._told.cancel()
            self._told = None
        self._attached.close()

    async def _tell(self, notices: Notices, session: LiveSession) -> None:
        async for notice in notices:
            following, _ = session.next_due(self._clock.now_ns())
            self._down(PLAN_BYTES, self._noticed(notice, following, self._box.credit))

    def _noticed(self, notice: Notice, following: int | None, credit: int) -> Callable[[], None]:
        def take() -> None:
            if notice.kind is NoticeKind.REMOVED:
                self.removals += 1
                self.sender.orders = None
            elif notice.plan is not None:
                self._planned(notice.plan, following, credit)

        return take

    def _give_up_begun(self) -> None:
        """Bodies that were on their way are lost with their connection."""
        for frame in self._begun.values():
            frame.lost()
        self._begun.clear()

    def _head_came(self, send: Send, size: int, report: DeviceReport, connection: int) -> None:
        now_ns = self._heard_ns = self._clock.now_ns()
        if connection != self._connection or self.session is None or self.session.state is SessionState.ENDED:
            return
        head = FrameHead(
            frame=send.frame,
            arrived_ns=now_ns,
            captured_ns=round(send.captured_ms * NS_PER_MS),
            body_bytes=size,
            size=send.size_px,
            quality=send.quality,
            report=report,
        )
        try:
            self._begun[send.frame] = self._box.sessions.frame_begins(self.session, head)
        except FrameDropped as error:
            refused = FrameResult(send.frame, FrameEnd.DROPPED, now_ns, cause=DropCause(error.cause), error=error)
            self._down(ACK_BYTES, lambda: self._answered(refused, None))
        except CreditExceeded as error:
            refused = FrameResult(send.frame, FrameEnd.DROPPED, now_ns, cause=DropCause.CREDIT, error=error)
            self._down(ACK_BYTES, lambda: self._answered(refused, None))

    def _body_came(self, number: int, size: int, connection: int) -> None:
        self._heard_ns = self._clock.now_ns()
        frame = self._begun.pop(number, None)
        if frame is None or connection != self._connection:
            return
        frame.received(bytes(size))
        self._down(ACK_BYTES, lambda: self._acknowledged(number))
        run = asyncio.create_task(self._run(frame), name=f"frame {number} of {self._stay.name}")
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    def _withdrawn(self, number: int, connection: int) -> None:
        frame = self._begun.pop(number, None)
        if frame is not None and connection == self._connection:
            frame.lost()

    def _acknowledged(self, number: int) -> None:
        self.sender.acknowledged(number, self._now_ms())
        self._pump()

    async def _run(self, frame: Frame) -> None:
        result, found = await self._target.run(frame)
        size = ACK_BYTES if found is None else self._stay.result_bytes
        self._down(size, lambda: self._answered(result, found))

    def _now_ms(self) -> float:
        return self._clock.now_ns() / NS_PER_MS

    def _since_start(self) -> int:
        return self._clock.now_ns() - START_NS
