"""Enacts what the residency loop has decided, through the memory manager: one change of a group at a time, loads in the
background, and nothing of a build whose load has failed a moment ago.
"""

import asyncio
from collections.abc import Callable, Sequence

from appliance.clock import others_first
from appliance.domain.errors import ApplianceError
from appliance.policies.residency.base import Change, ResidencyPlan
from appliance.policies.residency.steps import PART
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import Replacement
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.groups import VariantGroup, VariantGroups
from appliance.runtime.residency.reloads import Reloads
from appliance.runtime.servable import Servable


class PlanEnactor:
    """Event-loop thread only."""

    def __init__(
        self,
        *,
        groups: VariantGroups,
        arbiter: EvictionArbiter,
        memory: MemoryManager,
        reloads: Reloads,
        on_brought: Callable[[], None],
    ) -> None:
        """`on_brought`: called when a variant that was to come is there."""
        self._groups = groups
        self._arbiter = arbiter
        self._memory = memory
        self._reloads = reloads
        self._on_brought = on_brought
        self._busy: dict[str, asyncio.Task[None]] = {}
        """Group → the task that changes its variant."""
        self._pauses: dict[str, int] = {}
        """Build whose load has failed → until when it is not brought."""

    @property
    def loads_under_way(self) -> int:
        """Variants that are being brought."""
        return len(self._busy)

    def is_changing(self, name: str) -> bool:
        """Whether a group's variant is being changed."""
        return name in self._busy

    def is_paused(self, build_id: str) -> bool:
        """Whether a build is not brought now, because its load has failed."""
        return build_id in self._pauses

    def cancel(self) -> None:
        """Bring no more of what is under way."""
        for task in self._busy.values():
            task.cancel()

    # -- pauses --------------------------------------------------------------------------------------------------------

    def pause(self, build_id: str, until_ns: int) -> None:
        """Plan and bring nothing of a build until then."""
        self._pauses[build_id] = until_ns
        self._arbiter.go_without(build_id)

    def end_pause(self, build_id: str) -> None:
        """It may be brought again."""
        if self._pauses.pop(build_id, None) is not None:
            self._arbiter.go_with(build_id)

    def end_pauses(self, now_ns: int) -> bool:
        """Those that are over; whether there were any."""
        over = [build_id for build_id, until_ns in self._pauses.items() if until_ns <= now_ns]
        for build_id in over:
            self.end_pause(build_id)
        return bool(over)

    def next_end_ns(self) -> int | None:
        """When the first of the pauses is over."""
        return min(self._pauses.values(), default=None)

    # -- changes -------------------------------------------------------------------------------------------------------

    async def enact(self, plan: ResidencyPlan) -> bool:
        """Enact what needs no wait, and what others have not overtaken while it was planned; in parts, as it was.

        The rest is planned anew when a load has come: what gives way is replaced beside what it has, so room comes
        later. Whether nothing was overtaken.
        """
        is_making_room, is_whole = False, True
        for first in range(0, len(plan.changes), PART):
            if first:
                await others_first()
            planned = plan.changes[first : first + PART]
            changes = [change for change in planned if self._is_possible(change)]
            is_whole = is_whole and len(changes) == len(planned)
            is_making_room = self._enact_part(changes, is_making_room)
        return is_whole

    def _enact_part(self, changes: Sequence[Change], is_making_room: bool) -> bool:
        """Whether anything that gives way makes room now, or did before."""
        memory = self._memory
        ordered_bytes = 0  # by loads that begin in their next turn
        for change in changes:
            group = self._groups.of_application(change.application)
            if group is None or self.is_changing(group.name) or self._is_coming(group):
                continue
            if change.after is None:
                memory.release(group.servable(change.before or "").build_id)
            elif memory.is_resident(group.servable(change.after).build_id):
                self._take_what_is_there(group, change)
            elif _is_smaller(group, change):
                self._replace(group, change)
                is_making_room = True
            elif (need_bytes := self._need_bytes(group.servable(change.after))) <= self._room_bytes() - ordered_bytes:
                ordered_bytes += need_bytes if self.bring(group, change.after) else 0
            elif self._may_leave(group, change) and not (is_making_room or self._reloads.is_thrashing(group.name)):
                self._replace(group, change, ordered_bytes)
        return is_making_room

    def _is_possible(self, change: Change) -> bool:
        """Whether the application still has what it is to change from, and can have the other."""
        group = self._groups.of_application(change.application)
        if group is None or {change.before, change.after} - {None, *(option.name for option in group.options)}:
            return False
        there = self._arbiter.own(group, self._memory.awake())
        before = None if change.before is None else group.servable(change.before)
        return there is before

    def has_room(self, servable: Servable) -> bool:
        """Whether it could come now, and nothing but neighbours would leave for it."""
        return self._need_bytes(servable) <= self._room_bytes()

    def _room_bytes(self) -> int:
        """What is free, and what neighbours let go for whoever comes."""
        memory = self._memory
        return memory.free_bytes + sum(
            build.freed_bytes for build in self._arbiter.neighbours(memory.residents(), memory.asleep())
        )

    def _take_what_is_there(self, group: VariantGroup, change: Change) -> None:
        """The variant that it is to have is in memory already, as a neighbour of another one or for planners."""
        self._arbiter.adopt(group.servable(change.after or "").build_id)
        if change.before is not None:
            before = group.servable(change.before).build_id
            if before not in self._arbiter.beside.in_use(group.name):
                self._memory.release(before)

    def _may_leave(self, group: VariantGroup, change: Change) -> bool:
        """Whether what it has may leave before the other one is there."""
        if change.before is None:
            return False
        before = group.servable(change.before).build_id
        return before not in group.stand_ins and not self._arbiter.beside.must_stay(group.name, before)

    def _need_bytes(self, servable: Servable) -> int:
        return self._memory.need_bytes(servable.build_id, servable.need_bytes)

    def _is_coming(self, group: VariantGroup) -> bool:
        """A variant of a group that is absent is being loaded, for a request, so it has no memory yet that the policy
        could see; when it has come there is another look.
        """
        builds = group.builds
        return any(map(self._memory.is_loading, builds)) and not any(map(self._memory.is_resident, builds))

    def _replace(self, group: VariantGroup, change: Change, ordered_bytes: int = 0) -> None:
        assert change.before is not None and change.after is not None
        after = group.servable(change.after)
        self._memory.replace(
            Replacement(group.servable(change.before).build_id, after.build_id, after.resident_bytes, after.peak_bytes),
            ordered_bytes,
        )

    def bring(self, group: VariantGroup, option: str) -> bool:
        """Load a variant in the background; when it is there, the other variants of its group go. Whether it begins."""
        servable = group.servable(option)
        is_paused = self.is_paused(servable.build_id)
        if self.is_changing(group.name) or is_paused or self._reloads.is_thrashing(group.name):
            return False
        task = asyncio.create_task(self._brought(group, servable), name=f"bring {group.name}")
        self._busy[group.name] = task
        self._arbiter.begin_change(group.name)
        return True

    async def _brought(self, group: VariantGroup, servable: Servable) -> None:
        try:
            build = await self._memory.pin(
                servable.build_id, servable.resident_bytes, servable.peak_bytes, None, is_urgent=False
            )
        except ApplianceError:  # counted and announced by the memory manager; the next window tries again
            self._reloads.note(group.name)  # or it would be tried for ever
            return
        # the task's last wait is over: its entry goes here and nowhere else, or a late end would drop that of the next
        # task
        finally:
            del self._busy[group.name]
            self._arbiter.end_change(group.name)
        self._arbiter.adopt(servable.build_id)
        kept = {servable.build_id, *(one.build_id for one in servable.overflow)}
        kept |= {*self._arbiter.beside.in_use(group.name), *self._arbiter.beside.neighbours}
        for other in group.builds - kept:
            self._memory.release(other)
        self._memory.unpin(build)
        self._on_brought()


def _is_smaller(group: VariantGroup, change: Change) -> bool:
    names = [o.name for o in group.options]
    return (
        change.before is not None
        and change.after is not None
        and names.index(change.after) > names.index(change.before)
    )
