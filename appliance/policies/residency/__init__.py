"""Registry of eviction policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping
from functools import partial

from appliance.policies.residency.base import EvictionPolicy
from appliance.policies.residency.bfe import BestFit
from appliance.policies.residency.expected_utility import ExpectedUtility
from appliance.policies.residency.iws_bfe import IntelligentWarmStart
from appliance.policies.residency.lfe import LargestFirst
from appliance.policies.residency.lru import LeastRecentlyUsed
from appliance.policies.residency.none import NoEviction
from appliance.policies.residency.ws_bfe import WarmStartBestFit

FORMER_NAMES = {"floors": "expected-utility"}
"""Accepted for one more release, listed nowhere."""


class _Registry(dict[str, Callable[[], EvictionPolicy]]):
    """Lists the names of today; finds a policy by its former name, too."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in FORMER_NAMES

    def __missing__(self, name: str) -> Callable[[], EvictionPolicy]:
        return self[FORMER_NAMES[name]]


EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = _Registry(
    {
        "none": NoEviction,
        "lru": LeastRecentlyUsed,
        "lfe": LargestFirst,
        "bfe": BestFit,
        "ws-bfe": WarmStartBestFit,
        "iws-bfe": IntelligentWarmStart,
        "iws-bfe-unload-first": partial(IntelligentWarmStart, "unload-first"),
        "expected-utility": ExpectedUtility,
    }
)
DEFAULT = "expected-utility"
