"""One frame of a session, from its head to its only end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from appliance.domain.errors import (
    ApplianceError,
    BadInput,
    Busy,
    DeadlineExceeded,
    FrameDropped,
    FrameMismatch,
    LimitReached,
    OutOfMemory,
    Overloaded,
    RunFailed,
    TooLarge,
)
from appliance.domain.request import Request
from appliance.domain.session import DropCause, FrameAck, FrameEnd, FrameHead
from appliance.domain.slots import Slot
from appliance.log import get as get_log
from appliance.tasks.base import Media

PLANNED_PRIORITY = 101
"""Above what a request may ask for: what is promised goes before its tenant's other work."""

log = get_log("sessions")


@dataclass(frozen=True, slots=True)
class FrameCall:
    """What a run of a frame is asked with."""

    arrival_ns: int
    """When its body was complete."""
    deadline_ns: int
    """Capture + SLO − downlink, on the box's clock."""
    variant: str | None
    """That the plan names; None: the box chooses."""
    is_planned: bool
    """Whether it is within the promised rate."""
    slot: Callable[[], Slot]
    """Returns what its plan says about its run, once its tensors are there. Raises: FrameDropped, for a frame beyond
    the promised rate without room.
    """
    ran: Callable[[str], None]
    """Called with the variant that answered when its run is over, though its answer has yet to be written."""

    @property
    def priority(self) -> int:
        """Of its request."""
        return PLANNED_PRIORITY if self.is_planned else 0

    @property
    def timeout_ms(self) -> float:
        """The same as a time from the arrival."""
        return max(0.001, (self.deadline_ns - self.arrival_ns) / 1e6)


@dataclass(frozen=True, slots=True)
class FrameResult:
    """How a frame ended, and its answer where it has one."""

    frame: int
    end: FrameEnd
    ended_ns: int
    body: bytes | None = None
    """The answer; of a late frame that was run, too."""
    variant: str = ""
    cause: DropCause | None = None
    error: ApplianceError | None = None
    """Why there is no answer; never raised itself, for what is raised keeps every local on its way."""


Work = Callable[[FrameCall], Awaitable[bytes]]
Raised = TypeVar("Raised", bound=ApplianceError)


class FrameSession(Protocol):
    """What a frame needs of its session."""

    def now_ns(self) -> int:
        """The box's clock."""
        ...

    def call_of(self, frame: "Frame") -> FrameCall:
        """What its run is asked with now."""
        ...

    async def predict(self, frame: "Frame", media: Media, request_id: str) -> bytes:
        """The answer of the engine. Raises: what the engine raises."""
        ...

    def frame_received(self, frame: "Frame", body: bytes) -> float:
        """Its body is complete; returns the milliseconds that it took."""
        ...

    def frame_ended(self, frame: "Frame", result: FrameResult) -> None:
        """It has ended; called once."""
        ...


class Frame:
    """A frame under way, or one that came before under the same number. Event-loop thread only.

    The way: `Sessions.frame_begins` → `received` → `answer` (or `run`), each once; `lost` in place of what is left when
    the connection breaks before the body is whole. It ends exactly once. A run goes on when its caller is cancelled:
    the device may come back and ask again.
    """

    __slots__ = (
        "_digest",
        "_session",
        "_task",
        "at_best",
        "captured_ns",
        "deadline_ns",
        "first",
        "has_run",
        "head",
        "is_planned",
        "planned_ns",
        "received_ns",
        "result",
        "run_rows",
        "started_ns",
        "variant",
    )

    def __init__(
        self, session: FrameSession, head: FrameHead, captured_ns: int, deadline_ns: int, first: "Frame | None" = None
    ) -> None:
        """`first`: of a repeat, the frame that it repeats."""
        self._session = session
        self._digest: int | None = None
        self._task: asyncio.Task[FrameResult] | None = None
        self.head = head
        self.captured_ns = captured_ns
        """On the box's clock, as far as it is known."""
        self.deadline_ns = deadline_ns
        self.first = first
        self.is_planned = True
        """Within the promised rate; else it is run only where there is room, and is no part of the promise."""
        self.received_ns = 0
        self.planned_ns: int | None = None
        """Planned start of its run; None: none was planned."""
        self.started_ns = self.run_rows = 0
        """Start of its run, and the rows of that run, those of other sessions included; 0: it has not begun."""
        self.has_run = False
        """Its run is over, though its answer may not be there."""
        self.variant = ""
        """That it runs on."""
        self.at_best = FrameEnd.ANSWERED
        """How it ends with an answer that is there in time: of a pipeline a part of it may be missing."""
        self.result: FrameResult | None = None

    @property
    def number(self) -> int:
        """As the device counts its captures."""
        return self.head.frame

    @property
    def is_repeat(self) -> bool:
        """Its number has come before: `received` compares the bytes, `answer` joins the run or gives the same
        answer."""
        return self.first is not None

    def received(self, body: bytes) -> FrameAck:
        """The body is complete: it counts no longer against the credit, and the link's estimate learns of it.

        Raises: FrameMismatch for a repeat with other bytes.
        """
        frame = self.first or self
        digest = hash(body)
        if self.first is not None and frame._digest is not None:
            if frame._digest != digest:
                raise FrameMismatch(name=str(self.number), reason="it came before with other bytes")
            return FrameAck(self.number, 0.0)
        frame._digest = digest
        if frame.result is not None or frame.received_ns:
            return FrameAck(self.number, 0.0)
        frame.received_ns = self._session.now_ns()
        return FrameAck(self.number, self._session.frame_received(frame, body))

    async def answer(self, media: Media, request_id: str) -> FrameResult:
        """Run it through the engine's ordinary admission and say how it ended; raises nothing but cancellation."""
        frame = self.first or self

        async def predict(_: FrameCall) -> bytes:
            return await self._session.predict(frame, media, request_id)

        return await self.run(predict)

    async def run(self, work: Work) -> FrameResult:
        """As `answer`, with another way to run it (the tensors of `/v2`). `work` raises what the engine raises."""
        frame = self.first or self
        result = frame.result
        if result is None:
            if frame._task is None:
                frame._task = asyncio.create_task(frame._run(work), name="frame")
            result = await asyncio.shield(frame._task)
        return result if result.error is None else replace(result, error=anew(result.error))

    def runs_on(self, variant: str) -> None:
        """Its caller has named a variant, whatever the plan says."""
        (self.first or self).variant = variant

    def began(self, request: Request) -> None:
        """Note when the run of its request began, and with how many rows."""
        frame = self.first or self
        frame.started_ns, frame.run_rows = request.started_ns, request.run_rows

    def ran(self, variant: str) -> None:
        """This variant has answered."""
        self.runs_on(variant)
        (self.first or self).has_run = True

    def lost(self) -> None:
        """Its body will not come, or nobody asks for its run; nothing of a repeat, and of one that runs or is over."""
        if self.first is None and self.result is None and self._task is None:
            self.end(FrameResult(self.number, FrameEnd.LOST, self._session.now_ns()))

    def refused(self, error: ApplianceError) -> None:
        """What comes of its body is not taken, for this reason; nothing of a repeat, and of one that is over."""
        if self.first is None and self.result is None and self._task is None:
            end, cause = end_of(error)
            self.end(FrameResult(self.number, end, self._session.now_ns(), None, "", cause, anew(error)))

    def drop(self, cause: DropCause, left_ms: float | None = None, expected_ms: float | None = None) -> FrameDropped:
        """End the frame without a run; return the error to tell, with its figures (`FrameDropped`)."""
        error = FrameDropped(frame=self.number, cause=cause.value, left_ms=left_ms, expected_ms=expected_ms)
        self.end(FrameResult(self.number, FrameEnd.DROPPED, self._session.now_ns(), cause=cause, error=error))
        return anew(error)

    def end(self, result: FrameResult) -> None:
        """Once."""
        assert self.result is None
        self.result = result
        self._session.frame_ended(self, result)

    async def _run(self, work: Work) -> FrameResult:
        result: FrameResult | None = None
        try:
            call = self._session.call_of(self)
            body = await work(call)
            now_ns = self._session.now_ns()
            end = self.at_best if now_ns <= self.deadline_ns else FrameEnd.LATE
            result = FrameResult(self.number, end, now_ns, body, self.variant)
        except ApplianceError as error:
            end, cause = end_of(error)
            if self.has_run and end is FrameEnd.DROPPED:  # its answer could not be written any more
                end, cause = FrameEnd.LATE if isinstance(error, DeadlineExceeded) else FrameEnd.LOST, None
            result = FrameResult(self.number, end, self._session.now_ns(), None, self.variant, cause, anew(error))
        except Exception:  # our own mistake: the frame is accounted for, and the log says why
            log.exception("a frame was not run", frame=self.number, variant=self.variant)
            failed = RunFailed(variant_id=self.variant, reason="something went wrong inside the box")
            result = FrameResult(self.number, FrameEnd.LOST, self._session.now_ns(), None, self.variant, None, failed)
        finally:  # cancelled with the box
            if result is None:
                result = FrameResult(self.number, FrameEnd.LOST, self._session.now_ns(), None, self.variant)
            self.end(result)
            self._task = None
        return result


def anew(error: Raised) -> Raised:
    """The same error as one that was never raised: without a traceback, whose frames hold the picture and its
    tensors."""
    return type(error)(**error.facts())


def end_of(error: ApplianceError) -> tuple[FrameEnd, DropCause | None]:
    """How a frame ended whose run raised this: late when it was cut off while it ran, lost when it failed there, and
    dropped when it never ran."""
    if isinstance(error, FrameDropped):
        return FrameEnd.DROPPED, DropCause(error.cause)
    if isinstance(error, DeadlineExceeded):
        return (FrameEnd.DROPPED, DropCause.LATE) if error.ran_ms is None else (FrameEnd.LATE, None)
    if isinstance(error, RunFailed):
        return FrameEnd.LOST, None
    if isinstance(error, BadInput | TooLarge):
        return FrameEnd.DROPPED, DropCause.BAD_MEDIA
    if isinstance(error, Overloaded):
        return FrameEnd.DROPPED, DropCause.HOPELESS
    if isinstance(error, LimitReached | Busy):
        return FrameEnd.DROPPED, DropCause.LIMIT
    if isinstance(error, OutOfMemory):
        return FrameEnd.DROPPED, DropCause.MEMORY
    return FrameEnd.DROPPED, DropCause.UNAVAILABLE
