"""Registry of dispatch policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.dispatch.affinity import Affinity
from appliance.policies.dispatch.base import DispatchPolicy
from appliance.policies.dispatch.earliest_finish import EarliestFinish
from appliance.policies.dispatch.fifo import Fifo
from appliance.policies.dispatch.fixed import Fixed
from appliance.policies.dispatch.least_slack import LeastSlack
from appliance.policies.dispatch.round_robin import RoundRobin

DISPATCH_POLICIES: Mapping[str, Callable[[], DispatchPolicy]] = {
    "affinity": Affinity,
    "earliest-finish": EarliestFinish,
    "fifo": Fifo,
    "fixed": Fixed,
    "least-slack": LeastSlack,
    "round-robin": RoundRobin,
}
DEFAULT = "least-slack"
