"""Never evict: what a box without a policy does."""

from appliance.policies.room.base import RoomPlan, RoomProblem


class NeverEvict:
    """The wanted build fits into free memory, or not at all."""

    def plan(self, problem: RoomProblem) -> RoomPlan:
        fits = problem.need_bytes <= problem.free_bytes
        return RoomPlan((), 0, fits, "it fits as it is" if fits else "memory is full and this policy evicts nothing")
