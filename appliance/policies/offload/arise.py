"""ARISE as the paper has it (§4.4): step 1 in closed form, then simulate, adjust, verify, apply."""

from collections.abc import Sequence

from appliance.policies.offload.adjust import adjust, paced, simulate
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


APART = (0.75, 0.5)
"""Shares of the intervals of step 1 by which the frames of a client are apart. Those hold for ever: in a horizon that
begins when the result that is shown is oldest, old results are shown for longer than fresh ones, and batches wait."""


class Arise:
    """Most clients by interval and batch of step 1, requests packed in order of arrival; removal and admission as
    `admission` states.
    """

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        fleet = fleet_of(problem)
        settings = step1(fleet)
        decision = Admission(fleet, settings.load, [resting(settings)], EXPECTED_LOAD).decide()
        told = [max(1, int(APART[0] * interval)) for interval in settings.interval]
        return assemble(fleet, decision, told, settings.batch, "arise")


def adjusting(settings: Settings) -> Packer:
    """Simulate, adjust and verify with these settings. The processor never rests."""

    def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
        able = [i for i in members if settings.interval[i] > 0]
        slots = adjust(fleet, state, simulate(fleet, state, able, settings.interval), settings.batch)
        return verified(fleet, state, members, slots)

    return pack


def resting(settings: Settings) -> Packer:
    """As `adjusting`; the processor rests between batches where no SLA breaks by that, so that devices send no more
    than their intervals ask for."""
    adjusted = adjusting(settings)

    def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
        able = [i for i in members if settings.interval[i] > 0]
        effort, load = 0, sum([settings.load[i] for i in able])
        for share in APART:
            if load > share:  # nor would it rest with frames that are so far apart
                break
            slots = paced(fleet, state, able, [share * frames for frames in settings.interval], settings.batch)
            plan = verified(fleet, state, members, slots)
            plan.effort = effort = effort + plan.effort
            if plan.ok:
                return plan
        plan = adjusted(fleet, state, members)
        plan.effort += effort
        return plan

    return pack
