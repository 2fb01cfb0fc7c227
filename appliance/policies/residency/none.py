"""Never evict: the paper's baseline without a policy (§IV-B). What does not fit into free memory fails."""

from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem
from appliance.policies.residency.requester import answer
from appliance.policies.residency.victims import make_room


class NoEviction:
    """The most accurate variant that fits into what is free. O(n)."""

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        return answer(problem, (), make_room)
