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
APART = (0.75, 0.5, 0.25, 0.125)
"""Shares of the intervals of step 1 by which the frames of a client are apart, tried in turn. Those hold for ever: in a
horizon that begins when the result that is shown is oldest, old results are shown for longer than fresh ones, and
batches wait; where a result is very old, more fresh ones have to make that good."""


class Arise:
    """Most clients by interval and batch of step 1, requests packed in order of arrival; removal and admission as
    `admission` states.
    """

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        fleet = fleet_of(problem)
        settings = step1(fleet)
        decision = Admission(fleet, settings.load, [resting(settings)], EXPECTED_LOAD).decide()
        longest = [max(1, int(APART[0] * interval)) for interval in settings.interval]
        told = [min(*pair) for pair in zip(longest, spaces(fleet, decision.verified), strict=True)]
        return assemble(fleet, decision, told, settings.batch, "arise")


def spaces(fleet: Fleet, plan: Verified) -> list[int]:
    """By how many frames those that a plan names of each client are apart, on average; the horizon where there are not
    two."""
    named: list[list[int]] = [[] for _ in fleet.clients]
    for _, _, requests in plan.slots:
        for i, frame in requests:
            named[i].append(frame)
    horizon = max(1, fleet.display_to - fleet.display_from)
    return [
        max(1, round((frames[-1] - frames[0]) / (len(frames) - 1))) if len(frames) > 1 else horizon for frames in named
    ]


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
