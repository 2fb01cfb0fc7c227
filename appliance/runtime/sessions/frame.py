"""One frame of a session, from its head to its only end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from appliance.domain.errors import ApplianceError
from appliance.domain.session import DropCause, FrameAck, FrameEnd, FrameHead
from appliance.tasks.base import Media


@dataclass(frozen=True, slots=True)
class FrameCall:
    """What a run of a frame is asked with: for those that bring tensors and have no media to decode."""

    arrival_ns: int
    deadline_ns: int
    """Capture + SLO − downlink, on the box's clock."""
    variant: str | None
    """That the plan names; None: the box chooses."""


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
    """Why there is no answer."""


class Frame:
    """A frame under way, or one that came before under the same number. Event-loop thread only.

    The way: `Sessions.frame_begins` → `received` → `answer` (or `run`), each once; `lost` in place of what is left when
    the connection breaks. Every way ends it exactly once, also when a caller is cancelled.
    """

    head: FrameHead
    captured_ns: int
    """On the box's clock, as far as it is known."""
    deadline_ns: int
    is_repeat: bool
    """Its number has come before: `received` compares the bytes, `answer` joins the run or gives the same answer."""

    def received(self, body: bytes) -> FrameAck:
        """The body is complete: it counts no longer against the credit, and the link's estimate learns of it.

        Raises: FrameMismatch for a repeat with other bytes.
        """
        raise NotImplementedError

    async def answer(self, media: Media, request_id: str) -> FrameResult:
        """Run it through the engine's ordinary admission and say how it ended; raises nothing but cancellation."""
        raise NotImplementedError

    async def run(self, work: Callable[[FrameCall], Awaitable[bytes]]) -> FrameResult:
        """As `answer`, with another way to run it (the tensors of `/v2`). `work` raises what the engine raises."""
        raise NotImplementedError

    def lost(self) -> None:
        """Its body will not come, or nobody can be answered any more; of one that has ended, nothing."""
        raise NotImplementedError
