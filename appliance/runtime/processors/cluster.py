"""A further processor of the first kind, on cores of its own: it may go without the box, as another kind may.

Its cores are taken offline, or its runs stand; then the others of its kind have its work, and it is polled until its
cores are back and a tiny network runs on them.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from appliance.clock import Clock
from appliance.domain.states import ProcessorState
from appliance.runtime.processors.group import InService
from appliance.runtime.processors.member import Limits, Member


class Pinned(InService, Protocol):
    """A processor whose threads stay on its cores."""

    def renew(self) -> None:
        """Its threads anew, on its cores: when a core goes, what ran there is moved to others and stays there. Those
        that are there end with what they are at.
        """
        ...


class Cluster(Member):
    """It serves from the start: the first kind needs no probe. Builds are loaded once for all of the kind where a run
    has one thread; where it has several, this one has copies of its own.
    """

    def __init__(self, inner: Pinned, clock: Clock, limits: Limits = Limits()) -> None:  # noqa: B008
        super().__init__(inner, clock, limits)
        self._pinned = inner
        self.state, self.reason = ProcessorState.SERVING, ""
        self._copying: asyncio.Task[None] | None = None
        self.copy_again: Callable[[], Coroutine[Any, Any, None]] = _nothing
        """Has it load what it lacks, once it is back."""

    def serve(self) -> None:
        self._pinned.renew()
        super().serve()
        self._copying = asyncio.get_running_loop().create_task(self.copy_again(), name="copy builds")

    def _has(self, handle: Any) -> bool:
        """It runs what the first of its kind has loaded, too."""
        return True

    async def settled(self, handle: Any) -> None:
        """Returns when no run of a build is under way here, also of those that nobody waits for: it may be unloaded."""
        runs = self._runs_of(handle)
        if runs:
            await asyncio.wait(runs)


async def _nothing() -> None:
    """Nobody follows."""
