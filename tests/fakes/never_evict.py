"""Never evict: what a box without a policy does."""

from collections.abc import Callable, Mapping

from appliance.runtime.memory.lru_builds import LeastRecentlyUsed
from appliance.runtime.memory.room import RoomPlan, RoomPolicy, RoomProblem


class NeverEvict:
    """The wanted build fits into free memory, or not at all."""

    def plan(self, problem: RoomProblem) -> RoomPlan:
        fits = problem.need_bytes <= problem.free_bytes
        return RoomPlan((), 0, fits, "it fits as it is" if fits else "memory is full and this policy evicts nothing")


ROOM_POLICIES: Mapping[str, Callable[[], RoomPolicy]] = {"lru": LeastRecentlyUsed, "none": NeverEvict}
"""What a memory manager can be given without the residency arbiter, by name."""
