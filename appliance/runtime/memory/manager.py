"""The one owner of residency: which builds are in memory, who pins them, and that they never exceed the budget.

Runs on the event-loop thread without locks: a step without `await` is a transaction of the `Ledger`. No load starts
before there is room for its peak beside all that is really there, so the budget holds at every instant, swaps included
(EM-03). Only a size that is measured anew, or a smaller budget, can push the ledger over; then builds leave until it
fits.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import ShuttingDown
from appliance.domain.events import EventSink
from appliance.domain.overhead import GUARDS
from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.changes import Changes
from appliance.runtime.memory.idle_processes import AllIdle
from appliance.runtime.memory.ledger import Ledger
from appliance.runtime.memory.loader import Check, Loader
from appliance.runtime.memory.loads import Loads
from appliance.runtime.memory.room import Arbiter, Asked, Process, Replacement, ResidentBuild
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.memory.unloads import Unloads
from appliance.runtime.ports import IdleProcesses

_S = ResidencyState
_CLOSE_S = 5.0
"""What unloads have at the end, of what the service manager leaves a box for its stop."""


class MemoryManager:
    """Loads, replaces and unloads builds of one memory domain within a byte budget.

    Two requests for one absent build join one load; a build in use is never a victim; a load is reserved with its peak
    before it starts.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        loader: Loader,
        arbiter: Arbiter,
        budget_bytes: int,
        wait_ms_max: float,
        events: EventSink,
        users_of: Callable[[str], tuple[str, ...]] = lambda build_id: (),
        asleep_share: float = 0.0,
        asleep_of: Callable[[str], int | None] = lambda build_id: None,
        process_of: Callable[[str], Process | None] = lambda build_id: None,
        ahead_max: int | None = None,
    ) -> None:
        """`asleep_share`: of the budget, what sleepers may keep. `asleep_of`: what a build takes asleep, where that
        was measured. `process_of`: that which has to begin for a build's load; None: none has. `ahead_max`: loads that
        nobody waits for and that the processor has at once; None = all.
        """
        self._clock = clock
        self._loader = loader
        self.wait_ns_max = int(wait_ms_max * NS_PER_MS)
        """How long a load waits for room, at most."""
        self._ledger = Ledger(budget_bytes, users_of, asleep_share)
        self._idle = AllIdle()
        self._process_of = process_of
        self.runs = RunMemory(
            lambda: self.room_for(()),
            lambda: self._ledger.free_bytes,
            lambda: self._idle.idle_bytes(self._ledger.wanted()),
            lambda: self._idle.end_idle(self._ledger.wanted()),
            self.overheads,
        )
        self._changes = Changes(clock)
        self._unloads = Unloads(clock, self._ledger, loader, arbiter, self._changes, events)
        self._loads = Loads(
            clock=clock,
            ledger=self._ledger,
            loader=loader,
            arbiter=arbiter,
            changes=self._changes,
            unloads=self._unloads,
            wait_ns_max=self.wait_ns_max,
            events=events,
            asleep_of=asleep_of,
            process_of=process_of,
            idle=self._idle,
            ahead_max=ahead_max,
        )

        self.on_short: list[Callable[[int], None]] = []
        """Asked in turn before a load for which that much is not free: whoever holds what others need more lets it go.
        """
        self.on_resized: Callable[[], None] = lambda: None
        """Called when the budget is another one."""

    # -- the inference path --------------------------------------------------------------------------------------------

    def is_resident(self, build_id: str) -> bool:
        """Whether a request would be warm on it now."""
        build = self._ledger.get(build_id)
        return build is not None and build.state is _S.RESIDENT

    def is_loading(self, build_id: str) -> bool:
        """Whether a load of it is under way, that a request can join."""
        build = self._ledger.get(build_id)
        return build is not None and build.state is _S.LOADING

    def pin_resident(self, build_id: str) -> LoadedBuild | None:
        """Pin a resident build; None when it is not resident. The fast path: no await, no allocation."""
        build = self._ledger.get(build_id)
        if build is None or build.state is not _S.RESIDENT:
            return None
        build.pins += 1
        build.last_used_ns = self._clock.now_ns()
        build.on_change(build_id)
        return build

    async def pin(
        self,
        build_id: str,
        resident_bytes: int,
        peak_bytes: int,
        deadline_ns: int | None,
        *,
        is_urgent: bool = True,
        asks: bool = True,
        asked: Asked | None = None,
    ) -> LoadedBuild:
        """Make a build resident (joining a load under way) and pin it; the caller must `unpin`.

        No request waits for a load that is not urgent. `asks`: where too little is free, `on_short` is called first.
        `asked`: the request waits for room by itself (`change`), its load does not.

        Raises: OutOfMemory when it cannot fit, NoRoomYet where it would have to wait for room and shall not,
        LoadFailed, DeadlineExceeded while waiting, ShuttingDown.
        """
        waits = is_urgent and asked is None
        start_ns = self._clock.now_ns()
        while True:
            if self._loads.is_closed:
                raise ShuttingDown()
            build = self._ledger.entry(build_id, resident_bytes, peak_bytes)
            if build.state is _S.RESIDENT:
                build.pins += 1
                build.last_used_ns = self._clock.now_ns()
                build.on_change(build_id)
                return build
            if build.state in (_S.DRAINING, _S.UNLOADING):
                await self._changes.within(build.gone.wait(), deadline_ns, start_ns)
                continue
            loading = build.loading
            if loading is None:
                build.is_urgent, build.waits = is_urgent, waits
                if asks:
                    self._ask_for(build.need_bytes)
                loading = self._loads.start(build) if asked is None else self._loads.start_now(build, asked)
            else:
                build.waits |= waits
                if is_urgent and not build.is_urgent:  # what was brought ahead of time is now waited for
                    if build.promised_bytes is None:
                        self._ask_for(build.need_bytes)
                    self._loads.hurry(build)
            build.pins += 1  # before waiting: a build that somebody waits for is no victim the moment it arrives
            build.on_change(build_id)
            build.waiters += is_urgent
            try:
                await self._changes.within(asyncio.shield(loading), deadline_ns, start_ns)
            finally:
                build.waiters -= is_urgent
                if is_urgent and not build.waiters and build.pins > 1:
                    self._loads.end_hurry(build)
                self.unpin(build)

    @property
    def changes(self) -> int:
        """How often anything has changed that may bring room for a load."""
        return self._changes.count

    async def change(self, seen: int, until_ns: int) -> bool:
        """Return with the next change after so many; False: there was none until then."""
        if self._changes.count == seen:
            try:
                await self._changes.next(until_ns)
            except TimeoutError:
                return False
        return True

    def _ask_for(self, need_bytes: int) -> None:
        for let_go in self.on_short:
            missing_bytes = need_bytes - self._ledger.free_bytes
            if missing_bytes > 0:
                let_go(missing_bytes)

    def unpin(self, build: LoadedBuild) -> None:
        """Release one pin; a draining build leaves with its last one."""
        build.pins -= 1
        assert build.pins >= 0, build.build_id
        if build.pins == 0:
            build.on_change(build.build_id)
            if build.state is _S.DRAINING:
                self._unloads.begin(build)
            self._loads.shrink()
            self._changes.announce()

    # -- management ----------------------------------------------------------------------------------------------------

    def release(self, build_id: str) -> None:
        """Let a resident build go, with its last pin at the latest: its application has another one now.

        It sleeps where it can.
        """
        self._unloads.release(build_id)

    def lost(self, build_id: str) -> None:
        """A build has gone by itself: its process ended. Who holds a pin finds no handle any more."""
        holder = self._loader.holder_of(build_id)
        if holder == build_id:
            self._unloads.lost(build_id)
        else:  # the parts that came with it are still there, and of no use without it
            self.dismiss(holder)

    def room_to_begin(self, process: Process, *, is_needed: bool = True) -> AbstractAsyncContextManager[None]:
        """Within it a process begins, and tells what it takes (`set_overhead`). For one that a request needs room is
        made as for a load for a request of the process's tenant. One that is not needed takes free memory only, and
        waits for none. Raises: OutOfMemory where there is no room, or none in time, ShuttingDown.
        """
        return self._loads.room_to_begin(process, is_needed=is_needed)

    def set_overhead(self, count_bytes: int, of: str = GUARDS, there: Collection[Hashable] = ()) -> None:
        """What processes of one sort take beside builds; it counts against the budget. `there`: by name, those that
        need no room to begin any more.
        """
        self._loads.coming.came(there)
        self._ledger.set_overhead(count_bytes, of)
        self._loads.shrink()
        self._changes.announce()

    def when_short(self, processes: IdleProcesses) -> None:
        """Where memory is short, idle ones of these end; those that were named before end first."""
        self._idle.add(processes)

    # -- the account: what there is for builds -------------------------------------------------------------------------

    @property
    def builds_bytes(self) -> int:
        """What builds may take together now: the budget, less what processes beside them take or are promised."""
        return self._ledger.builds_bytes

    def room_for(self, builds: Collection[str]) -> int:
        """What these builds may take together, were all others gone: the budget, less what processes beside builds take
        or are promised, and what those take that have to begin for these builds. Processes that are idle, and that none
        of the builds needs, count as ended: they end where there is no room otherwise.
        """
        coming = self._loads.coming
        to_begin = {process.name: process for build in builds if (process := self._process_of(build)) is not None}
        begin_bytes = sum(coming.missing_bytes(process) for process in to_begin.values())
        return self._ledger.builds_bytes + self._idle.idle_bytes(builds) - begin_bytes

    def idle_bytes(self, builds: Collection[str]) -> int:
        """What processes beside builds take that end where a request for one of these builds finds no room."""
        return self._idle.idle_bytes(self._ledger.wanted().union(builds))

    def overheads(self) -> Mapping[str, int]:
        """Sort of processes → what these take beside builds."""
        return {of: count_bytes for of, count_bytes in self._ledger.overheads.items() if count_bytes}

    # -- builds that come and go by order ------------------------------------------------------------------------------

    def before_parts(self, check: Check) -> None:
        """Have it asked before parts are loaded that are to be in memory together."""
        self._loader.checks.append(check)

    async def unload(self, build_id: str) -> None:
        """Make a build absent, sleepers too: no new pins, wait for the running ones, give its memory back.

        No-op when it is not in memory. A part leaves with all that came with it; it stays while these are loaded, for
        one of them may be what it is to make room for.
        """
        build = self._leaving_as(build_id)
        if build is None or (build.build_id != build_id and build.loading is not None):
            return
        if build.loading is not None:
            await asyncio.wait([build.loading])
        self._unloads.remove(build)
        if build.state in (_S.DRAINING, _S.UNLOADING):
            await build.gone.wait()
        self._ledger.forget(build)

    def dismiss(self, build_id: str) -> None:
        """Let a build go for good, with its last pin at the latest: nobody refers to it any more. A part leaves with
        all that came with it.
        """
        build = self._leaving_as(build_id)
        if build is not None:
            self._unloads.remove(build)
            self._ledger.forget(build)

    def _leaving_as(self, build_id: str) -> LoadedBuild | None:
        """What leaves where a build is to: a part that was loaded by itself leaves alone, whoever else has it, too."""
        is_away = self._ledger.is_away(build_id)
        return self._ledger.get(self._loader.holder_of(build_id) if is_away else build_id)

    async def close(self) -> None:
        """Unload everything, pinned or not, and load nothing more; for the end of the process, which does not wait
        for ever for builds that a run stands at.
        """
        await self._loads.close()
        for build in self._ledger.all():
            build.is_for_good = True
            build.on_change(build.build_id)
            if build.state in (_S.RESIDENT, _S.DRAINING, _S.ASLEEP):
                self._unloads.begin(build)
        await self._unloads.done(_CLOSE_S)

    def update_figures(self, build_id: str, resident_bytes: int, peak_bytes: int) -> None:
        """Take a newly measured size over; a resident build is recounted at once."""
        build = self._ledger.get(build_id)
        if build is None:
            return
        build.resident_bytes, build.peak_bytes = resident_bytes, peak_bytes
        if build.state is _S.RESIDENT:
            self._ledger.recount(build)
            self._loads.shrink()
            self._changes.announce()

    def resize(self, budget_bytes: int) -> None:
        """Take a new budget over: at a smaller one builds leave until it holds, those in use when they are done."""
        self._ledger.budget_bytes = budget_bytes
        self._loads.shrink()
        self._unloads.trim()
        self._changes.announce()
        self.on_resized()

    def replace(self, replacement: Replacement, ordered_bytes: int = 0) -> bool:
        """Bring another build in the place of a resident one, beside it first if there is room.

        False when that is not possible now. `ordered_bytes`: of what is free, those that other loads are about to take.
        """
        victim = self._ledger.get(replacement.victim)
        if victim is None or victim.state is not _S.RESIDENT or victim.build_id in self._ledger.followed():
            return False
        if self._loads.is_closed or not self._ledger.may_come(replacement.build_id):
            return False
        need = replacement.need_bytes(self._ledger.asleep())
        self._ask_for(need + ordered_bytes)
        if self._ledger.has_room_beside(need + ordered_bytes):
            self._ledger.follow(self._loads.promise(replacement), victim.build_id)
        elif victim.pins or self._ledger.free_bytes + self._ledger.freed_by(victim) < need + ordered_bytes:
            return False
        else:
            self._loads.promise(replacement)
            self._unloads.evict(victim, replacement.build_id)
        return True

    def trim(self) -> None:
        """Sleepers keep to the ceilings of their tenants, after one was lowered."""
        self._unloads.trim()

    # -- for others to see ---------------------------------------------------------------------------------------------

    def build(self, build_id: str) -> LoadedBuild | None:
        """The record of a build that was ever asked for."""
        return self._ledger.get(build_id)

    def residents(self) -> tuple[ResidentBuild, ...]:
        """What is in memory or on its way there, by id; what is being loaded counts as pinned."""
        return self._ledger.residents()

    def holders(self) -> list[ResidentBuild]:
        """What takes memory now or soon, asleep or not."""
        return self._ledger.holders()

    def awake(self) -> frozenset[str]:
        """Builds that a request would be warm on now; the same object until one comes or goes."""
        return self._ledger.awake()

    def resident_set(self) -> list[str]:
        """Resident builds, most recently used first; what a restart brings back."""
        builds = [b for b in self._ledger.all() if b.state is _S.RESIDENT]
        return [b.build_id for b in sorted(builds, key=lambda b: -b.last_used_ns)]

    def known_builds(self) -> list[str]:
        """Builds that there is a record of, in memory or not, by id; of parts that came with others only the build that
        all of them are.
        """
        return [b.build_id for b in self._ledger.all() if self._loader.holder_of(b.build_id) == b.build_id]

    @property
    def loads(self) -> int:
        return self._loads.loads

    @property
    def is_busy(self) -> bool:
        """Whether anything is being loaded, woken or read ahead."""
        return self._loads.is_busy

    @property
    def wakes(self) -> int:
        """Builds that came into memory by waking."""
        return self._loads.wakes

    @property
    def load_failures(self) -> int:
        return self._loads.failures

    @property
    def loads_skipped(self) -> int:
        """Loads ahead of time that found no room."""
        return self._loads.skipped

    @property
    def replacements(self) -> int:
        return self._loads.replacements

    @property
    def evictions(self) -> int:
        return self._unloads.evictions

    @property
    def budget_bytes(self) -> int:
        return self._ledger.budget_bytes

    @property
    def free_bytes(self) -> int:
        """Neither taken nor promised; below zero where the budget has become smaller."""
        return self._ledger.free_bytes

    def need_bytes(self, build_id: str, need_bytes: int) -> int:
        """What must be free for a build to come now: `need_bytes` for its load, less for its wake where it sleeps."""
        build = self._ledger.get(build_id)
        is_asleep = build is not None and build.state is _S.ASLEEP
        return build.need_bytes if build is not None and is_asleep else need_bytes

    def asleep(self) -> Mapping[str, int]:
        """Builds that sleep, or wait for room to wake, and what they keep."""
        return self._ledger.asleep()

    def is_bounded(self, build_id: str) -> bool:
        """Whether the tenant of a build has a ceiling."""
        return self._loads.is_bounded(build_id)

    def will_sleep(self, build_id: str) -> bool:
        """Whether a resident build sleeps when it leaves."""
        build = self._ledger.get(build_id)
        return build is not None and self._ledger.kept_when_gone(build) > 0

    def is_asleep(self, build_id: str) -> bool:
        """Whether a request would have to wake it."""
        build = self._ledger.get(build_id)
        return build is not None and build.state is _S.ASLEEP

    def expected_wake_ns(self, build_id: str) -> int | None:
        """How long a wake would take now; None where it does not sleep."""
        build = self._ledger.get(build_id)
        if build is None or build.state is not _S.ASLEEP:
            return None
        return self._loader.wake_ns(build.handle)

    def read_ahead(self, build_id: str) -> None:
        """Have the file of a build that sleeps read into the page cache, in the background, where a wake would have to
        read it from disk.
        """
        build = self._ledger.get(build_id)
        if build is not None and build.state is _S.ASLEEP:
            self._loads.read_ahead(build)

    def watch(
        self, on_loaded: Callable[[str], None], on_left: Callable[[str], None], on_failed: Callable[[str], None]
    ) -> None:
        """Be told of every build that has come into memory, of every one that sleeps or is absent now, and of every
        one whose load has failed for another reason than room; by id.
        """
        self._loads.on_loaded, self._loads.on_failed = on_loaded, on_failed
        self._unloads.on_left = on_left

    @property
    def used_bytes(self) -> int:
        """What is occupied now: loaded, being loaded, and leaving."""
        return self._ledger.used_bytes

    def snapshot(self) -> dict[str, Any]:
        """For `/v1/memory`: the domain, its builds and the counters."""
        return {
            "budget_bytes": self.budget_bytes,
            "used_bytes": self.used_bytes,
            "overhead_bytes": self._ledger.overhead_bytes,
            "beside": [
                {"of": of, "bytes": count_bytes}
                for of, count_bytes in sorted(self.overheads().items(), key=lambda one: (-one[1], one[0]))
            ],
            "runs_bytes": self.runs.running_bytes,
            "spare_bytes": self.runs.spare_bytes,
            "asleep_bytes": self._ledger.asleep_bytes,
            "loads": self.loads,
            "wakes": self.wakes,
            "load_failures": self.load_failures,
            "loads_skipped": self.loads_skipped,
            "evictions": self.evictions,
            "replacements": self.replacements,
            "builds": self._ledger.rows(self._clock.now_ns()),
        }
