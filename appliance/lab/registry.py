"""The policies that a problem or a scenario may name, by family."""

from collections.abc import Mapping
from typing import Any

from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.allocation import ALLOCATION_POLICIES
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.forecast import FORECASTERS
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.selection import SELECTION_POLICIES

_ALLOCATION: dict[str, Any] = {**ALLOCATION_POLICIES}
FAMILIES: Mapping[str, dict[str, Any]] = {
    "adaptation": {**ADAPTATION_POLICIES},
    "allocation": _ALLOCATION,
    "batching": {**BATCHING_POLICIES},
    "dispatch": {**DISPATCH_POLICIES},
    "eviction": {**EVICTION_POLICIES},
    "forecast": {**FORECASTERS},
    "offload": {**OFFLOAD_POLICIES},
    "pipeline": _ALLOCATION,
    "selection": {**SELECTION_POLICIES},
}
"""Family → name → what makes a policy: those that the box may choose, and those that `add_policies` has added."""


def add_policies(family: str, policies: Mapping[str, Any]) -> None:
    """Let problems and scenarios name more policies of a family, to compare the box's with."""
    FAMILIES[family].update(policies)
