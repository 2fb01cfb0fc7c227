"""Registry of eviction policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.eviction.base import EvictionPolicy
from appliance.policies.eviction.bfe import BestFit
from appliance.policies.eviction.floors import Floors
from appliance.policies.eviction.iws_bfe import IntelligentWarmStart
from appliance.policies.eviction.lfe import LargestFirst
from appliance.policies.eviction.lru import LeastRecentlyUsed
from appliance.policies.eviction.none import NoEviction
from appliance.policies.eviction.ws_bfe import WarmStartBestFit

EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = {
    "none": NoEviction,
    "lru": LeastRecentlyUsed,
    "lfe": LargestFirst,
    "bfe": BestFit,
    "ws-bfe": WarmStartBestFit,
    "iws-bfe": IntelligentWarmStart,
    "floors": Floors,
}
DEFAULT = "floors"
