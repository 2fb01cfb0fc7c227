"""Registry of forecasters: the name in the settings → what a history makes of it. The first is the one for little history."""

from collections.abc import Mapping

from appliance.policies.forecast.base import Fit
from appliance.policies.forecast.ewma import Ewma
from appliance.policies.forecast.renewal import Renewal
from appliance.policies.forecast.rnn import trained

FORECASTERS: Mapping[str, Fit] = {
    "ewma": lambda arrivals_ns, seed: Ewma(),
    "renewal": lambda arrivals_ns, seed: Renewal(),
    "rnn": trained,
}
