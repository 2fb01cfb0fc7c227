"""ARISE as the paper has it (§4.4): step 1 in closed form, then simulate, adjust, verify, apply."""

from collections.abc import Sequence

from appliance.policies.offload.adjust import adjust, simulate
from appliance.policies.offload.admission import Admission
from appliance.policies.offload.answer import assemble
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.fleet import Fleet, fleet_of, step1
from appliance.policies.offload.ledger import Opening, Slot

EXPECTED_LOAD = 0.8
"""Σ load that ARISE usually carries: the grace period and uneven runs take the rest. Only where the search for admissions starts."""


class Arise:
    """Most clients by interval and batch of step 1, requests packed in order of arrival; removal and admission as `admission` states."""

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        fleet = fleet_of(problem)
        settings = step1(fleet)

        def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> list[Slot]:
            return adjust(fleet, state, simulate(fleet, state, members, settings.interval), settings.batch)

        decision = Admission(fleet, settings.load, pack, EXPECTED_LOAD).decide()
        return assemble(fleet, decision, settings.interval, settings.batch, "arise")
