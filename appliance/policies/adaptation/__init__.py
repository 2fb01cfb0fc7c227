"""Registry of adaptation policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.adaptation import edf
from appliance.policies.adaptation.annealing import Jellyfish
from appliance.policies.adaptation.base import AdaptationPolicy
from appliance.policies.adaptation.exact import Exact
from appliance.policies.adaptation.exchange import PairwiseExchange

ADAPTATION_POLICIES: Mapping[str, Callable[[], AdaptationPolicy]] = {
    "exchange": PairwiseExchange,
    "jellyfish": Jellyfish,
    "exact": Exact,
    "edf-smallest": edf.smallest,
    "edf-middle": edf.middle,
    "edf-largest": edf.largest,
}
DEFAULT = "exchange"
