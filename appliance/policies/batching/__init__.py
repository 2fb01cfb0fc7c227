"""Registry of batching policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.batching.base import BatchingPolicy
from appliance.policies.batching.by_profile import ByProfile
from appliance.policies.batching.none import NoBatching

BATCHING_POLICIES: Mapping[str, Callable[[], BatchingPolicy]] = {
    "by-profile": ByProfile,
    "none": NoBatching,
}
DEFAULT = "by-profile"
