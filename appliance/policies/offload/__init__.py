"""Registry of offload policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.offload import reactive
from appliance.policies.offload.arise import Arise
from appliance.policies.offload.base import OffloadPolicy
from appliance.policies.offload.earliest_due import EarliestDue

OFFLOAD_POLICIES: Mapping[str, Callable[[], OffloadPolicy]] = {
    "static": reactive.static,
    "static-searched": reactive.static_searched,
    "clipper-like": reactive.clipper_like,
    "clipper-like-searched": reactive.clipper_searched,
    "chameleon-like": reactive.chameleon_like,
    "arise-alpha": reactive.arise_alpha,
    "arise": Arise,
    "earliest-due": EarliestDue,
}
DEFAULT = "earliest-due"
