"""Registry of eviction policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.eviction.base import EvictionPolicy

EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = {}
