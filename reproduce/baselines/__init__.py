"""Policies that exist only to be compared with, beside those that a box may choose.

Those of residency a box may choose, and those of offload are a floor of its default: they stand with the policies.
"""

from collections.abc import Callable, Mapping
from functools import partial

from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.adaptation.base import AdaptationPolicy
from appliance.policies.allocation import ALLOCATION_POLICIES
from appliance.policies.allocation.base import AllocationPolicy
from appliance.policies.allocation.scrooge import without_concurrency
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import OffloadPolicy
from appliance.policies.offload.reactive import clipper_like, static
from reproduce.baselines.exact import Exact
from reproduce.baselines.fixed_network import FIXED_NETWORKS
from reproduce.baselines.greedy import Greedy
from reproduce.baselines.nexus import NexusLike
from reproduce.baselines.unaligned import OnePicture, StaticBudget

ALLOCATION: Mapping[str, Callable[[], AllocationPolicy]] = {
    **ALLOCATION_POLICIES,
    "nexus-like": NexusLike,
    "greedy": Greedy,
    "concurrency-1": without_concurrency,
}
ADAPTATION: Mapping[str, Callable[[], AdaptationPolicy]] = {
    **ADAPTATION_POLICIES,
    "exact": Exact,
    **FIXED_NETWORKS,
    "half-budget": partial(StaticBudget, 0.5),
    "three-quarters-budget": partial(StaticBudget, 0.75),
    "one-picture": OnePicture,
}
OFFLOAD: Mapping[str, Callable[[], OffloadPolicy]] = {
    **OFFLOAD_POLICIES,
    # ARISE's settings beside depth over 5G, which have the plain names (§6.3 to §6.7).
    "static-lte": partial(static, 3, 3),
    "static-detection": partial(static, 5, 5),
    "clipper-like-detection": partial(clipper_like, 9),
}
