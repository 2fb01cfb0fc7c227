"""Least recently used: the yardstick of every cache.

Minimalists are unloaded, the one not requested for longest first.
"""

from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem
from appliance.policies.residency.requester import answer
from appliance.policies.residency.victims import Victim, make_room, unloaded, victims


class LeastRecentlyUsed:
    """Never requested counts as longest ago; ties by name. O(n log n) for each of the requester's variants."""

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        return answer(problem, sorted(victims(problem, unloaded), key=_age), make_room)


def _age(victim: Victim) -> tuple[float, int]:
    last_ns = victim.application.last_request_ns
    return (victim.level, -1 if last_ns is None else last_ns)
