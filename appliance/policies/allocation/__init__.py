"""Registry of allocation policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.allocation.base import AllocationPolicy
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.scrooge import Scrooge

ALLOCATION_POLICIES: Mapping[str, Callable[[], AllocationPolicy]] = {"frontier": Frontier, "scrooge": Scrooge}
DEFAULT = "frontier"
