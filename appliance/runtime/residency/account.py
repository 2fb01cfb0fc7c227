"""Account of the memory that there is for variants. All plans for memory ask here, so that they count alike.

The room is the budget, less the bytes of processes beside builds: guards, the fork servers of guards, and planners.
Processes that have yet to begin count as well. Idle processes count as free, because they end where there is no other
room. Bytes that other builds hold do not count: the arbiter decides which build leaves for which. What the promises of
sessions need counts for pipelines, and what those of pipelines need for sessions.
"""

from collections.abc import Callable, Collection, Iterable

from appliance.domain.errors import processes_beside
from appliance.domain.states import VariantState
from appliance.domain.units import BYTES_PER_MB
from appliance.runtime.catalogue import Entry
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.residency.shares import Shares
from appliance.runtime.servable import Servable


class MemoryAccount:
    """Account of the memory for variants. Event-loop thread only."""

    def __init__(self, memory: MemoryManager, shares: Shares) -> None:
        self._memory = memory
        self._shares = shares
        self.needed_by_sessions: Callable[[], Collection[Servable]] = tuple
        """Return what the promises of sessions need together, each build once."""
        self.needed_by_pipelines: Callable[[], Collection[Servable]] = tuple
        """Return what pipelines that clients have joined need at the least."""

    @property
    def budget_bytes(self) -> int:
        """Return the configured memory budget in bytes; memory use of other programs does not lower the budget."""
        return self._shares.budget_bytes

    def room_for(self, builds: Collection[str]) -> int:
        """Return the bytes that these builds of pipelines may take together, beside what sessions need."""
        others = [one for one in self.needed_by_sessions() if one.build_id not in builds]
        room_bytes = self._memory.room_for({*builds, *(one.build_id for one in others)})
        return max(0, room_bytes - sum(one.resident_bytes for one in others))

    def room_of(self, tenant: str, builds: Collection[str] = ()) -> int:
        """Return the bytes of `room_for` for builds that a tenant has in use, at most what its ceiling leaves."""
        room, ceiling = self.room_for(builds), self._shares.ceiling_for(tenant, builds)
        if ceiling is None:
            return room
        others = [one for one in self.needed_by_sessions() if one.build_id not in builds]
        return max(0, min(room, ceiling - self._bytes_of(tenant, others)))

    def fits(self, servable: Servable) -> bool:
        """Return whether a variant could be in memory by itself, under the ceiling of its model's owner."""
        build_id = servable.build_id
        if self._shares.full(build_id, servable.resident_bytes, ()) is not None:
            return False
        return servable.need_bytes <= self._memory.room_for((build_id,))

    def fit_beside(self, wanted: Collection[Servable], promised: Iterable[Servable]) -> bool:
        """Return whether variants could be in memory beside those promised to sessions, and what pipelines need, each
        build once.

        The tenants of `wanted` stay under their ceilings, and what is guaranteed to other tenants is left to them.
        """
        asking = {self._shares.tenant_of(one.build_id) for one in wanted}
        builds = {one.build_id: one for one in (*self.needed_by_pipelines(), *promised, *wanted)}
        for tenant in asking:
            ceiling = self._shares.ceiling_for(tenant, builds)
            if ceiling is not None and self._bytes_of(tenant, builds.values()) > ceiling:
                return False
        need_bytes = bytes_together(builds.values()) + self._guaranteed_beside(asking, builds.values())
        return need_bytes <= self._memory.room_for(builds)

    def told_beside(self, wanted: Servable, promised: Iterable[Servable]) -> str:
        """Return a text on why a variant finds no room beside those that are promised.

        The text is for a person, and follows the name of what finds no room.
        """
        builds = {one.build_id: one for one in (*self.needed_by_pipelines(), *promised)}
        room_bytes = self._memory.room_for({*builds, wanted.build_id})
        guaranteed_bytes = self._guaranteed_beside({self._shares.tenant_of(wanted.build_id)}, builds.values())
        promised_bytes = sum(one.resident_bytes for id, one in builds.items() if id != wanted.build_id)
        held = [f"{_megabytes(promised_bytes)} are promised to others"] if promised_bytes else []
        held += [f"{_megabytes(guaranteed_bytes)} are guaranteed to other tenants"] if guaranteed_bytes else []
        return ", and ".join(
            [f": {wanted.name} needs {_megabytes(wanted.need_bytes)} of {_megabytes(room_bytes)} for models", *held]
        )

    def _bytes_of(self, tenant: str, builds: Iterable[Servable]) -> int:
        """Return the bytes of builds that count for a tenant."""
        return sum(one.resident_bytes for one in builds if self._shares.tenant_of(one.build_id) == tenant)

    def _guaranteed_beside(self, asking: Collection[str], builds: Collection[Servable]) -> int:
        """Return the bytes guaranteed to tenants other than those asking, beyond what their builds take."""
        return sum(
            max(0, share.guarantee_bytes - self._shares.in_guards(share.name) - self._bytes_of(share.name, builds))
            for share in self._shares.all()
            if share.name not in asking
        )

    def overheads_with(self, build_id: str) -> dict[str, int]:
        """Return by sort the bytes of processes beside variants, with the processes that have to begin for a build."""
        found = dict(self._memory.overheads())
        for of, count_bytes in self._shares.processes_to_come(build_id).items():
            found[of] = found.get(of, 0) + count_bytes
        return found

    def held_beside(self) -> str:
        """Return a text on what processes beside variants take of the budget; empty where they take nothing.

        The text is for a person, and follows the name of what finds no room.
        """
        held = [f"{one['why']} {one['mb']:.3g} MB" for one in processes_beside(self._memory.overheads())]
        return f", of {self._memory.budget_bytes / BYTES_PER_MB:.3g} MB beside {', '.join(held)}" if held else ""

    def unverified_that_fit(self, entry: Entry) -> list[str]:
        """Return the variants, most accurate first, that an application does not choose as they are unverified, and
        that would fit.
        """
        left_out = [
            s for s in entry.servables.values() if s.variant.state is VariantState.READY and not s.variant.is_off
        ]
        left_out = [s for s in left_out if not entry.application.may_choose(s.variant) and self.can_ever_fit(s)]
        return [s.name for s in sorted(left_out, key=lambda s: (-s.accuracy, s.name))]

    def can_ever_fit(self, servable: Servable) -> bool:
        """Return whether a variant would fit in the budget as it is set, with nothing of other builds in memory."""
        return servable.need_bytes + self._shares.guard_bytes_of(servable.build_id) <= self._shares.budget_bytes


def bytes_together(servables: Iterable[Servable]) -> int:
    """Return the bytes that variants need which come into memory one after the other, in the order that needs least,
    and stay there.
    """
    need = taken = 0
    for one in sorted(servables, key=lambda one: one.resident_bytes - one.need_bytes):
        need = max(need, taken + one.need_bytes)
        taken += one.resident_bytes
    return need


def _megabytes(count_bytes: int) -> str:
    return f"{count_bytes / BYTES_PER_MB:.3g} MB"
