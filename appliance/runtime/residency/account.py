"""Account of the memory that there is for variants. All plans for memory ask here, so that they count alike.

The room is the budget, less the bytes of processes beside builds: guards, the fork servers of guards, and planners.
Processes that have yet to begin count as well. Idle processes count as free, because they end where there is no other
room. Bytes that other builds hold do not count: the arbiter decides which build leaves for which.
"""

from collections.abc import Collection

from appliance.domain.errors import processes_beside
from appliance.domain.overhead import FORK_SERVERS
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

    @property
    def budget_bytes(self) -> int:
        """What models may take as it is set, whatever other programs take now."""
        return self._shares.budget_bytes

    def room_for(self, builds: Collection[str]) -> int:
        """Return the bytes that these builds may take together, if all other builds were gone."""
        return max(0, self._memory.room_for(builds))

    def room_of(self, tenant: str, builds: Collection[str] = ()) -> int:
        """Return the bytes of `room_for` for builds that a tenant has in use, at most what its ceiling leaves."""
        room, ceiling = self.room_for(builds), self._shares.ceiling_for(tenant, builds)
        return room if ceiling is None else max(0, min(room, ceiling))

    def fits(self, servable: Servable) -> bool:
        """Return whether a variant could be in memory by itself, under the ceiling of its model's owner."""
        build_id = servable.build_id
        if self._shares.full(build_id, servable.resident_bytes, ()) is not None:
            return False
        return servable.need_bytes <= self.room_for((build_id,))

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
        left_out = [s for s in entry.servables.values() if s.variant.state is VariantState.READY]
        left_out = [s for s in left_out if not entry.application.may_choose(s.variant) and self.can_ever_fit(s)]
        return [s.name for s in sorted(left_out, key=lambda s: (-s.accuracy, s.name))]

    def can_ever_fit(self, servable: Servable) -> bool:
        """Return whether a variant would fit in the budget as it is set, with nothing of other builds in memory."""
        beside_bytes = self._shares.guard_bytes_of(servable.build_id)
        beside_bytes += self._memory.overheads().get(FORK_SERVERS, 0)
        return servable.need_bytes + beside_bytes <= self._shares.budget_bytes
