"""Brings variants next to those that sessions use into memory that nobody else wants, one at a time, and has them leave
for whoever needs it (Jellyfish §IV-D, §VI-G; JF-19).

Planners wish (`beside.py`), `policies/residency/neighbours.py` says which comes next, memory loads it as anything that
nobody waits for. A neighbour never takes the place of anything but neighbours that are farther off. Once a request has
room made for one that is on its way, that is no neighbour any more.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import ApplianceError
from appliance.domain.states import ResidencyState
from appliance.policies.residency.neighbours import Neighbour, NeighbourPlan, NeighbourProblem, next_neighbour
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import ResidentBuild, RoomProblem
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.groups import VariantGroup, VariantGroups
from appliance.runtime.servable import Servable

_S = ResidencyState
_AWAY = (_S.ABSENT, _S.FAILED, _S.ASLEEP)
_REST = 3
"""After one has come there is a rest of so many times what that took: as variants in use go to and fro so do
neighbours, and their loads shall take no more than a part of a core.
"""
_REST_NS_MAX = 10 * NS_PER_S
_PAUSE_NS = NS_PER_S
"""After one that came to nothing."""
_BUSY_NS = 50 * NS_PER_MS
"""While others are being loaded, and where none fits, it is looked again so often at most: the loop of a busy box has
many turns.
"""
_KEPT_NS = 30 * NS_PER_S
"""So long neighbours stay where there are no sessions any more: others often follow."""
_FAR = 10**6
"""Distance of a neighbour that nobody wishes for any more."""

_Row = tuple[Neighbour, VariantGroup, Servable]
"""A variant as the policy sees it, by its build, and what it is."""


class Neighbours:
    """Event-loop thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        groups: VariantGroups,
        arbiter: EvictionArbiter,
        memory: MemoryManager,
        share: float,
        is_busy: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        """`share`: of what builds may take, what neighbours may together. `is_busy`: whether anything is being brought
        that the loop has decided on. `on_end`: called when one is there, or came to nothing.
        """
        self._clock = clock
        self._groups = groups
        self._arbiter = arbiter
        self._memory = memory
        self._share = share
        self._is_busy = is_busy
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._rests_until_ns = 0
        self._unwished_ns: dict[str, int] = {}
        """Neighbour of what no session uses any more → since when that is known."""
        self.next_ns: int | None = None
        """When there may be something to do though nothing else has changed."""
        memory.on_short.append(self.give_way)

    def cancel(self) -> None:
        """Bring no more of what is under way."""
        if self._task is not None:
            self._task.cancel()

    # -- they come -----------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Bring the next one, if there is one; those of sessions that are over leave after a while."""
        now_ns = self._clock.now_ns()
        self.next_ns = self._drop_unwished(now_ns)
        if self._task is not None or not self._arbiter.beside.groups():
            return
        if now_ns < self._rests_until_ns:
            self._look_again(self._rests_until_ns)
        elif self._is_busy() or self._memory.is_busy:
            self._look_again(now_ns + _BUSY_NS)
        else:
            self._bring_next(list(self._rows(now_ns)))

    def _look_again(self, at_ns: int) -> None:
        self.next_ns = at_ns if self.next_ns is None else min(self.next_ns, at_ns)

    def _bring_next(self, rows: Sequence[_Row]) -> None:
        shown = tuple(row[0] for row in rows)
        problem = NeighbourProblem(self._memory.free_bytes, self._reserve_bytes(shown), shown)
        plan = next_neighbour(problem)
        if plan.bring is None:
            self._rests_until_ns = self._clock.now_ns() + _BUSY_NS
            return
        _, group, servable = next(row for row in rows if row[0].name == plan.bring)
        self._arbiter.brings(group, *_as_told(rows, group, problem, plan))
        for build_id in plan.leave:
            self._memory.release(build_id)
        is_neighbour = plan.bring in self._arbiter.beside.near(group.name)
        self._arbiter.come_beside(servable.build_id, is_neighbour=is_neighbour)
        self._task = asyncio.create_task(self._brought(servable), name=f"neighbour {servable.build_id}")

    async def _brought(self, servable: Servable) -> None:
        rest_ns = _PAUSE_NS
        try:
            build = await self._memory.pin(
                servable.build_id, servable.resident_bytes, servable.peak_bytes, None, is_urgent=False, asks=False
            )
            rest_ns = _REST * (build.wake_ns if build.is_woken else build.load_ns)
            self._memory.unpin(build)
        except ApplianceError:  # counted and announced by the memory manager
            self._arbiter.left(servable.build_id)
        finally:
            self._task = None
            self._arbiter.end_coming()
            self._rests_until_ns = self._clock.now_ns() + min(rest_ns, _REST_NS_MAX)
        self._on_end()

    # -- they leave ----------------------------------------------------------------------------------------------------

    def give_way(self, missing_bytes: int) -> None:
        """Let them go, the farthest first, until so much is free."""
        residents = self._memory.residents()
        there = self._arbiter.neighbours(residents, self._memory.asleep())
        if not there:
            return
        problem = RoomProblem(self._clock.now_ns(), "", missing_bytes, self._memory.free_bytes, residents)
        left: list[ResidentBuild] = []
        for build in sorted(there, key=self._distance, reverse=True):
            if missing_bytes <= 0:
                break
            missing_bytes -= build.freed_bytes
            left.append(build)
            self._memory.release(build.build_id)
        self._arbiter.gave_way(problem, left)

    def _drop_unwished(self, now_ns: int) -> int | None:
        """Those that no session has been near to for a while go; when the next of them may."""
        beside = self._arbiter.beside
        unwished = [one for one in beside.neighbours if not self._is_wished(one)]
        self._unwished_ns = {build_id: self._unwished_ns.get(build_id, now_ns) for build_id in unwished}
        for build_id, since_ns in sorted(self._unwished_ns.items()):
            if now_ns - since_ns >= _KEPT_NS:
                self._memory.release(build_id)
                beside.discard(build_id)
        left = [since_ns for since_ns in self._unwished_ns.values() if now_ns - since_ns < _KEPT_NS]
        return min(left) + _KEPT_NS if left else None

    def _is_wished(self, build_id: str) -> bool:
        group = self._groups.of_build(build_id)
        return group is not None and bool(self._arbiter.beside.in_use(group.name))

    # -- what the policy is told ---------------------------------------------------------------------------------------

    def _rows(self, now_ns: int) -> Iterator[_Row]:
        """Those that are there and may leave, and those that may come; by group, and in a group by build."""
        there = {
            build.build_id: build for build in self._arbiter.neighbours(self._memory.residents(), self._memory.asleep())
        }
        for name in sorted(self._arbiter.beside.groups()):
            group = self._groups.of_application(name)
            if group is None:
                continue
            servables = {servable.build_id: servable for servable in group.variants.values()}
            distances = {**self._arbiter.beside.near(name), **dict.fromkeys(self._arbiter.beside.in_use(name), 0)}
            for build_id, servable in sorted(servables.items()):
                if build_id in there:
                    build = there.pop(build_id)
                    distance = distances.get(build_id, _FAR)
                    yield Neighbour(build_id, distance, build.freed_bytes, 0, is_there=True), group, servable
                elif build_id in distances and self._may_come(build_id, now_ns):
                    need_bytes = self._memory.need_bytes(build_id, servable.need_bytes)
                    yield Neighbour(build_id, distances[build_id], servable.resident_bytes, need_bytes), group, servable

    def _may_come(self, build_id: str, now_ns: int) -> bool:
        """Not what has failed of late, nor where its tenant may not take all there is: it may want that for itself."""
        build = self._memory.build(build_id)
        if self._memory.is_bounded(build_id):
            return False
        return build is None or (build.state in _AWAY and build.again_ns <= now_ns)

    def _reserve_bytes(self, shown: Sequence[Neighbour]) -> int:
        """Whoever has nothing in memory finds room for its smallest variant at once, and so does the largest run; what
        is beyond the share of neighbours is not theirs either.
        """
        left_bytes = int(self._share * self._memory.builds_bytes) - sum(one.bytes for one in shown if one.is_there)
        runs = self._memory.runs
        counted = (s.counted_bytes_max for group in self._groups.all() for s in group.servables)
        for_runs = max(counted, default=0) + runs.running_bytes - runs.spare_bytes
        return max(self._arbiter.absent_floor_bytes(), for_runs, self._memory.free_bytes - left_bytes, 0)

    def _distance(self, build: ResidentBuild) -> tuple[int, str]:
        group = self._groups.of_build(build.build_id)
        near = {} if group is None else self._arbiter.beside.near(group.name)
        return near.get(build.build_id, _FAR), build.build_id


def _as_told(
    rows: Sequence[_Row], asker: VariantGroup, problem: NeighbourProblem, plan: NeighbourPlan
) -> tuple[NeighbourProblem, NeighbourPlan]:
    """Problem and plan with the names of the asker's variants, for the record; others' have none."""
    names = {
        shown.name: servable.name if group.name == asker.name else f"-/{place}"
        for place, (shown, group, servable) in enumerate(rows)
    }
    told = tuple(replace(shown, name=names[shown.name]) for shown in problem.neighbours)
    return (
        replace(problem, neighbours=told),
        replace(plan, bring=names[plan.bring or ""], leave=tuple(names[one] for one in plan.leave)),
    )
