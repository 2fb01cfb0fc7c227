"""Registry of selection policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.selection.base import SelectionPolicy
from appliance.policies.selection.by_profile import ByProfile
from appliance.policies.selection.most_accurate import MostAccurate

SELECTION_POLICIES: Mapping[str, Callable[[], SelectionPolicy]] = {
    "by-profile": ByProfile,
    "most-accurate": MostAccurate,
}
DEFAULT = "by-profile"
