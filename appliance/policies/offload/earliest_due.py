"""The box's default: ARISE's estimate and verification around a packer for clients that differ, and the joint choice of variants."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.policies.offload.admission import ROOMY, Admission, Decision, Packer, Resumer
from appliance.policies.offload.answer import assemble
from appliance.policies.offload.arise import adjusting
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.due import Pace, Patience, pace, pack_due
from appliance.policies.offload.fleet import Fleet, fleet_of, step1
from appliance.policies.offload.joint import choices, held
from appliance.policies.offload.ledger import Opening
from appliance.policies.offload.verify import Verified, verified
from appliance.policies.offload.warm import resumed

EXPECTED_LOAD = 0.86
"""Σ load that the packer usually carries. Only where the search for admissions starts."""
PATIENT = Patience(join=0.65, lead=0.8)
"""First try: batches wait until they fill, and no client sends much more than its SLA needs."""
EAGER = Patience(join=0.5, lead=0.5)
"""Mending: the processor rests only where nobody could use it."""
ROUNDS = 1
"""Times that a plan in which few SLAs break is packed again, with the slack of some given to others; a second time adds half a percent of clients and a
quarter of the time of a search."""
SLACK_FRAMES_MAX = 10.0


class EarliestDue:
    """Most clients, like ARISE, with the most urgent client leading each batch (`due`).

    While nobody waits the previous plan goes on where it can (`warm`). Where a set fails, the slack of those far below their SLA is given to those above
    it, once; then ARISE's own order has a try, and its whole search where clients would have to go, or wait although there is room. With variants, the
    most promising choices (`joint`) are planned and the one that serves most is taken; the first of those that tie, so that nobody changes networks for
    nothing. O(requests) a trial; ties as in `admission`, `due`.
    """

    def __init__(self, margin: float = 0.0) -> None:
        """`margin`: share of every SLA kept free at an admission, against removals later (docs/benchmarks/offload.md has what it costs)."""
        self._margin = margin

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        if any(client.variants for client in (*problem.clients, *problem.waiting)):
            return self._jointly(problem).plan()
        return self._second_thoughts(self._best_on(fleet_of(problem))).plan()

    def _jointly(self, problem: OffloadInput) -> "_Option":
        """The best of the choices of variants. While nobody waits, the one of the previous plan if it still serves everybody."""
        kept = held(problem)
        if not problem.waiting and len(kept) == len(problem.clients):
            option = self._best_on(fleet_of(problem, kept))
            if option.served == len(problem.clients):
                return option
        first, *others = choices(problem)
        best = self._best_on(fleet_of(problem, first.choice))
        for promise in others:
            if promise.most > best.served:
                option = self._best_on(fleet_of(problem, promise.choice), beat=best.served)
                best = option if option.served > best.served else best
        return self._second_thoughts(best)

    def _best_on(self, fleet: Fleet, beat: int = 0) -> "_Option":
        chosen = pace(fleet)
        packers = [leading(chosen), in_order]
        search = Admission(fleet, chosen.load, packers, EXPECTED_LOAD, self._margin, resuming(chosen), beat)
        interval = [int(ms * fleet.frames_per_ms) or 1 for ms in chosen.period_ms]
        return _Option(fleet, search.decide(), interval, chosen.batch, chosen.load)

    def _second_thoughts(self, option: "_Option") -> "_Option":
        """ARISE's own search where ours removes clients, or leaves some waiting although the processor has room."""
        fleet, decision = option.fleet, option.decision
        if not decision.removed and not self._is_blocked(fleet, option.load, decision):
            return option
        settings = step1(fleet)
        other = Admission(fleet, settings.load, [adjusting(settings)], EXPECTED_LOAD, self._margin).decide()
        if len(other.verified.members) <= option.served:
            return option
        return _Option(fleet, other, settings.interval, settings.batch, settings.load)

    def _is_blocked(self, fleet: Fleet, load: Sequence[float], decision: Decision) -> bool:
        """Whether clients wait although the processor has room: a few with tight SLAs stand in the way of the search."""
        members = decision.verified.members
        return len(members) < len(fleet.clients) and sum(load[i] for i in members) < ROOMY * EXPECTED_LOAD


@dataclass(frozen=True, slots=True)
class _Option:
    """A decision on one choice of variants, not yet written as a plan; `interval`, `batch` and `load` by client are what it was built around."""

    fleet: Fleet
    decision: Decision
    interval: Sequence[int]
    batch: Sequence[int]
    load: Sequence[float]

    @property
    def served(self) -> int:
        return len(self.decision.verified.members)

    def plan(self) -> OffloadPlan:
        return assemble(self.fleet, self.decision, self.interval, self.batch, "earliest due")


def in_order(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
    """ARISE's own packing, in order of arrival."""
    return adjusting(step1(fleet))(fleet, state, members)


def resuming(chosen: Pace) -> Resumer:
    """Go on with the previous plan, and pack by urgency what it does not reach."""

    def go_on(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified | None:
        found = resumed(fleet, state, members)
        if found is None:
            return None
        slots, after = found
        new = pack_due(fleet, after, members, chosen.batch, chosen.period_ms, PATIENT)
        return verified(fleet, state, members, [*slots, *new])

    return go_on


def leading(chosen: Pace) -> Packer:
    """Pack by urgency; mend a plan that nearly holds."""

    def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
        period_ms = chosen.period_ms
        plan = verified(fleet, state, members, pack_due(fleet, state, members, chosen.batch, period_ms, PATIENT))
        for _ in range(ROUNDS):
            if not 0 < len(plan.broken) <= max(1, len(members) // 3):
                break
            period_ms = _shifted(fleet, plan, period_ms)
            mended = verified(fleet, state, members, pack_due(fleet, state, members, chosen.batch, period_ms, EAGER))
            if len(mended.broken) <= len(plan.broken):
                plan = mended
        return plan

    return pack


def _shifted(fleet: Fleet, plan: Verified, period_ms: list[float]) -> list[float]:
    """Periods moved by the slack of each member: a stride of one frame too many shortens its period by one frame."""
    shifted = period_ms[:]
    for i, stride in plan.strides.items():
        slack = min(max(fleet.allowed[i] - stride, -SLACK_FRAMES_MAX), SLACK_FRAMES_MAX)
        shifted[i] = max(fleet.frame_ms, period_ms[i] + slack * fleet.frame_ms)
    return shifted
