"""Registries of forecasters, of requests and of memory: the name in the settings → its kind.

The first of each is the one for little history.
"""

from collections.abc import Mapping

from appliance.policies.forecast import memory_rnn, rnn
from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.ewma import Ewma
from appliance.policies.forecast.kinds import Kind
from appliance.policies.forecast.memory import MemoryFit, MemoryForecaster, Trend
from appliance.policies.forecast.renewal import Renewal

FORECASTERS: Mapping[str, Kind[Fit, Forecaster]] = {
    "ewma": Kind(lambda arrivals_ns, seed: Ewma(), lambda state: Ewma()),
    "renewal": Kind(lambda arrivals_ns, seed: Renewal(), lambda state: Renewal()),
    "rnn": Kind(rnn.trained, rnn.Rnn.from_json),
}

MEMORY_FORECASTERS: Mapping[str, Kind[MemoryFit, MemoryForecaster]] = {
    "trend": Kind(lambda samples, horizon_ns, seed: Trend(), lambda state: Trend()),
    "rnn": Kind(memory_rnn.trained, memory_rnn.MemoryRnn.from_json),
}
