"""One session's stream: what a device's messages do, and what it is told. `docs/streams.md` says the grammar.

It takes a head as it is read, acknowledges what has become complete at the end of the event loop's turn, and answers
each frame in a task of its own. It never waits in what is called by the connection.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.api.http.limits import HeldBody, InFlight
from appliance.api.http.websocket import FRAMES_MAX, MESSAGE_S, Broken, WebSocket
from appliance.api.streams.offset import TIME_MS_MAX, ClockOffset
from appliance.api.streams.welcome import Welcome
from appliance.api.streams.words import end_of, notice_of, plain_problem_of, plan_of, problem_of, said
from appliance.api.wall import Wall
from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import (
    ApplianceError,
    Busy,
    CreditExceeded,
    FrameDropped,
    TooLarge,
    UnknownSession,
    WrongKey,
)
from appliance.domain.session import DeviceReport, DropCause, FrameEnd, FrameHead, NoticeKind, VariantDrop
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession, Notices
from appliance.runtime.sessions.sessions import Sessions
from appliance.tasks.base import Media
from appliance.wire.stream import (
    HEAD_BYTES_MAX,
    Ack,
    BoxClock,
    Close,
    DeviceClock,
    ErrorMessage,
    Message,
    Reports,
    ResultMessage,
    read_device_message,
)
from appliance.wire.stream import FrameHead as HeadMessage

_NEVER_NS = 0
"""Captured so long ago that no frame was: of one whose time is none."""


@dataclass(slots=True)
class _Awaited:
    """A head whose picture is to come next."""

    bytes: int
    frame: Frame | None
    """None: it has ended already, and what comes is not looked at."""


@dataclass(slots=True)
class _Complete:
    """A frame whose picture is there, and who holds the memory that it takes."""

    frame: Frame
    body: bytes
    held: HeldBody


class Stream:
    """Hears what comes on one connection. Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        sessions: Sessions,
        live: LiveSession,
        socket: WebSocket,
        *,
        in_flight: InFlight,
        wall: Wall,
        frame_bytes_max: int,
        accept: str,
        welcome: Welcome,
        present: Callable[[], "Stream | None"],
    ) -> None:
        """`accept`: as of `Media`. `welcome`: of who opened it. `present`: the stream that the session has now."""
        self._clock = clock
        self._sessions = sessions
        self._live = live
        self._socket = socket
        self._wall = wall
        self._frame_bytes_max = frame_bytes_max
        self._accept = accept
        self._welcome = welcome
        self._have_frames_come = False
        """Since that was asked last."""
        self._present = present
        self._offset = ClockOffset()
        self._awaited: _Awaited | None = None
        self._complete: list[_Complete] = []
        self._answering: set[asyncio.Task[None]] = set()
        self._own: set[int] = set()
        """Frames whose ends this stream says itself: under way on it, or said when it began."""
        self._gathering = in_flight.body(live.session.tenant)
        """What has come of a message that is not whole, whether anybody waits for it or not."""
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def run(self, seen: int | None) -> None:
        """Until the connection is closed and the frames under way have ended. `seen`: as `Sessions.results_since`."""
        with self._sessions.attached(self._live), self._sessions.subscribe(self._live) as notices:
            telling = asyncio.create_task(self._tell(notices), name="stream")
            try:
                if seen is not None:
                    await self._say_again(self._sessions.results_since(self._live, seen))
                await self._socket.closed.wait()
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
                self._give_up()
        await asyncio.gather(*self._answering)

    async def _say_again(self, results: Sequence[FrameResult]) -> None:
        """What a device has missed, at the pace at which it reads."""
        self._own.update(result.frame for result in results)
        for result in results:
            await self._socket.drained()
            self._say_end(result)

    def replace(self) -> None:
        """A newer connection carries the session."""
        self._socket.close(Close.REPLACED)

    # -- what is heard -------------------------------------------------------------------------------------------------

    @property
    def is_amid(self) -> bool:
        """A picture that somebody waits for is to come."""
        return self._awaited is not None and self._awaited.frame is not None

    def text(self, message: bytes) -> None:
        """A head, or a clock."""
        now_ns = self._clock.now_ns()
        self._withdraw()
        if len(message) > HEAD_BYTES_MAX:
            self._fail(_too_large(HEAD_BYTES_MAX), Close.TOO_LARGE)
            return
        try:
            said_by_device = read_device_message(message)
        except ValueError as error:
            self._fail(plain_problem_of("invalid-request", str(error)), Close.NOT_UNDERSTOOD)
            return
        if isinstance(said_by_device, DeviceClock):
            self._clock_came(said_by_device, now_ns)
        else:
            self._head_came(said_by_device, now_ns)

    def binary(self, message: bytes) -> None:
        """The picture of the head before it."""
        awaited, self._awaited = self._awaited, None
        self._socket.message_bytes_max = HEAD_BYTES_MAX
        if awaited is None:
            detail = "a picture came without a head before it"
            self._fail(plain_problem_of("invalid-request", detail), Close.NOT_UNDERSTOOD)
        elif len(message) > awaited.bytes:
            self._end(awaited)
            self._fail(_too_large(awaited.bytes), Close.TOO_LARGE)
        elif awaited.frame is None or len(message) < awaited.bytes:
            self._gathering.release()
            self._end(awaited)
        else:
            self._whole(awaited.frame, message)

    def _whole(self, frame: Frame, picture: bytes) -> None:
        """The picture counts until it is answered."""
        held = self._gathering.hand_over()
        try:
            held.grow(len(picture))
        except Busy as busy:
            held.release()
            self._refuse(busy if frame.is_repeat else frame.drop(DropCause.LIMIT), frame.number)
            return
        self._live.holding.put(held)
        self._complete.append(_Complete(frame, picture, held))

    @property
    def bytes(self) -> int:
        """Of the picture that comes, as far as the session is concerned: as was announced where somebody waits for it,
        and else what has come of it."""
        awaited = self._awaited
        return self._gathering.bytes if awaited is None or awaited.frame is None else awaited.bytes

    def gathered(self, count: int) -> bool:
        """What has come counts as it comes: not what was announced, and also what nobody waits for. Heads are small."""
        if count <= HEAD_BYTES_MAX:
            count = 0
        self._gathering.shrink(count)
        try:
            self._gathering.grow(count)
        except Busy:
            return False
        if not count or (self._awaited is not None and self._awaited.frame is not None):
            return True
        self._live.holding.put(self)
        return self._live.holding.has_room(0, self._frame_bytes_max)

    def turn_ended(self) -> None:
        """Acknowledge what has become complete: what came with it in one piece was sent without."""
        complete, self._complete = self._complete, []
        for one in complete:
            try:
                ack = one.frame.received(one.body)
            except ApplianceError as error:
                one.held.release()
                self._refuse(error, one.frame.head.frame)
                continue
            self._say(Ack(frame=ack.frame, bytes=len(one.body), took_ms=round(ack.transfer_ms, 3)))
            self._own.add(ack.frame)
            task = asyncio.create_task(self._answer(one), name="frame")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def broken(self, bound: Broken) -> None:
        """Say why the connection is closed."""
        if bound is Broken.TOO_LARGE:
            limit_bytes = HEAD_BYTES_MAX if self._awaited is None else self._awaited.bytes
            self._say(ErrorMessage(problem=_too_large(limit_bytes), close=Close.TOO_LARGE))
        elif bound is Broken.TOO_SLOW:
            problem = plain_problem_of("request-timeout", f"a message was not whole after {MESSAGE_S:g} s")
            self._say(ErrorMessage(problem=problem, close=Close.POLICY))
        elif bound is Broken.NO_ROOM:
            awaited, self._awaited = self._awaited, None
            if awaited is not None and awaited.frame is not None and not awaited.frame.is_repeat:
                self._refuse(awaited.frame.drop(DropCause.LIMIT), awaited.frame.number)
            self._say(ErrorMessage(problem=problem_of(Busy()), close=Close.POLICY))
        elif bound is Broken.TOO_MANY:
            problem = plain_problem_of("invalid-request", f"more than {FRAMES_MAX} messages a second")
            self._say(ErrorMessage(problem=problem, close=Close.POLICY))

    def each_second(self) -> None:
        """A key may have been taken back."""
        have_come, self._have_frames_come = self._have_frames_come, False
        if not self._welcome.holds(have_frames_come=have_come):
            self._fail(problem_of(WrongKey()), Close.POLICY)

    # -- clocks --------------------------------------------------------------------------------------------------------

    def _clock_came(self, clock: DeviceClock, now_ns: int) -> None:
        now_ms = now_ns / NS_PER_MS
        if clock.of_ms is not None and clock.of_came_ms is not None:
            self._offset.answered(clock.of_ms, clock.of_came_ms, clock.sent_ms, now_ms)
        self._sessions.report(self._live, self._report(clock))
        if self._socket.is_congested or not abs(clock.sent_ms) < TIME_MS_MAX:
            return
        sent_ms = self._clock.now_ns() / NS_PER_MS
        self._offset.asked(sent_ms)
        self._say(BoxClock(sent_ms=sent_ms, of_ms=clock.sent_ms, of_came_ms=now_ms))

    def _captured_ns(self, captured_ms: float) -> int | None:
        """On the box's clock; None where the device's is not known yet."""
        if not abs(captured_ms) < TIME_MS_MAX:
            return _NEVER_NS
        at_ms = self._offset.box_ms(captured_ms)
        return None if at_ms is None else int(at_ms * NS_PER_MS)

    def _report(self, reports: Reports) -> DeviceReport:
        """What the device reports, but for what the box has measured itself."""
        measured_ms = self._offset.rtt_ms
        return DeviceReport(
            skipped=reports.skipped,
            drop_rate=reports.drop_rate,
            drop_base=reports.drop_base,
            drop_curves=_curves(reports),
            uplink_bps=None if reports.uplink_mbps is None else reports.uplink_mbps * 1e6,
            rtt_ms=reports.rtt_ms if measured_ms is None else measured_ms,
            downlink_ms=reports.downlink_ms,
            shown=reports.shown,
        )

    # -- frames --------------------------------------------------------------------------------------------------------

    def _head_came(self, message: HeadMessage, now_ns: int) -> None:
        self._have_frames_come = True
        head = FrameHead(
            frame=message.frame,
            arrived_ns=now_ns,
            captured_ns=self._captured_ns(message.captured_ms),
            body_bytes=message.bytes,
            size=message.size,
            quality=message.quality,
            variant=message.variant,
            report=self._report(message),
        )
        if message.bytes > self._frame_bytes_max:
            self._announces_too_much(head)
            return
        self._awaited = _Awaited(message.bytes, None)
        self._socket.message_bytes_max = max(message.bytes, HEAD_BYTES_MAX)
        try:
            frame = self._sessions.frame_begins(self._live, head)
            self._check_room(frame, message.bytes)
            self._awaited.frame = frame
            self._live.holding.put(self)
        except ApplianceError as error:
            self._refuse(error, message.frame)

    def _announces_too_much(self, head: FrameHead) -> None:
        """It counts as one that was sent, and is the last one on this connection."""
        outcome = None
        try:
            self._sessions.frame_begins(self._live, head, DropCause.BAD_MEDIA)
        except (FrameDropped, CreditExceeded):
            outcome = FrameEnd.DROPPED
        except ApplianceError:  # of a number that is not taken, or when the session has ended
            pass
        error = TooLarge(what="the frame", limit_bytes=self._frame_bytes_max)
        self._fail(problem_of(error), Close.TOO_LARGE, head.frame, outcome)

    def _check_room(self, frame: Frame, count: int) -> None:
        """Whether there is memory for a frame until it is answered: of a session at most that of two of the largest, as
        they are announced. Of what all share nothing is reserved: who announces much and sends nothing keeps nobody
        else out.

        Raises: FrameDropped, counted; Busy for one that came before.
        """
        if self._gathering.has_room(count) and self._live.holding.has_room(count, self._frame_bytes_max):
            return
        if frame.is_repeat:
            raise Busy()
        raise frame.drop(DropCause.LIMIT)

    def _refuse(self, error: ApplianceError, frame: int) -> None:
        """A frame is not taken, or taken no further."""
        if isinstance(error, FrameDropped):
            self._say(ResultMessage(frame=frame, outcome=FrameEnd.DROPPED, cause=error.cause))
        elif isinstance(error, CreditExceeded):
            self._fail(problem_of(error), Close.POLICY, frame)
        elif isinstance(error, UnknownSession):
            self._fail(problem_of(error), Close.NORMAL, frame)
        else:
            self._say(ErrorMessage(problem=problem_of(error), frame=frame))

    async def _answer(self, complete: _Complete) -> None:
        request_id = f"{self._prefix}-{next(self._numbers)}"
        try:
            result = await complete.frame.answer(Media(complete.body, "", self._accept), request_id)
        finally:
            complete.held.release()
            self._own.discard(complete.frame.number)
        self._wall.session_frame(self._live, result, complete.body, result.body)
        present = self._present()
        if present is None or present is self:
            self._say_end(result)
        else:
            present.ended_elsewhere(result)

    def ended_elsewhere(self, result: FrameResult) -> None:
        """Of a frame that came on an earlier connection; nothing where this stream says it anyway."""
        if result.frame not in self._own:
            self._say_end(result)

    def _withdraw(self) -> None:
        """Another message came in place of a picture."""
        awaited, self._awaited = self._awaited, None
        self._socket.message_bytes_max = HEAD_BYTES_MAX
        if awaited is not None:
            self._end(awaited)

    @staticmethod
    def _end(awaited: _Awaited) -> None:
        """Its picture does not come."""
        if awaited.frame is not None:
            awaited.frame.lost()

    def _give_up(self) -> None:
        """The connection is closed: what was not complete is lost."""
        self._withdraw()
        self._gathering.release()
        for one in self._complete:
            one.held.release()
            one.frame.lost()
        self._complete.clear()

    # -- what is told --------------------------------------------------------------------------------------------------

    async def _tell(self, notices: Notices) -> None:
        """Plans and notices as they come; the session's end is the stream's."""
        async for notice in notices:
            await self._socket.drained()  # a newer plan takes the place of one that waits
            if notice.kind is not NoticeKind.PLAN:
                self._say(notice_of(notice))
            if notice.plan is not None:
                self._say(plan_of(notice.plan, self._live, self._clock.now_ns()))
            if notice.kind is NoticeKind.ENDED:
                self._socket.close(Close.NORMAL)

    def _fail(
        self, problem: dict[str, object], code: int, frame: int | None = None, outcome: FrameEnd | None = None
    ) -> None:
        """Say what was wrong, and close. `outcome`: of the frame, where it has ended with it."""
        self._say(ErrorMessage(problem=problem, frame=frame, outcome=outcome, close=code))
        self._socket.close(code)

    def _say_end(self, result: FrameResult) -> None:
        head, picture = end_of(result)
        self._socket.send_text(head)
        if picture is not None:
            self._socket.send_binary(picture)

    def _say(self, message: Message) -> None:
        self._socket.send_text(said(message))


def _curves(reports: Reports) -> dict[str, VariantDrop] | None:
    """Of variants whose rate is a number."""
    if reports.drop_curves is None:
        return None
    return {
        name: VariantDrop(drop.rate, {of: gap for of, gap in drop.gaps.items() if gap is not None})
        for name, drop in reports.drop_curves.items()
        if drop.rate is not None
    }


def _too_large(limit_bytes: int) -> dict[str, object]:
    return problem_of(TooLarge(what="the message", limit_bytes=limit_bytes))
