"""Largest-first eviction (Edge-MultiAI §III-B2, Policy 1): minimalists are unloaded, the largest first, until the
wanted variant fits.
"""

from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem
from appliance.policies.residency.requester import answer
from appliance.policies.residency.victims import Victim, make_room, unloaded, victims


class LargestFirst:
    """Ties by name. O(n log n) for each of the requester's variants."""

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        return answer(problem, sorted(victims(problem, unloaded), key=_size), make_room)


def _size(victim: Victim) -> tuple[float, int]:
    return (victim.level, -victim.loaded.bytes)
