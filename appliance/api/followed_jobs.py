"""Jobs that callers follow. A job is looked at once for all of its followers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from appliance.api.http.sse import beating
from appliance.domain.states import JobState
from appliance.runtime.telemetry import Telemetry
from appliance.wire.jobs import JobShape

ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)
LOOK_S = 1.0
"""How often a job is looked at when no event tells of it."""

Look = Callable[[], Awaitable[JobShape]]


@dataclass(slots=True, eq=False)
class _Followed:
    """A job with followers."""

    shown: JobShape
    """The job as it was found last."""
    followers: int = 0
    change: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done when `shown` changes, or nobody looks any more."""
    looking: "asyncio.Task[None] | None" = None
    is_over: bool = False
    """Whether nobody looks any more."""
    error: Exception | None = None
    """Why a look failed."""

    def changed(self) -> None:
        self.change.set_result(None)
        self.change = asyncio.get_running_loop().create_future()


class FollowedJobs:
    """The jobs that are followed now. Event-loop thread only."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._followed: dict[str, _Followed] = {}

    async def follow(self, shown: JobShape, look: Look) -> AsyncGenerator[JobShape | None, None]:
        """Yield a job as it is now and after each change, until it has ended; None after a second without a change.

        `shown` is the job as the follower found it. `look` finds it anew, for all of its followers. Raises: what `look`
        raises.
        """
        if shown.state in ENDED:
            yield shown
            return
        one = self._followed.setdefault(shown.id, _Followed(shown))
        one.looking = one.looking or asyncio.create_task(self._look(one, look), name="job")
        one.followers += 1
        try:
            known: JobShape | None = None
            while known is None or known.state not in ENDED:
                if one.shown != known:
                    known = one.shown
                    yield known
                elif one.error is not None:
                    raise one.error
                elif one.is_over:
                    return
                elif not (await asyncio.wait({one.change}, timeout=LOOK_S))[0]:
                    yield None
        finally:
            one.followers -= 1
            if not one.followers:
                del self._followed[shown.id]
                one.looking.cancel()
                await asyncio.gather(one.looking, return_exceptions=True)

    async def _look(self, one: _Followed, look: Look) -> None:
        """Look at a job after each event, until it has ended or the box stops."""
        shown = one.shown
        try:
            async with aclosing(beating(self._telemetry.subscribe(), LOOK_S)) as beats:
                async for _ in beats:
                    shown = await look()
                    if shown.state in ENDED:
                        break
                    if shown != one.shown:
                        one.shown = shown
                        one.changed()
        except Exception as error:
            one.error = error
        one.shown, one.is_over = shown, True
        one.changed()
