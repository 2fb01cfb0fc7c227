"""Registry of eviction policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.eviction.base import EvictionPolicy
from appliance.policies.eviction.lru import LeastRecentlyUsed
from appliance.policies.eviction.none import NeverEvict

EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = {
    "lru": LeastRecentlyUsed,
    "none": NeverEvict,
}
