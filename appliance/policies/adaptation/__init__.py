"""Registry of adaptation policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.adaptation.annealing import Jellyfish
from appliance.policies.adaptation.base import AdaptationPolicy
from appliance.policies.adaptation.exchange import PairwiseExchange

ADAPTATION_POLICIES: Mapping[str, Callable[[], AdaptationPolicy]] = {
    "exchange": PairwiseExchange,
    "jellyfish": Jellyfish,
}
DEFAULT = "exchange"
