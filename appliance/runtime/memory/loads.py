"""Builds that come into memory: room is made for each, by a transaction of the ledger, and then it is loaded in a
task of its own, or woken where it sleeps.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import LoadFailed, OutOfMemory, ShuttingDown
from appliance.domain.events import EventSink
from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.changes import Changes
from appliance.runtime.memory.idle_processes import AllIdle
from appliance.runtime.memory.ledger import Ledger
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.processes import ComingProcesses
from appliance.runtime.memory.room import (
    Arbiter,
    Asked,
    NoRoomYet,
    Process,
    Replacement,
    RoomPlan,
    RoomProblem,
    needed_in_turn,
)
from appliance.runtime.memory.turns import Turns
from appliance.runtime.memory.unloads import Unloads, nothing

_S = ResidencyState
_FOREVER = 1 << 62
_PAUSE_NS = NS_PER_S
_PAUSE_NS_MAX = 300 * NS_PER_S
"""So long after a load that failed nobody but a request tries again; twice as long after each further one."""


class Loads:
    """Asks the arbiter who gives way, enacts its plan, and loads. Event-loop thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        ledger: Ledger,
        loader: Loader,
        arbiter: Arbiter,
        changes: Changes,
        unloads: Unloads,
        wait_ns_max: int,
        events: EventSink,
        asleep_of: Callable[[str], int | None],
        process_of: Callable[[str], Process | None],
        idle: AllIdle,
        ahead_max: int | None = None,
    ) -> None:
        """A load waits at most `wait_ns_max` for room. `asleep_of`: what a build takes asleep, where that was
        measured. `process_of`: that which has to begin for a build's load; None: none has. `idle`: processes that end
        where there is no room otherwise. `ahead_max`: loads that nobody waits for and that the processor has at once;
        None = all.
        """
        self._clock = clock
        self._ledger = ledger
        self._loader = loader
        self._arbiter = arbiter
        self._changes = changes
        self._unloads = unloads
        self._wait_ns_max = wait_ns_max
        self._events = events
        self._asleep_of = asleep_of
        self._process_of = process_of
        self._idle = idle
        self.coming = ComingProcesses(ledger)
        self._turns = Turns(ahead_max)
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self.on_loaded: Callable[[str], None] = nothing
        """Told of every build that has come into memory, by id."""
        self.on_failed: Callable[[str], None] = nothing
        """Told of every build whose load has failed, by id; not of those that found no room."""
        self.loads = self.wakes = self.failures = self.skipped = self.replacements = 0

    def start(self, build: LoadedBuild) -> asyncio.Future[None]:
        """Load or wake a build in a task of its own, which makes room first."""
        build.to(_S.LOADING)
        return self._begin(build, self._in_room(build))

    def start_now(self, build: LoadedBuild, asked: Asked) -> asyncio.Future[None]:
        """The same where room is made at once.

        Raises: NoRoomYet, OutOfMemory, ShuttingDown; nothing has begun then.
        """
        build.to(_S.LOADING)
        try:
            self._commit(build, asked)
        except BaseException:
            build.to(_S.ASLEEP if build.handle is not None else _S.ABSENT)
            raise
        return self._begin(build, self._room_is_free(build, self._limit_ns()))

    def _begin(self, build: LoadedBuild, room: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Load it in a task of its own, once there is room."""
        build.is_for_good = build.is_unwanted = False
        task = asyncio.create_task(self._load(build, room), name=f"load {build.build_id}")
        task.add_done_callback(_consume)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        build.loading = task
        return task

    @property
    def is_busy(self) -> bool:
        """Whether anything is being loaded, woken or read ahead."""
        return bool(self._tasks)

    def is_bounded(self, build_id: str) -> bool:
        """Whether the tenant of a build has a ceiling."""
        return self._arbiter.is_bounded(build_id)

    def hurry(self, build: LoadedBuild) -> None:
        """A request waits for what was being loaded ahead of time."""
        build.is_urgent = True
        self._turns.hurry(build)
        self._changes.announce()

    def end_hurry(self, build: LoadedBuild) -> None:
        """No request waits any more for a load that goes on for others: it has no more rights than before."""
        if build.state is _S.LOADING:
            build.is_urgent = False
            self._changes.announce()

    def promise(self, replacement: Replacement) -> LoadedBuild:
        """Commit a replacement's bytes and start its load, which waits until they are free."""
        return self._come_in_place(replacement, None)

    def _come_in_place(self, replacement: Replacement, count_bytes: int | None) -> LoadedBuild:
        build = self._ledger.entry(replacement.build_id, replacement.resident_bytes, replacement.peak_bytes)
        build.is_urgent = False
        self._ledger.promise(build, count_bytes)
        self.replacements += 1
        build.to(_S.LOADING)
        self._begin(build, self._room_is_free(build, None))
        return build

    def read_ahead(self, build: LoadedBuild) -> None:
        """Once for each time that it sleeps."""
        if build.is_read or self.is_closed:
            return
        build.is_read = True
        task = asyncio.create_task(self._read_ahead(build), name=f"read ahead {build.build_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_ahead(self, build: LoadedBuild) -> None:
        with suppress(Exception):  # it was only to be quicker
            await self._loader.read_ahead(build.handle)

    def shrink(self) -> None:
        """Where a newly measured size, a smaller budget or the processes of builds have pushed the ledger over: evict.

        Idle processes end first. Where no plan is enough, whoever can go does. If all is in use, the next free pin
        tries again.
        """
        while self._ledger.free_bytes < 0 and self._idle.end_idle(self._ledger.wanted()):
            pass
        if self._ledger.free_bytes >= 0:
            return
        plan = self._plan(self._problem("", 0))
        self._make_way(plan, "")
        if plan.sufficient or self._ledger.leavers():  # what these take is theirs until they have left
            return
        for resident in self._ledger.residents():
            if not resident.pinned:
                self._unloads.evict(self._known(resident.build_id), "")
        self._idle.end_idle(())

    @asynccontextmanager
    async def room_to_begin(self, process: Process, *, is_needed: bool) -> AsyncIterator[None]:
        """As `MemoryManager.room_to_begin`."""
        try:
            asked, limit_ns = Asked(self._clock.now_ns()), self._limit_ns()
            while True:
                try:
                    await self._promise_to(process, asked if is_needed else None)
                except NoRoomYet as full:
                    await self._change_or(full.again_ns, limit_ns, process)
                    continue
                if self._ledger.has_room_to_begin:
                    break
                await self._change_before(limit_ns, process)
            yield
        finally:
            self.coming.unwanted(process)
            self._changes.announce()

    async def _promise_to(self, process: Process, asked: Asked | None) -> None:
        """Promise a process its bytes, which are free now, or when all builds have left that were told to; builds that
        come in their place come before it. `asked`: the request that needs the process; None: none does, and nothing
        leaves for it.

        Raises: as `_commit`.
        """
        if self.is_closed:
            raise ShuttingDown()
        missing_bytes = self.coming.missing_bytes(process)
        if missing_bytes and asked is not None:
            own_bytes = process.bytes - process.shared_bytes
            plan = self._plan_ending("", own_bytes, process.shared_bytes, asked, process.tenant)
            if not plan.sufficient:
                raise self._no_room(plan, process, missing_bytes)
            room = LoadedBuild("", missing_bytes, missing_bytes)
            self._enact(plan, room, 0)
            try:
                while room.borrowers:
                    await self._change_before(None, process)
            finally:
                self._ledger.give_up(room)
                self._ledger.cancel(room)
        elif missing_bytes > self._ledger.free_bytes:
            raise self._out_of_memory(process)
        self.coming.promise(process, process)

    async def close(self) -> None:
        """Load nothing more; loads that wait for room give up, those that a thread works on are seen through."""
        self.is_closed = True
        self._changes.announce()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # -- one load ------------------------------------------------------------------------------------------------------

    async def _load(self, build: LoadedBuild, room: Coroutine[Any, Any, None]) -> None:
        """`room` returns when its bytes are free."""
        start_ns = self._clock.now_ns()
        wakes = build.handle is not None
        try:
            await room
            if self._arbiter.is_bounded(build.build_id):
                self._unloads.trim()
            async with self._turns.turn(build):
                load_start_ns = self._clock.now_ns()
                await (self._wake(build) if wakes else self._fetch(build))
        except BaseException as error:
            self._load_failed(build, error)
            raise
        took_ns = self._clock.now_ns() - load_start_ns
        self._ledger.recount(build)
        self.coming.unwanted(build.build_id)
        build.to(_S.RESIDENT)
        build.last_used_ns = self._clock.now_ns()
        build.loading = None
        build.failures = build.again_ns = 0
        build.is_woken = wakes
        build.is_read = False
        if wakes:
            build.wake_ns = took_ns
            build.wakes += 1
            self.wakes += 1
        else:
            build.load_ns = took_ns
            build.loads += 1
            self.loads += 1
        if build.successor_of is not None:
            self._unloads.release(build.successor_of)
            self._ledger.follow(build, None)
        self.shrink()
        self._changes.announce()
        self.on_loaded(build.build_id)
        waited_ms = (load_start_ns - start_ns) / NS_PER_MS
        facts, took_ms = self._ledger.facts(build), took_ns / NS_PER_MS
        if wakes:
            self._events.emit("variant woken", **facts, wake_ms=took_ms, waited_ms=waited_ms)
        else:
            self._events.emit("variant loaded", **facts, load_ms=took_ms, waited_ms=waited_ms)
        if build.is_for_good and build.state is _S.RESIDENT:  # dismissed, or a part of it lost, while it was loaded
            self._unloads.let_go(build)

    async def _fetch(self, build: LoadedBuild) -> None:
        build.handle = await self._loader.load(build.build_id)
        can_sleep = self._loader.can_sleep(build.handle)
        build.asleep_bytes = (build.asleep_bytes or self._asleep_of(build.build_id)) if can_sleep else None

    async def _wake(self, build: LoadedBuild) -> None:
        handle = build.handle
        if handle is not None:
            await self._loader.wake(build.build_id, handle)
        if build.handle is None:
            raise LoadFailed(build_id=build.build_id, reason="its process ended while it was waking")

    def _load_failed(self, build: LoadedBuild, error: BaseException) -> None:
        """The end of a load that came to nothing.

        One that nobody waits for and that found no room has not failed: it is skipped. Who found no room to wake is
        asleep as before; who could not be woken goes for good, and the next request loads it.
        """
        self._ledger.cancel(build)
        self.coming.unwanted(build.build_id)
        build.loading = None
        self._ledger.follow(build, None)
        is_full = isinstance(error, OutOfMemory | ShuttingDown)
        is_skipped = isinstance(error, OutOfMemory) and not build.is_urgent
        if build.handle is not None:
            build.to(_S.ASLEEP)
        else:
            self._ledger.keeps(build, 0)
            build.to(_S.ABSENT if is_skipped else _S.FAILED)
        if build.state is _S.ASLEEP and (not is_full or build.is_for_good):
            self._unloads.dismiss(build)
        self._unloads.trim()
        if is_skipped:
            self.skipped += 1
            self._changes.announce()
            self._events.emit("variant load skipped", **self._ledger.facts(build), reason=str(error))
            return
        self.failures += 1
        self._changes.announce()
        if not is_full:
            build.failures += 1
            build.again_ns = self._clock.now_ns() + min(_PAUSE_NS << min(build.failures - 1, 20), _PAUSE_NS_MAX)
            self.on_failed(build.build_id)
        self._events.emit("variant load failed", **self._ledger.facts(build), reason=str(error) or type(error).__name__)

    async def _in_room(self, build: LoadedBuild) -> None:
        """Promise the peak of `build`, evicting what the arbiter names, and return when it is really free.

        Raises: OutOfMemory when waiting cannot help, took too long, or nobody waits any more; ShuttingDown.
        """
        asked, limit_ns = Asked(self._clock.now_ns()), self._limit_ns()
        while True:
            try:
                self._commit(build, asked)
                break
            except NoRoomYet as full:
                if build.is_urgent and not build.waits:
                    raise self._out_of_memory(build) from None
                failures = self.failures + self.skipped
                await self._change_or(full.again_ns, limit_ns, build)
            if not build.pins:
                raise self._out_of_memory(build)
            if not build.is_urgent and self.failures + self.skipped > failures:
                # Perhaps its replacements: to try them again at once would fail for ever.
                raise self._out_of_memory(build)
        await self._room_is_free(build, limit_ns)

    async def _room_is_free(self, build: LoadedBuild, limit_ns: int | None) -> None:
        """Return when the bytes that were promised are really free, and what comes before it has come; they count as
        used then.

        Raises: OutOfMemory at the limit, or where a smaller budget has made it too large.
        """
        try:
            while not self._ledger.is_free(build):
                is_too_large = (build.promised_bytes or 0) + build.borrows_bytes > self._ledger.budget_bytes
                if is_too_large or (build.borrows_bytes and build.lender is None):
                    raise self._out_of_memory(build)
                await self._change_before(None if build.borrowers else limit_ns, build)
        except BaseException:
            self._ledger.give_up(build)
            raise
        self._ledger.begin(build)

    def _limit_ns(self) -> int:
        """Until when a load that begins now waits for room."""
        return self._clock.now_ns() + self._wait_ns_max

    async def _change_or(self, again_ns: int, limit_ns: int, wanted: LoadedBuild | Process) -> None:
        """Return with the next change, or at `again_ns`. Raises: OutOfMemory at the limit, where that comes first."""
        if again_ns < limit_ns:
            with suppress(TimeoutError):
                await self._changes.next(again_ns)
        else:
            await self._change_before(limit_ns, wanted)

    async def _change_before(self, limit_ns: int | None, wanted: LoadedBuild | Process) -> None:
        try:
            await self._changes.next(limit_ns)
        except TimeoutError:
            raise self._out_of_memory(wanted) from None

    def _commit(self, build: LoadedBuild, asked: Asked) -> None:
        """One transaction: plan, check, mark the victims, promise the newcomer and the replacements.

        Raises: NoRoomYet when only waiting can help, OutOfMemory when nothing can, ShuttingDown; with nothing done.
        """
        if self.is_closed:
            raise ShuttingDown()
        process = self._process_of(build.build_id) if build.handle is None else None
        beside_bytes = self.coming.missing_bytes(process)
        if build.is_urgent:
            plan = self._plan_ending(build.build_id, build.need_bytes, beside_bytes, asked)
        else:
            problem = self._problem(
                build.build_id, build.need_bytes, is_urgent=False, asked=asked, beside_bytes=beside_bytes
            )
            plan = self._plan(problem)
        if not plan.sufficient:
            raise self._no_room(plan, build, build.need_bytes + beside_bytes)
        if not build.is_urgent and self._replace_first(plan):
            raise NoRoomYet(_FOREVER)
        self._enact(plan, build, beside_bytes)
        if process is not None:
            self.coming.promise(process, build.build_id)

    def _no_room(self, plan: RoomPlan, wanted: LoadedBuild | Process, need_bytes: int) -> NoRoomYet | OutOfMemory:
        """The error where a plan is not enough: whether a change can help. The arbiter was asked before, so that its
        refusal is recorded.
        """
        build = wanted if isinstance(wanted, LoadedBuild) else None
        if need_bytes > self._ledger.budget_bytes:
            return self._out_of_memory(wanted)
        if plan.again_ns is not None:
            return NoRoomYet(plan.again_ns)
        if (build is None or build.is_urgent) and self._ledger.will_change(apart_from=build):
            return NoRoomYet(_FOREVER)
        return self._out_of_memory(wanted)

    def _plan_ending(
        self, newcomer: str, need_bytes: int, beside_bytes: int, asked: Asked | None, tenant: str | None = None
    ) -> RoomPlan:
        """Plan for a request, once processes have ended that can be done without: those that are idle where fewer
        builds leave then, and where nothing else makes room those whose builds may all leave.

        Arguments: as of `_problem`.
        """
        ask = partial(self._problem, newcomer, need_bytes, asked=asked, tenant=tenant)
        ledger, wanted = self._ledger, self._ledger.wanted()
        if newcomer:
            wanted.add(newcomer)
        while ledger.free_bytes < need_bytes + beside_bytes <= ledger.budget_bytes:  # else a ceiling, or never
            if self._is_better_without_idle(ask, beside_bytes, wanted) and self._idle.end_idle(wanted):
                continue
            problem = ask(beside_bytes=beside_bytes)
            plan = self._plan(problem)
            if plan.sufficient or not self._end_with_builds(problem, wanted):
                return plan
        return self._plan(ask(beside_bytes=beside_bytes))

    def _is_better_without_idle(
        self, ask: Callable[..., RoomProblem], beside_bytes: int, wanted: Collection[str]
    ) -> bool:
        """Whether the end of all idle processes would make room that there is not now, or spare builds."""
        idle_bytes = self._idle.idle_bytes(wanted)
        if not idle_bytes:
            return False
        now = self._plan(ask(beside_bytes=beside_bytes, is_trial=True))
        if now.sufficient and not now.lost_bytes:
            return False
        then = self._plan(ask(beside_bytes=beside_bytes - idle_bytes, is_trial=True))
        return then.sufficient and (not now.sufficient or then.lost_bytes < now.lost_bytes)

    def _end_with_builds(self, problem: RoomProblem, wanted: Collection[str]) -> bool:
        """Where nothing else makes room: end a process whose builds may all leave, if what it takes with them, and
        idle processes beside it, is enough; whether there was one.
        """
        ledger = self._ledger
        missing_bytes = problem.need_bytes - problem.free_bytes - self._idle.idle_bytes(wanted)
        for process in self._idle.occupied(wanted):
            builds = [build for build_id in process.builds if (build := ledger.get(build_id)) is not None]
            freed_bytes = process.bytes + sum(
                build.bytes for build in builds if build.state in (_S.RESIDENT, _S.ASLEEP)
            )
            if freed_bytes >= missing_bytes and self._arbiter.may_leave(problem, process.builds, process.bytes):
                process.end()
                return True
        return False

    def _enact(self, plan: RoomPlan, build: LoadedBuild, beside_bytes: int) -> None:
        """Its replacements come at once where there is room for all the peaks, else one after the other before the
        newcomer, which lends them what they need then.
        """
        ledger, asleep = self._ledger, self._ledger.asleep()
        free_bytes = ledger.free_bytes - beside_bytes + sum(ledger.freed_by(self._known(v)) for v in plan.victims)
        free_bytes += sum(self._known(sleeper).bytes for sleeper in plan.dismissed)
        need_bytes = build.need_bytes
        in_turn = need_bytes + sum(r.need_bytes(asleep) for r in plan.replacements) > free_bytes
        # Replacements first: who sleeps still must not go for good for a victim.
        coming = [self._come_in_place(r, r.grown_bytes(asleep) if in_turn else None) for r in plan.replacements]
        if in_turn:
            grown_bytes = sum(r.grown_bytes(asleep) for r in plan.replacements)
            need_bytes = needed_in_turn(need_bytes, plan.replacements, asleep) - grown_bytes
        self._make_way(plan, build.build_id)
        ledger.promise(build, need_bytes)
        if in_turn:
            ledger.lend(build, coming)
            for replacement in coming:
                replacement.is_urgent = build.is_urgent

    def _make_way(self, plan: RoomPlan, newcomer: str) -> None:
        """Its victims leave, and its sleepers go for good."""
        for sleeper in map(self._known, plan.dismissed):
            self._unloads.dismiss(sleeper)
        for victim in plan.victims:
            self._unloads.evict(self._known(victim), newcomer)

    def _replace_first(self, plan: RoomPlan) -> bool:
        """Where nobody is in a hurry: load the replacements beside what they replace, as many as there is room for, so
        that no application goes cold.

        The newcomer is planned for anew when they are there. False when there is nothing to do before.
        """
        asleep, has_begun = self._ledger.asleep(), False
        for replacement in plan.replacements:
            if self._ledger.has_room_beside(replacement.need_bytes(asleep)):
                self._ledger.follow(self.promise(replacement), replacement.victim)
                has_begun = True
        return has_begun

    def _problem(
        self,
        newcomer: str,
        need_bytes: int,
        *,
        is_urgent: bool = True,
        asked: Asked | None = None,
        beside_bytes: int = 0,
        tenant: str | None = None,
        is_trial: bool = False,
    ) -> RoomProblem:
        """Return the problem of making room for a build, or where `newcomer` is empty for a process of `tenant`.

        `beside_bytes`: of a process that begins with it, which are free for nobody. Others as of `RoomProblem`.
        """
        ledger = self._ledger
        return RoomProblem(
            self._clock.now_ns(),
            newcomer,
            need_bytes,
            ledger.free_bytes - beside_bytes,
            ledger.residents(),
            ledger.leavers(),
            is_urgent,
            None if asked is None else asked.since_ns,
            ledger.asleep(),
            () if asked is None else asked.instead,
            tenant,
            is_trial,
        )

    def _plan(self, problem: RoomProblem) -> RoomPlan:
        """The arbiter is asked about every load but those for which there is room, of tenants without a ceiling.

        Where it finds none it is asked again, with what sleepers keep as free, unless they are to stay.
        """
        ledger, newcomer = self._ledger, problem.build_id
        if newcomer and problem.need_bytes <= problem.free_bytes and not self._arbiter.is_bounded(newcomer):
            return RoomPlan((), 0, True, "there is room")
        plan = self._arbiter.plan(problem)
        if not plan.sufficient and not plan.spares_sleepers and (sleepers := ledger.sleepers()):
            plan = self._dismissing(problem, plan, self._unloads.in_order(sleepers))
        else:
            ledger.check(plan, problem)
        return plan

    def _dismissing(self, problem: RoomProblem, refused: RoomPlan, sleepers: list[LoadedBuild]) -> RoomPlan:
        """A plan for which sleepers go for good, the first of them and no more than it needs."""
        kept = sum(s.bytes for s in sleepers)
        plan = self._arbiter.plan(replace(problem, free_bytes=problem.free_bytes + kept))
        if not plan.sufficient:
            return refused
        coming = {r.build_id for r in plan.replacements}
        freed = sum(self._ledger.freed_by(self._known(v)) for v in plan.victims)
        missing = needed_in_turn(problem.need_bytes, plan.replacements, problem.asleep) - freed - problem.free_bytes
        dismissed: list[str] = []
        for sleeper in sleepers:
            if missing > 0 and sleeper.build_id not in coming:
                missing -= sleeper.bytes
                dismissed.append(sleeper.build_id)
        if missing > 0:
            return refused
        gone = sum(s.bytes for s in sleepers if s.build_id in dismissed)
        self._ledger.check(plan, replace(problem, free_bytes=problem.free_bytes + gone))
        return replace(plan, dismissed=tuple(dismissed), lost_bytes=plan.lost_bytes + gone)

    def _known(self, build_id: str) -> LoadedBuild:
        build = self._ledger.get(build_id)
        assert build is not None, build_id
        return build

    def _out_of_memory(self, wanted: LoadedBuild | Process) -> OutOfMemory:
        """The bare fact; who asked is told more by `residency.refusals`."""
        if isinstance(wanted, Process):
            name, need_bytes = "a process of its own", wanted.bytes
        else:
            name, need_bytes = wanted.build_id, wanted.need_bytes
        return OutOfMemory(
            build_id=name,
            need_bytes=need_bytes,
            budget_bytes=self._ledger.budget_bytes,
            free_bytes=max(0, self._ledger.free_bytes),
            can_fit=need_bytes <= self._ledger.budget_bytes,
            retry_after_s=None,
        )


def _consume(task: asyncio.Task[None]) -> None:
    """A failed load whose waiters all gave up is no unhandled error: it was counted and announced."""
    if not task.cancelled():
        task.exception()
