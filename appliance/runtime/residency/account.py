"""What memory there is for variants: whoever plans with some asks here, so that all count alike.

The budget, less what processes beside builds take (guards and what these are forked of, planners), less what those take
that have to begin; what is idle of them counts as free, for it ends where there is no room otherwise. What other builds
hold does not count: who leaves for whom is the arbiter's.
"""

from collections.abc import Collection

from appliance.domain.errors import processes_beside
from appliance.domain.overhead import FORK_SERVERS
from appliance.domain.units import BYTES_PER_MB
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.residency.shares import Shares
from appliance.runtime.servable import Servable


class MemoryAccount:
    """Event-loop thread only."""

    def __init__(self, memory: MemoryManager, shares: Shares) -> None:
        self._memory = memory
        self._shares = shares

    def room_for(self, builds: Collection[str]) -> int:
        """Bytes that these builds may take together, were all others gone."""
        return max(0, self._memory.room_for(builds))

    def room_of(self, tenant: str, builds: Collection[str] = ()) -> int:
        """The same of builds that a tenant has in use, under its ceiling."""
        room, ceiling = self.room_for(builds), self._shares.ceiling_for(tenant, builds)
        return room if ceiling is None else max(0, min(room, ceiling))

    def fits(self, servable: Servable) -> bool:
        """Whether a variant could be in memory by itself, under the ceiling of its model's owner."""
        build_id = servable.build_id
        if self._shares.full(build_id, servable.resident_bytes, ()) is not None:
            return False
        return servable.need_bytes <= self.room_for((build_id,))

    def overheads_with(self, build_id: str) -> dict[str, int]:
        """Sort of processes → what these take beside variants, with those that have to begin for a build."""
        found = dict(self._memory.overheads())
        for of, count_bytes in self._shares.processes_to_come(build_id).items():
            found[of] = found.get(of, 0) + count_bytes
        return found

    def held_beside(self) -> str:
        """What processes beside variants take of the budget, for a person, to follow what finds no room; empty: none
        does.
        """
        held = [f"{one['why']} {one['mb']:.3g} MB" for one in processes_beside(self._memory.overheads())]
        return f", of {self._memory.budget_bytes / BYTES_PER_MB:.3g} MB beside {', '.join(held)}" if held else ""

    def can_ever_fit(self, servable: Servable) -> bool:
        """Whether it would fit, had nobody else anything in memory, with the budget as it is set."""
        beside_bytes = self._shares.guard_bytes_of(servable.build_id)
        beside_bytes += self._memory.overheads().get(FORK_SERVERS, 0)
        return servable.need_bytes + beside_bytes <= self._shares.budget_bytes
