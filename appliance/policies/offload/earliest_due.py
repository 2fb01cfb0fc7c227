"""The box's default: ARISE's estimate and verification around a packer for clients that differ."""

from collections.abc import Sequence

from appliance.policies.offload.admission import Admission, Packer
from appliance.policies.offload.answer import assemble
from appliance.policies.offload.arise import adjusting
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.due import Pace, pace, pack_due
from appliance.policies.offload.fleet import Fleet, fleet_of, step1
from appliance.policies.offload.ledger import Opening
from appliance.policies.offload.verify import Verified, verified

EXPECTED_LOAD = 0.95
"""Σ load that the packer usually carries. Only where the search for admissions starts."""
ROUNDS = 2
"""Times that a plan in which few SLAs break is packed again, with the slack of some given to others."""
SLACK_FRAMES_MAX = 10.0


class EarliestDue:
    """Most clients, like ARISE, with the most urgent client leading each batch (`due`). Where a set fails, the slack of those far below their SLA is given to
    those above it, twice; then ARISE's own order has a try, and its whole search where clients would have to go. O(requests) a trial; ties as in `admission` and `due`."""

    def __init__(self, margin: float = 0.0) -> None:
        """`margin`: share of every SLA kept free at an admission; 0.02 costs about 5 % of the clients and saves two removals in three."""
        self._margin = margin

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        fleet = fleet_of(problem)
        chosen = pace(fleet)
        settings = step1(fleet)
        decision = Admission(
            fleet, chosen.load, [leading(chosen), adjusting(settings)], EXPECTED_LOAD, self._margin
        ).decide()
        if decision.removed:
            other = Admission(fleet, settings.load, [adjusting(settings)], EXPECTED_LOAD, self._margin).decide()
            if len(other.verified.members) > len(decision.verified.members):
                return assemble(fleet, other, settings.interval, settings.batch, "earliest due, in order of arrival")
        interval = [max(1, int(ms * fleet.frames_per_ms)) for ms in chosen.period_ms]
        return assemble(fleet, decision, interval, chosen.batch, "earliest due")


def leading(chosen: Pace) -> Packer:
    """Pack by urgency; mend a plan that nearly holds."""

    def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
        period_ms = chosen.period_ms
        plan = verified(fleet, state, members, pack_due(fleet, state, members, chosen.batch, period_ms))
        for _ in range(ROUNDS):
            if not 0 < len(plan.broken) <= max(1, len(members) // 2):
                break
            period_ms = _shifted(fleet, plan, period_ms)
            mended = verified(fleet, state, members, pack_due(fleet, state, members, chosen.batch, period_ms))
            if len(mended.broken) <= len(plan.broken):
                plan = mended
        return plan

    return pack


def _shifted(fleet: Fleet, plan: Verified, period_ms: Sequence[float]) -> list[float]:
    """Periods moved by the slack of each member: a stride of one frame too many shortens its period by one frame."""
    shifted = list(period_ms)
    for i, stride in plan.strides.items():
        slack = min(max(fleet.allowed[i] - stride, -SLACK_FRAMES_MAX), SLACK_FRAMES_MAX)
        shifted[i] = max(fleet.frame_ms, period_ms[i] + slack * fleet.frame_ms)
    return shifted
