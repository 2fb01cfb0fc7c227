"""Builds that leave memory: as victims of a plan, with their last pin, or on demand; each goes to sleep where it can,
else it is unloaded, in a task of its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.events import EventSink
from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.changes import Changes
from appliance.runtime.memory.ledger import Ledger, as_asleep
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.room import Arbiter, ResidentBuild

_S = ResidencyState


class Unloads:
    """Takes builds out of memory and their bytes out of the ledger, once they are really back.

    Sleepers have a share of the budget: where it is full, the arbiter says who goes for good.
    Event-loop thread only.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, loader: Loader, arbiter: Arbiter, changes: Changes, events: EventSink
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._loader = loader
        self._arbiter = arbiter
        self._changes = changes
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_left: Callable[[str], None] = nothing
        """Told of every build that sleeps or is absent now, by id."""
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
        if build is None or build.handle is None:
            return
        self._events.emit("variant lost", **self._ledger.facts(build))
        build.handle = None
        build.on_change(build_id)
        if build.state in (_S.RESIDENT, _S.DRAINING, _S.ASLEEP):  # else the task that has it under way ends it
            self.begin(build)

    def dismiss(self, build: LoadedBuild) -> None:
        """A sleeper goes for good."""
        build.is_for_good = True
        self.begin(build)

    def remove(self, build: LoadedBuild) -> None:
        """Make a build absent, with its last pin where it has any, and where it is being loaded as soon as it has come;
        it does not sleep, and its record goes with it.
        """
        build.is_for_good = build.is_unwanted = True
        build.on_change(build.build_id)
        if build.state is _S.RESIDENT:
            self.let_go(build)
        elif build.state is _S.ASLEEP:
            self.begin(build)

    def let_go(self, build: LoadedBuild) -> None:
        """A resident build leaves, with its last pin where it has any."""
        if build.pins:
            build.to(_S.DRAINING)
            build.gone.clear()
        else:
            self.begin(build)

    def begin(self, build: LoadedBuild) -> None:
        """A build leaves now, pinned or not."""
        kept_bytes = self._ledger.kept_when_gone(build) if build.state is not _S.ASLEEP else 0
        if kept_bytes and not self._has_place(build, kept_bytes):
            kept_bytes = 0
        build.to(_S.UNLOADING)
        build.gone.clear()
        self._ledger.leave(build, kept_bytes)
        way = self._sleep(build) if kept_bytes else self._unload(build)
        task = asyncio.create_task(way, name=f"unload {build.build_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def trim(self) -> None:
        """Sleepers go for good until their tenants keep to their ceilings, all to their share, and the budget holds."""
        sleepers = self._ledger.sleepers()
        if not sleepers:
            return
        going = self._arbiter.asleep_above_ceiling([as_asleep(s) for s in sleepers], self._ledger.residents)
        for sleeper in [s for s in sleepers if s.build_id in going]:
            self.dismiss(sleeper)
        above = max(self._ledger.asleep_bytes - self._ledger.asleep_max_bytes, -self._ledger.free_bytes)
        if above > 0:
            self._dismiss_first(self.in_order(self._ledger.sleepers()), above)

    def in_order(self, sleepers: Sequence[LoadedBuild]) -> list[LoadedBuild]:
        """Whoever goes for good first."""
        by_id = {s.build_id: s for s in sleepers}
        return [by_id[build_id] for build_id in self._arbiter.order_of_leaving([as_asleep(s) for s in sleepers])]

    async def done(self, within_s: float) -> None:
        """Wait until all who are leaving have left, for so many seconds. Who has not by then stays where it is: perhaps
        a run stands at it, which ends with the process only.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.cancel()

    def _has_place(self, build: LoadedBuild, kept_bytes: int) -> bool:
        """Whether it may sleep: where the share is full others go for good, unless it would be the first to go."""
        above = self._ledger.asleep_bytes + kept_bytes - self._ledger.asleep_max_bytes
        if above <= 0:
            return True
        by_id = {s.build_id: s for s in self._ledger.sleepers()}
        it = ResidentBuild(build.build_id, kept_bytes, build.last_used_ns, pinned=False)
        going: list[LoadedBuild] = []
        for build_id in self._arbiter.order_of_leaving([*map(as_asleep, by_id.values()), it]):
            if above <= 0:
                break
            if build_id == build.build_id:
                return False
            going.append(by_id[build_id])
            above -= by_id[build_id].bytes
        for sleeper in going:
            self.dismiss(sleeper)
        return True

    def _dismiss_first(self, sleepers: Sequence[LoadedBuild], count_bytes: int) -> None:
        """The first of them go for good, until so many bytes do."""
        for sleeper in sleepers:
            if count_bytes <= 0:
                break
            count_bytes -= sleeper.bytes
            self.dismiss(sleeper)

    async def _sleep(self, build: LoadedBuild) -> None:
        """Go to sleep; whoever is lost meanwhile, or must go for good, is unloaded after."""
        start_ns = self._clock.now_ns()
        try:
            kept_bytes = await self._loader.sleep(build.handle)
        except Exception as error:  # its process has ended
            build.handle = None
            self._ledger.left(build)
            self._ledger.keeps(build, 0)
            self._absent(build, self._ledger.facts(build), {"reason": str(error) or type(error).__name__})
            return
        self._ledger.left(build)
        self._ledger.keeps(build, kept_bytes)
        build.asleep_bytes = kept_bytes
        build.to(_S.ASLEEP)
        if build.handle is None or build.is_for_good or kept_bytes >= build.resident_bytes:
            self.dismiss(build)
            return
        build.gone.set()
        self._changes.announce()
        sleep_ms = (self._clock.now_ns() - start_ns) / NS_PER_MS
        self._events.emit("variant asleep", **self._ledger.facts(build), sleep_ms=sleep_ms)
        self.on_left(build.build_id)
        self.trim()

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
            self._absent(build, facts, failure)

    def _absent(self, build: LoadedBuild, facts: Mapping[str, Any], failure: Mapping[str, str]) -> None:
        """Nothing of it is left. `facts`: of when there was."""
        build.to(_S.ABSENT)
        build.gone.set()
        self._changes.announce()
        self._events.emit("variant unloaded", **{**facts, "used_bytes": self._ledger.used_bytes}, **failure)
        self.on_left(build.build_id)
        if build.is_unwanted:
            self._ledger.forget(build)


def nothing(build_id: str) -> None:
    """Whom nobody wants to be told."""
