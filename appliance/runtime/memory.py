"""The one owner of residency: which builds are in memory, who pins them, and that they never exceed the budget.

Runs on the event-loop thread without locks: a step without `await` is a transaction of the `Ledger`. No load starts before there is room for its peak
beside all that is really there, so the budget holds at every instant, swaps included (EM-03). Only a size that is measured anew, or a smaller budget, can
push the ledger over; then builds leave until it fits.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import OutOfMemory, ShuttingDown
from appliance.domain.states import ResidencyState
from appliance.policies.room.base import Replacement, ResidentBuild, RoomPlan, RoomPolicy, RoomProblem
from appliance.runtime.changes import Changes
from appliance.runtime.departures import Departures
from appliance.runtime.ledger import Ledger
from appliance.runtime.loader import Loader
from appliance.runtime.ports import DecisionSink, EventSink
from appliance.runtime.residency import Residency

_S = ResidencyState
_FOREVER = 1 << 62


class MemoryManager:
    """Loads, replaces and unloads builds of one memory domain within a byte budget.

    Two requests for one absent build join one load; a build in use is never a victim; a load is reserved with its peak before it starts.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        loader: Loader,
        policy: RoomPolicy,
        budget_bytes: int,
        wait_ms_max: float,
        events: EventSink,
        decisions: DecisionSink,
        users_of: Callable[[str], tuple[str, ...]] = lambda build_id: (),
    ) -> None:
        self._clock = clock
        self._loader = loader
        self._policy = policy
        self._wait_ns_max = int(wait_ms_max * NS_PER_MS)
        self._events = events
        self._decisions = decisions
        self._ledger = Ledger(budget_bytes, users_of)
        self._changes = Changes(clock)
        self._departures = Departures(self._ledger, loader, self._changes, events)
        self._loads: set[asyncio.Task[None]] = set()
        self._closed = False
        self.loads = self.load_failures = self.replacements = 0

    # -- the inference path --------------------------------------------------------------------------------------------

    def is_resident(self, build_id: str) -> bool:
        """Whether a request would be warm on it now."""
        build = self._ledger.get(build_id)
        return build is not None and build.state is _S.RESIDENT

    def is_loading(self, build_id: str) -> bool:
        """Whether a load of it is under way, that a request can join."""
        build = self._ledger.get(build_id)
        return build is not None and build.state is _S.LOADING

    def pin_resident(self, build_id: str) -> Residency | None:
        """Pin a resident build; None when it is not resident. The fast path: no await, no allocation."""
        build = self._ledger.get(build_id)
        if build is None or build.state is not _S.RESIDENT:
            return None
        build.pins += 1
        build.last_used_ns = self._clock.now_ns()
        return build

    async def pin(
        self, build_id: str, resident_bytes: int, peak_bytes: int, deadline_ns: int | None, *, is_urgent: bool = True
    ) -> Residency:
        """Make a build resident (joining a load under way) and pin it; the caller must `unpin`. Nobody waits for one that is not urgent.

        Raises: OutOfMemory when it cannot fit, LoadFailed, DeadlineExceeded while waiting, ShuttingDown.
        """
        start_ns = self._clock.now_ns()
        while True:
            if self._closed:
                raise ShuttingDown()
            build = self._ledger.entry(build_id, resident_bytes, peak_bytes)
            if build.state is _S.RESIDENT:
                build.pins += 1
                build.last_used_ns = self._clock.now_ns()
                return build
            if build.state in (_S.DRAINING, _S.UNLOADING):
                await self._changes.within(build.gone.wait(), deadline_ns, start_ns)
                continue
            build.pins += 1  # before waiting: a build that somebody waits for is no victim the moment it arrives
            loading = build.loading
            if loading is None:
                build.is_urgent = is_urgent
                loading = self._start_load(build)
            elif is_urgent and not build.is_urgent:  # what was brought ahead of time is now waited for
                build.is_urgent = True
                self._changes.announce()
            try:
                await self._changes.within(asyncio.shield(loading), deadline_ns, start_ns)
            finally:
                self.unpin(build)

    def unpin(self, build: Residency) -> None:
        """Release one pin; a draining build leaves with its last one."""
        build.pins -= 1
        assert build.pins >= 0, build.build_id
        if build.pins == 0:
            if build.state is _S.DRAINING:
                self._departures.begin(build)
            self._shrink()
            self._changes.announce()

    # -- management ----------------------------------------------------------------------------------------------------

    def release(self, build_id: str) -> None:
        """Let a resident build go, with its last pin at the latest: its application has another one now."""
        build = self._ledger.get(build_id)
        if build is None or build.state is not _S.RESIDENT:
            return
        self._events.emit("variant released", **self._ledger.facts(build))
        self._departures.let_go(build)

    async def unload(self, build_id: str) -> None:
        """Make a build absent: no new pins, wait for the running ones, give its memory back. No-op when it is not in memory."""
        build = self._ledger.get(build_id)
        if build is None:
            return
        if build.loading is not None:
            await asyncio.wait([build.loading])
        if build.state is _S.RESIDENT:
            self._departures.let_go(build)
        if build.state in (_S.DRAINING, _S.UNLOADING):
            await build.gone.wait()
        self._ledger.forget(build)

    async def close(self) -> None:
        """Unload everything, pinned or not, and load nothing more; for the end of the process."""
        self._closed = True
        self._changes.announce()  # loads that wait for room give up; those that a thread works on are seen through
        await self._loads_done()
        for build in self._ledger.all():
            if build.state in (_S.RESIDENT, _S.DRAINING):
                self._departures.begin(build)
        await self._departures.done()

    def update_figures(self, build_id: str, resident_bytes: int, peak_bytes: int) -> None:
        """Take a newly measured size over; a resident build is recounted at once."""
        build = self._ledger.get(build_id)
        if build is None:
            return
        build.resident_bytes, build.peak_bytes = resident_bytes, peak_bytes
        if build.state is _S.RESIDENT:
            self._ledger.recount(build)
            self._shrink()
            self._changes.announce()

    def resize(self, budget_bytes: int) -> None:
        """Take a new budget over: at a smaller one builds leave until it holds, those in use when they are done."""
        self._ledger.budget_bytes = budget_bytes
        self._shrink()
        self._changes.announce()

    def replace(self, replacement: Replacement) -> bool:
        """Bring a smaller build in the place of a resident one, beside it first if there is room. False when that is not possible now."""
        victim = self._ledger.get(replacement.victim)
        if victim is None or victim.state is not _S.RESIDENT or victim.build_id in self._ledger.followed():
            return False
        if self._closed or not self._ledger.is_away(replacement.build_id):
            return False
        need = replacement.need_bytes
        if self._ledger.has_room_beside(need):
            self._promise(replacement).successor_of = victim.build_id
        elif victim.pins or self._ledger.free_bytes + victim.bytes < need:
            return False
        else:
            self._departures.evict(victim, replacement.build_id)
            self._promise(replacement)
        return True

    # -- for others to see ---------------------------------------------------------------------------------------------

    def residency(self, build_id: str) -> Residency | None:
        """The record of a build that was ever asked for."""
        return self._ledger.get(build_id)

    def residents(self) -> tuple[ResidentBuild, ...]:
        """What is in memory or on its way there, by id; what is being loaded counts as pinned."""
        return self._ledger.residents()

    def resident_set(self) -> list[str]:
        """Resident builds, most recently used first; what a restart brings back."""
        builds = [b for b in self._ledger.all() if b.state is _S.RESIDENT]
        return [b.build_id for b in sorted(builds, key=lambda b: -b.last_used_ns)]

    def known_builds(self) -> list[str]:
        """Builds that there is a record of, in memory or not, by id."""
        return [b.build_id for b in self._ledger.all()]

    @property
    def evictions(self) -> int:
        return self._departures.evictions

    @property
    def budget_bytes(self) -> int:
        return self._ledger.budget_bytes

    @property
    def used_bytes(self) -> int:
        """What is occupied now: loaded, being loaded, and leaving."""
        return self._ledger.used_bytes

    def snapshot(self) -> dict[str, Any]:
        """For `/v1/memory`: the domain, its builds and the counters."""
        return {
            "budget_bytes": self.budget_bytes,
            "used_bytes": self.used_bytes,
            "loads": self.loads,
            "load_failures": self.load_failures,
            "evictions": self.evictions,
            "replacements": self.replacements,
            "builds": self._ledger.rows(self._clock.now_ns()),
        }

    # -- loading -------------------------------------------------------------------------------------------------------

    def _start_load(self, build: Residency, *, is_promised: bool = False) -> asyncio.Future[None]:
        build.to(_S.LOADING)
        task = asyncio.create_task(self._load(build, is_promised), name=f"load {build.build_id}")
        task.add_done_callback(_consume)
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)
        build.loading = task
        return task

    async def _load(self, build: Residency, is_promised: bool) -> None:
        start_ns = self._clock.now_ns()
        try:
            await self._room_is_free(build, None if is_promised else await self._reserve(build))
            load_start_ns = self._clock.now_ns()
            build.handle = await self._loader.load(build.build_id)
        except BaseException as error:
            self._load_failed(build, error)
            raise
        build.load_ns = self._clock.now_ns() - load_start_ns
        self._ledger.recount(build)
        build.to(_S.RESIDENT)
        build.last_used_ns = self._clock.now_ns()
        build.loading = None
        build.loads += 1
        self.loads += 1
        if build.successor_of is not None:
            self.release(build.successor_of)
            build.successor_of = None
        self._shrink()
        self._changes.announce()
        waited_ms = (load_start_ns - start_ns) / NS_PER_MS
        self._events.emit(
            "variant loaded", **self._ledger.facts(build), load_ms=build.load_ns / NS_PER_MS, waited_ms=waited_ms
        )

    def _load_failed(self, build: Residency, error: BaseException) -> None:
        self._ledger.cancel(build)
        build.to(_S.FAILED)
        build.loading = None
        build.successor_of = None
        self.load_failures += 1
        self._changes.announce()
        self._events.emit("variant load failed", **self._ledger.facts(build), reason=str(error) or type(error).__name__)

    async def _reserve(self, build: Residency) -> int:
        """Promise the peak of `build`, evicting what the policy names; returns until when to wait for the bytes to be really free.

        Raises: OutOfMemory when waiting cannot help, took too long, or nobody waits any more; ShuttingDown.
        """
        since_ns = self._clock.now_ns()
        limit_ns = since_ns + self._wait_ns_max
        while (again_ns := self._commit(build, since_ns)) is not None:
            failures = self.load_failures
            if again_ns < limit_ns:
                with suppress(TimeoutError):
                    await self._changes.next(again_ns)
            else:
                await self._change_before(limit_ns, build)
            if not build.pins:
                raise self._out_of_memory(build)
            if not build.is_urgent and self.load_failures > failures:
                # Perhaps its replacements: to try them again at once would fail for ever.
                raise self._out_of_memory(build)
        return limit_ns

    async def _room_is_free(self, build: Residency, limit_ns: int | None) -> None:
        """Return when the bytes that were promised are really free; they count as used then. Raises: OutOfMemory at the limit."""
        try:
            while not self._ledger.is_free(build):
                await self._change_before(limit_ns, build)
        finally:
            self._ledger.end_wait(build)

    async def _change_before(self, limit_ns: int | None, build: Residency) -> None:
        try:
            await self._changes.next(limit_ns)
        except TimeoutError:
            raise self._out_of_memory(build) from None

    def _commit(self, build: Residency, since_ns: int) -> int | None:
        """One transaction: plan, check, mark the victims, promise the newcomer and the replacements.

        When only waiting can help, nothing of it, but until when to wait for a change.
        """
        if self._closed:
            raise ShuttingDown()
        if build.need_bytes > self.budget_bytes:
            raise self._out_of_memory(build)
        plan = self._plan(build.build_id, build.need_bytes, is_urgent=build.is_urgent, since_ns=since_ns)
        if not plan.sufficient:
            if plan.again_ns is not None:
                return plan.again_ns
            if build.is_urgent and self._ledger.will_change(apart_from=build):
                return _FOREVER
            raise self._out_of_memory(build)
        if not build.is_urgent and self._replace_first(plan):
            return _FOREVER
        for victim in plan.victims:
            self._departures.evict(self._known(victim), build.build_id)
        for replacement in plan.replacements:
            self._promise(replacement)
        self._ledger.promise(build)
        return None

    def _replace_first(self, plan: RoomPlan) -> bool:
        """Where nobody is in a hurry: load the replacements beside what they replace, if there is room, so that no application goes cold.

        The newcomer is planned for anew when they are there. False when there is nothing to do before.
        """
        together = sum(r.need_bytes for r in plan.replacements)
        if not plan.replacements or not self._ledger.has_room_beside(together):
            return False
        for replacement in plan.replacements:
            self._promise(replacement).successor_of = replacement.victim
        return True

    def _promise(self, replacement: Replacement) -> Residency:
        """Commit a replacement's bytes and start its load, which waits until they are free."""
        build = self._ledger.entry(replacement.build_id, replacement.resident_bytes, replacement.peak_bytes)
        build.is_urgent = False
        self._ledger.promise(build)
        self.replacements += 1
        self._start_load(build, is_promised=True)
        return build

    def _shrink(self) -> None:
        """Where a newly measured size or a smaller budget has pushed the ledger over: evict. If all is in use, the next free pin tries again."""
        if self._ledger.free_bytes < 0:
            for victim in self._plan("", 0).victims:
                self._departures.evict(self._known(victim), "")

    def _plan(self, newcomer: str, need_bytes: int, *, is_urgent: bool = True, since_ns: int | None = None) -> RoomPlan:
        """The policy is asked about every load: where there is room, a tenant's ceiling may still be in the way."""
        ledger = self._ledger
        problem = RoomProblem(
            self._clock.now_ns(),
            newcomer,
            need_bytes,
            ledger.free_bytes,
            ledger.residents(),
            ledger.leavers(),
            is_urgent,
            since_ns,
        )
        plan = self._policy.plan(problem)
        ledger.check(plan, problem)
        if plan.victims or not plan.sufficient:
            self._decisions.record("eviction", {"input": problem, "plan": plan})
        return plan

    def _known(self, build_id: str) -> Residency:
        build = self._ledger.get(build_id)
        assert build is not None, build_id
        return build

    async def _loads_done(self) -> None:
        while self._loads:
            await asyncio.wait(self._loads)

    def _out_of_memory(self, build: Residency) -> OutOfMemory:
        return OutOfMemory(build_id=build.build_id, need_bytes=build.need_bytes, budget_bytes=self.budget_bytes)


def _consume(task: asyncio.Task[None]) -> None:
    """A failed load whose waiters all gave up is no unhandled error: it was counted and announced."""
    if not task.cancelled():
        task.exception()
