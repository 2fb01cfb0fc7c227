"""ARISE as the paper has it (§4.4): step 1 in closed form, then simulate, adjust, verify, apply."""

from collections.abc import Sequence

from appliance.policies.offload.adjust import adjust, simulate
from appliance.policies.offload.admission import Admission, Packer
from appliance.policies.offload.answer import assemble
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.fleet import Fleet, Settings, fleet_of, step1
from appliance.policies.offload.ledger import Opening
from appliance.policies.offload.verify import Verified, verified

EXPECTED_LOAD = 0.8
"""Σ load that ARISE usually carries: the grace period and uneven runs take the rest.

Only where the search for admissions starts.
"""


class Arise:
    """Most clients by interval and batch of step 1, requests packed in order of arrival; removal and admission as
    `admission` states.
    """

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        fleet = fleet_of(problem)
        settings = step1(fleet)
        decision = Admission(fleet, settings.load, [adjusting(settings)], EXPECTED_LOAD).decide()
        return assemble(fleet, decision, settings.interval, settings.batch, "arise")


def adjusting(settings: Settings) -> Packer:
    """Simulate, adjust and verify with these settings."""

    def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
        able = [i for i in members if settings.interval[i] > 0]
        slots = adjust(fleet, state, simulate(fleet, state, able, settings.interval), settings.batch)
        return verified(fleet, state, members, slots)

    return pack
