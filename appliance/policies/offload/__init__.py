"""Registry of offload policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.offload.arise import Arise
from appliance.policies.offload.base import OffloadPolicy
from appliance.policies.offload.earliest_due import EarliestDue

OFFLOAD_POLICIES: Mapping[str, Callable[[], OffloadPolicy]] = {
    "arise": Arise,
    "earliest-due": EarliestDue,
}
DEFAULT = "earliest-due"
