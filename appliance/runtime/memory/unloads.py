"""Builds that leave memory: as victims of a plan, with their last pin, or on demand; each is unloaded in a task of
its own.
"""

import asyncio

from appliance.domain.events import EventSink
from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.changes import Changes
from appliance.runtime.memory.ledger import Ledger
from appliance.runtime.memory.loader import Loader

_S = ResidencyState


class Unloads:
    """Takes builds out of memory and their bytes out of the ledger, once they are really back.

    Event-loop thread only.
    """

    def __init__(self, ledger: Ledger, loader: Loader, changes: Changes, events: EventSink) -> None:
        self._ledger = ledger
        self._loader = loader
        self._changes = changes
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self.evictions = 0

    def evict(self, build: LoadedBuild, newcomer: str) -> None:
        """A victim leaves for `newcomer`."""
        self.evictions += 1
        self._events.emit("variant evicted", **self._ledger.facts(build), newcomer=newcomer)
        self.begin(build)

    def release(self, build_id: str) -> None:
        """Let a resident build go: its application has another one now."""
        build = self._ledger.get(build_id)
        if build is None or build.state is not _S.RESIDENT:
            return
        self._events.emit("variant released", **self._ledger.facts(build))
        self.let_go(build)

    def lost(self, build_id: str) -> None:
        """A build that is in memory as far as the ledger knows has gone; there is nothing left to unload."""
        build = self._ledger.get(build_id)
        if build is not None and build.state in (_S.RESIDENT, _S.DRAINING):
            self._events.emit("variant lost", **self._ledger.facts(build))
            build.handle = None
            self.begin(build)

    def let_go(self, build: LoadedBuild) -> None:
        """Unload a resident build, with its last pin where it has any."""
        if build.pins:
            build.to(_S.DRAINING)
            build.gone.clear()
        else:
            self.begin(build)

    def begin(self, build: LoadedBuild) -> None:
        """Unload a build now, pinned or not."""
        build.to(_S.UNLOADING)
        build.gone.clear()
        self._ledger.leave(build)
        task = asyncio.create_task(self._unload(build), name=f"unload {build.build_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Wait until all who are leaving have left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _unload(self, build: LoadedBuild) -> None:
        handle, build.handle = build.handle, None
        failure: dict[str, str] = {}
        try:
            if handle is not None:
                await self._loader.unload(handle)
        except Exception as error:  # the processor has lost it either way
            failure = {"reason": str(error) or type(error).__name__}
        finally:
            facts = self._ledger.facts(build)
            self._ledger.left(build)
            build.to(_S.ABSENT)
            build.gone.set()
            self._changes.announce()
            self._events.emit("variant unloaded", **{**facts, "used_bytes": self._ledger.used_bytes}, **failure)
