"""The one owner of residency: which builds are in memory, who pins them, and that they never exceed the budget.

Runs on the event-loop thread without locks: a step without `await` is a transaction. Ledger of a domain: `committed` counts what has been promised
(resident builds and loads, not what is leaving) and never exceeds the budget; `used` counts what is really there: promises whose load is still `waiting`
for room are left out, what is still `leaving` is in. No load starts before `used` has room for its peak, so the budget holds at every instant, swaps
included (EM-03). Only a size that is measured anew can push the ledger over; then builds leave until it fits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import DeadlineExceeded, OutOfMemory, ShuttingDown
from appliance.domain.states import ResidencyState
from appliance.policies.room.base import Replacement, ResidentBuild, RoomPlan, RoomPolicy, RoomProblem
from appliance.runtime.loader import Loader
from appliance.runtime.ports import DecisionSink, EventSink
from appliance.runtime.residency import Residency

_S = ResidencyState


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
        self._budget = budget_bytes
        self._wait_ns_max = int(wait_ms_max * NS_PER_MS)
        self._events = events
        self._decisions = decisions
        self._users_of = users_of
        self._builds: dict[str, Residency] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: list[asyncio.Future[None]] = []
        self._committed = 0
        self._leaving = 0
        self._waiting = 0
        self._closed = False
        self.loads = self.load_failures = self.evictions = self.replacements = 0

    # -- the inference path --------------------------------------------------------------------------------------------

    def is_resident(self, build_id: str) -> bool:
        """Whether a request would be warm on it now."""
        build = self._builds.get(build_id)
        return build is not None and build.state is _S.RESIDENT

    def is_loading(self, build_id: str) -> bool:
        """Whether a load of it is under way, that a request can join."""
        build = self._builds.get(build_id)
        return build is not None and build.state is _S.LOADING

    def pin_resident(self, build_id: str) -> Residency | None:
        """Pin a resident build; None when it is not resident. The fast path: no await, no allocation."""
        build = self._builds.get(build_id)
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
            build = self._entry(build_id, resident_bytes, peak_bytes)
            if build.state is _S.RESIDENT:
                build.pins += 1
                build.last_used_ns = self._clock.now_ns()
                return build
            if build.state in (_S.DRAINING, _S.UNLOADING):
                await self._within(build.gone.wait(), deadline_ns, start_ns)
                continue
            build.pins += 1  # before waiting: a build that somebody waits for is no victim the moment it arrives
            loading = build.loading
            if loading is None:
                build.is_urgent = is_urgent
                loading = self._start_load(build)
            elif is_urgent and not build.is_urgent:  # what was brought ahead of time is now waited for
                build.is_urgent = True
                self._announce_change()
            try:
                await self._within(asyncio.shield(loading), deadline_ns, start_ns)
            finally:
                self.unpin(build)

    def unpin(self, build: Residency) -> None:
        """Release one pin; a draining build leaves with its last one."""
        build.pins -= 1
        assert build.pins >= 0, build.build_id
        if build.pins == 0:
            if build.state is _S.DRAINING:
                self._start_unload(build)
            if self._committed > self._budget:
                self._shrink()
            if self._changed:
                self._announce_change()

    # -- management ----------------------------------------------------------------------------------------------------

    def release(self, build_id: str) -> None:
        """Let a resident build go, with its last pin at the latest: its application has another one now."""
        build = self._builds.get(build_id)
        if build is None or build.state is not _S.RESIDENT:
            return
        self._events.emit("variant released", **self._facts(build))
        self._let_go(build)

    async def unload(self, build_id: str) -> None:
        """Make a build absent: no new pins, wait for the running ones, give its memory back. No-op when it is not in memory."""
        build = self._builds.get(build_id)
        if build is None:
            return
        if build.loading is not None:
            await asyncio.wait([build.loading])
        if build.state is _S.RESIDENT:
            self._let_go(build)
        if build.state in (_S.DRAINING, _S.UNLOADING):
            await build.gone.wait()
        if build.state in (_S.ABSENT, _S.FAILED) and not build.pins and self._builds.get(build_id) is build:
            del self._builds[build_id]  # models come and go: the list of their builds must not grow for ever

    async def close(self) -> None:
        """Unload everything, pinned or not, and load nothing more; for the end of the process."""
        self._closed = True
        self._announce_change()  # loads that wait for room give up; those that a thread works on are seen through
        await self._tasks_done()
        for build in self._builds.values():
            if build.state in (_S.RESIDENT, _S.DRAINING):
                self._start_unload(build)
        await self._tasks_done()

    def resident_set(self) -> list[str]:
        """Resident builds, most recently used first; what a restart brings back."""
        builds = [b for b in self._builds.values() if b.state is _S.RESIDENT]
        return [b.build_id for b in sorted(builds, key=lambda b: (-b.last_used_ns, b.build_id))]

    def known_builds(self) -> list[str]:
        """Builds that there is a record of, in memory or not, by id."""
        return sorted(self._builds)

    def update_figures(self, build_id: str, resident_bytes: int, peak_bytes: int) -> None:
        """Take a newly measured size over; a resident build is recounted at once."""
        build = self._builds.get(build_id)
        if build is None:
            return
        build.resident_bytes, build.peak_bytes = resident_bytes, peak_bytes
        if build.state is _S.RESIDENT:
            self._committed += resident_bytes - build.bytes
            build.bytes = resident_bytes
            self._shrink()
            self._announce_change()

    def resize(self, budget_bytes: int) -> None:
        """Take a new budget over: at a smaller one builds leave until it holds, those in use when they are done."""
        self._budget = budget_bytes
        self._shrink()
        self._announce_change()

    def replace(self, replacement: Replacement) -> bool:
        """Bring a smaller build in the place of a resident one, beside it first if there is room. False when that is not possible now."""
        victim, build = self._builds.get(replacement.victim), self._builds.get(replacement.build_id)
        if victim is None or victim.state is not _S.RESIDENT or victim.build_id in self._followed():
            return False
        if self._closed or (build is not None and build.state not in (_S.ABSENT, _S.FAILED)):
            return False
        need = replacement.need_bytes
        if self.used_bytes + self._waiting + need <= self._budget:
            self._promise(replacement).successor_of = victim.build_id
        elif victim.pins or self._committed - victim.bytes + need > self._budget:
            return False
        else:
            self._evict(victim, replacement.build_id)
            self._promise(replacement)
        return True

    def residency(self, build_id: str) -> Residency | None:
        """The record of a build that was ever asked for."""
        return self._builds.get(build_id)

    @property
    def budget_bytes(self) -> int:
        return self._budget

    @property
    def used_bytes(self) -> int:
        """What is occupied now: loaded, being loaded, and leaving."""
        return self._committed - self._waiting + self._leaving

    def snapshot(self) -> dict[str, Any]:
        """For `/v1/memory`: the domain, its builds and the counters."""
        now_ns = self._clock.now_ns()
        builds = [
            b.row(now_ns, self._users_of(b.build_id))
            for b in sorted(self._builds.values(), key=lambda b: b.build_id)
            if b.state is not _S.ABSENT
        ]
        return {
            "budget_bytes": self._budget,
            "used_bytes": self.used_bytes,
            "loads": self.loads,
            "load_failures": self.load_failures,
            "evictions": self.evictions,
            "replacements": self.replacements,
            "builds": builds,
        }

    # -- loading -------------------------------------------------------------------------------------------------------

    def _entry(self, build_id: str, resident_bytes: int, peak_bytes: int) -> Residency:
        build = self._builds.get(build_id)
        if build is None:
            build = self._builds[build_id] = Residency(build_id, resident_bytes, peak_bytes)
        elif build.state in (_S.ABSENT, _S.FAILED):
            build.resident_bytes, build.peak_bytes = resident_bytes, peak_bytes
        return build

    def _start_load(self, build: Residency, *, is_reserved: bool = False) -> asyncio.Future[None]:
        build.to(_S.LOADING)
        task = asyncio.create_task(self._load(build, is_reserved), name=f"load {build.build_id}")
        task.add_done_callback(_consume)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        build.loading = task
        return task

    async def _load(self, build: Residency, is_reserved: bool) -> None:
        start_ns = self._clock.now_ns()
        try:
            if is_reserved:
                await self._room_is_free(build, None)
            else:
                await self._reserve(build)
            load_start_ns = self._clock.now_ns()
            build.handle = await self._loader.load(build.build_id)
        except BaseException as error:
            self._load_failed(build, error)
            raise
        build.load_ns = self._clock.now_ns() - load_start_ns
        self._committed += build.resident_bytes - build.bytes
        build.bytes = build.resident_bytes
        build.to(_S.RESIDENT)
        build.last_used_ns = self._clock.now_ns()
        build.loading = None
        build.loads += 1
        self.loads += 1
        if build.successor_of is not None:
            self.release(build.successor_of)
            build.successor_of = None
        self._shrink()
        self._announce_change()
        waited_ms = (load_start_ns - start_ns) / NS_PER_MS
        self._events.emit(
            "variant loaded", **self._facts(build), load_ms=build.load_ns / NS_PER_MS, waited_ms=waited_ms
        )

    def _load_failed(self, build: Residency, error: BaseException) -> None:
        self._committed -= build.bytes
        build.bytes = 0
        build.to(_S.FAILED)
        build.loading = None
        build.successor_of = None
        self.load_failures += 1
        self._announce_change()
        self._events.emit("variant load failed", **self._facts(build), reason=str(error) or type(error).__name__)

    async def _reserve(self, build: Residency) -> None:
        """Commit the peak of `build`, evicting what the policy names; returns when the bytes are really free.

        Raises: OutOfMemory when waiting cannot help, took too long, or nobody waits any more; ShuttingDown.
        """
        limit_ns = self._clock.now_ns() + self._wait_ns_max
        while not self._commit(build):
            failures = self.load_failures
            await self._change_before(limit_ns, build)
            if not build.pins:
                raise self._out_of_memory(build)
            if not build.is_urgent and self.load_failures > failures:
                raise self._out_of_memory(
                    build
                )  # perhaps its replacements: to try them again at once would fail for ever
        self._waiting += build.bytes
        await self._room_is_free(build, limit_ns)

    async def _room_is_free(self, build: Residency, limit_ns: int | None) -> None:
        """Return when the bytes that were promised, and count as waiting, are really free; they count as used then."""
        try:
            while self.used_bytes + build.bytes > self._budget:
                if limit_ns is None:
                    await self._change()
                else:
                    await self._change_before(limit_ns, build)
        finally:
            self._waiting -= build.bytes

    def _commit(self, build: Residency) -> bool:
        """One transaction: plan, check, mark the victims, count the newcomer and the replacements. False when only waiting can help."""
        if self._closed:
            raise ShuttingDown()
        need = build.need_bytes
        if need > self._budget:
            raise self._out_of_memory(build)
        free = self._budget - self._committed
        if need > free:
            plan = self._plan(build.build_id, need, free, is_urgent=build.is_urgent)
            if not plan.sufficient:
                if not build.is_urgent or not any(
                    b.pins or b.state is _S.LOADING for b in self._builds.values() if b is not build and b.bytes
                ):
                    raise self._out_of_memory(build)
                return False
            if not build.is_urgent and self._replace_first(plan):
                return False
            for victim in plan.victims:
                self._evict(self._builds[victim], build.build_id)
            for replacement in plan.replacements:
                self._promise(replacement)
        build.bytes = need
        self._committed += need
        return True

    def _replace_first(self, plan: RoomPlan) -> bool:
        """Where nobody is in a hurry: load the replacements beside what they replace, if there is room, so that no application goes cold.

        The newcomer is planned for anew when they are there. False when there is nothing to do before.
        """
        if not plan.replacements:
            return False
        together = sum(r.need_bytes for r in plan.replacements)
        if self.used_bytes + self._waiting + together > self._budget:
            return False
        for replacement in plan.replacements:
            self._promise(replacement).successor_of = replacement.victim
        return True

    def _promise(self, replacement: Replacement) -> Residency:
        """Commit a replacement's bytes and start its load, which waits until they are free."""
        build = self._entry(replacement.build_id, replacement.resident_bytes, replacement.peak_bytes)
        build.is_urgent = False
        build.bytes = build.need_bytes
        self._committed += build.bytes
        self._waiting += build.bytes
        self.replacements += 1
        self._start_load(build, is_reserved=True)
        return build

    def _shrink(self) -> None:
        """Where a newly measured size has pushed the ledger over the budget: evict. If all is in use, the next free pin tries again."""
        free = self._budget - self._committed
        if free < 0:
            for victim in self._plan("", 0, free).victims:
                self._evict(self._builds[victim], "")

    def _plan(self, newcomer: str, need: int, free: int, *, is_urgent: bool = True) -> RoomPlan:
        leaving = frozenset(b.build_id for b in self._builds.values() if b.state in (_S.UNLOADING, _S.DRAINING))
        problem = RoomProblem(self._clock.now_ns(), newcomer, need, free, self.residents(), leaving, is_urgent)
        plan = self._policy.plan(problem)
        self._check(plan, problem)
        self._decisions.record("eviction", {"input": problem, "plan": plan})
        return plan

    def residents(self) -> tuple[ResidentBuild, ...]:
        """What is in memory or on its way there, by id; what is being loaded counts as pinned."""
        followed = self._followed()
        return tuple(
            ResidentBuild(
                b.build_id,
                b.bytes,
                b.last_used_ns,
                b.pins > 0 or b.state is _S.LOADING or b.build_id in followed,
                self._users_of(b.build_id),
            )
            for b in sorted(self._builds.values(), key=lambda b: b.build_id)
            if b.state is _S.RESIDENT or (b.state is _S.LOADING and b.bytes)
        )

    def _followed(self) -> set[str]:
        """Builds that leave as soon as their replacement has come."""
        return {b.successor_of for b in self._builds.values() if b.successor_of is not None}

    def _check(self, plan: RoomPlan, problem: RoomProblem) -> None:
        victims = [self._builds[v] for v in plan.victims]
        assert len({v.build_id for v in victims}) == len(victims), "a victim twice"
        assert all(v.state is _S.RESIDENT and v.pins == 0 for v in victims), "a victim is in use"
        assert {r.victim for r in plan.replacements} <= set(plan.victims), "a replacement without a victim"
        if plan.sufficient:
            back = sum(r.need_bytes for r in plan.replacements)
            freed = sum(v.bytes for v in victims)
            assert problem.free_bytes + freed - back >= problem.need_bytes, "the plan frees too little"
        for replacement in plan.replacements:
            there = self._builds.get(replacement.build_id)
            assert there is None or there.state in (_S.ABSENT, _S.FAILED), "a replacement that is there already"

    # -- unloading -----------------------------------------------------------------------------------------------------

    def _evict(self, build: Residency, newcomer: str) -> None:
        self.evictions += 1
        self._events.emit("variant evicted", **self._facts(build), newcomer=newcomer)
        self._start_unload(build)

    def _let_go(self, build: Residency) -> None:
        """Unload a resident build, with its last pin where it has any."""
        if build.pins:
            build.to(_S.DRAINING)
            build.gone.clear()
        else:
            self._start_unload(build)

    def _start_unload(self, build: Residency) -> None:
        build.to(_S.UNLOADING)
        build.gone.clear()
        self._committed -= build.bytes
        self._leaving += build.bytes
        task = asyncio.create_task(self._unload(build), name=f"unload {build.build_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unload(self, build: Residency) -> None:
        handle, build.handle = build.handle, None
        failure: dict[str, str] = {}
        try:
            await self._loader.unload(handle)
        except Exception as error:  # the processor has lost it either way
            failure = {"reason": str(error) or type(error).__name__}
        finally:
            facts = self._facts(build)
            self._leaving -= build.bytes
            build.bytes = 0
            build.to(_S.ABSENT)
            build.gone.set()
            self._announce_change()
            self._events.emit("variant unloaded", **{**facts, "used_bytes": self.used_bytes}, **failure)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _announce_change(self) -> None:
        waiting, self._changed = self._changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _change(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(future)
        return future

    async def _change_before(self, limit_ns: int, build: Residency) -> None:
        try:
            async with asyncio.timeout(self._seconds_to(limit_ns)):
                await self._change()
        except TimeoutError:
            raise self._out_of_memory(build) from None

    async def _within(self, awaitable: Awaitable[object], deadline_ns: int | None, start_ns: int) -> None:
        try:
            async with asyncio.timeout(None if deadline_ns is None else self._seconds_to(deadline_ns)):
                await awaitable
        except TimeoutError:
            raise DeadlineExceeded(waited_ms=(self._clock.now_ns() - start_ns) / NS_PER_MS) from None

    async def _tasks_done(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _seconds_to(self, deadline_ns: int) -> float:
        return max((deadline_ns - self._clock.now_ns()) / NS_PER_S, 0.0)

    def _out_of_memory(self, build: Residency) -> OutOfMemory:
        return OutOfMemory(build_id=build.build_id, need_bytes=build.need_bytes, budget_bytes=self._budget)

    def _facts(self, build: Residency) -> Mapping[str, Any]:
        return {
            "build": build.build_id,
            "bytes": build.bytes,
            "used_bytes": self.used_bytes,
            "applications": list(self._users_of(build.build_id)),
        }


def _consume(task: asyncio.Task[None]) -> None:
    """A failed load whose waiters all gave up is no unhandled error: it was counted and announced."""
    if not task.cancelled():
        task.exception()
