"""Registry of allocation policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.allocation.base import AllocationPolicy
from appliance.policies.allocation.brute import BruteForce
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.greedy import Greedy
from appliance.policies.allocation.nexus import NexusLike
from appliance.policies.allocation.scrooge import Scrooge, without_concurrency

ALLOCATION_POLICIES: Mapping[str, Callable[[], AllocationPolicy]] = {
    "frontier": Frontier,
    "scrooge": Scrooge,
    "nexus-like": NexusLike,
    "greedy": Greedy,
    "concurrency-1": without_concurrency,
    "brute-force": BruteForce,
}
DEFAULT = "frontier"
