"""Registry of eviction policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping
from functools import partial

from appliance.policies.residency.base import EvictionPolicy
from appliance.policies.residency.bfe import BestFit
from appliance.policies.residency.floors import Floors
from appliance.policies.residency.iws_bfe import IntelligentWarmStart
from appliance.policies.residency.lfe import LargestFirst
from appliance.policies.residency.lru import LeastRecentlyUsed
from appliance.policies.residency.none import NoEviction
from appliance.policies.residency.ws_bfe import WarmStartBestFit

EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = {
    "none": NoEviction,
    "lru": LeastRecentlyUsed,
    "lfe": LargestFirst,
    "bfe": BestFit,
    "ws-bfe": WarmStartBestFit,
    "iws-bfe": IntelligentWarmStart,
    "iws-bfe-unload-first": partial(IntelligentWarmStart, "unload-first"),
    "floors": Floors,
}
DEFAULT = "floors"
