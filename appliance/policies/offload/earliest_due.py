"""The box's default: ARISE's estimate and verification around a packer for clients that differ, and the joint choice
of variants.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from appliance.policies.offload.admission import ROOMY, SMALL, Admission, Decision, Packer, Resumer
from appliance.policies.offload.answer import assemble
from appliance.policies.offload.arise import adjusting
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.due import Pace, Patience, due_ms, pace, pack_due
from appliance.policies.offload.fleet import Choice, Common, Fleet, common_of, fleet_of, step1
from appliance.policies.offload.joint import Promise, choices, held, mended
from appliance.policies.offload.ledger import Opening, opening
from appliance.policies.offload.reactive import FLOOR, FLOOR_TRIALS_MAX, floor
from appliance.policies.offload.verify import Verified, allowed_after, is_hopeless, verified
from appliance.policies.offload.warm import resumed

EXPECTED_LOAD = 0.86
"""Σ load that the packer usually carries. Only where the search for admissions starts."""
PATIENT = Patience(join=0.65, lead=0.8)
"""First try: batches wait until they fill, and no client sends much more than its SLA needs."""
EAGER = Patience(join=0.5, lead=0.5)
"""Mending: the processor rests only where nobody could use it."""
ROUNDS = 1
"""Times that a plan in which few SLAs break is packed again, with the slack of some given to others; a second time
adds half a percent of clients and a quarter of the time of a search."""
MENDED = 3
"""One client of so many may see its SLA broken in a plan that is packed again ..."""
MENDED_EFFORT_MAX = 1900
"""... and on several networks it is packed again only where that costs no more, as of `Verified`: quick ones run in so
many batches that another choice, or a client less, is tried for the same."""
SLACK_FRAMES_MAX = 10.0
FULL = 0.93
"""Share of the expected load from which on a box is full, even if clients have to go."""
PROBED_SHARE = 0.5
"""Of the horizon, for which choices of variants are planned before one of them is searched in full: which of them
serves more shows in half of it."""
PROBING_EFFORT_MAX = 10_000
"""Effort, as of `Verified`, after which no further one is probed."""
ALONE_FIRST = 2
"""Choices of one variant for all that are searched before the other ones."""
EFFORT_MAX = 20_000
"""Effort of a decision over variants, after which no further search is begun; a thousand take one ms or two."""
RELEASED = (1.5, 1.1)
"""Times its usual load from which on a client that has to make good an old result gives way to those that wait;
tried in turn.
"""


class EarliestDue:
    """Most clients, like ARISE, with the most urgent client leading each batch (`due`).

    While nobody waits the previous plan goes on where it can (`warm`). Where a set fails, the slack of those far below
    their SLA is given to those above it, once; then ARISE's own order has a try. With variants, the most promising
    choices (`joint`) are planned and the one that serves most is taken; the first of those that tie, so that nobody
    changes networks for nothing. O(requests) a trial; ties as in `admission`, `due`. No other choice is begun once
    that has cost `EFFORT_MAX`, so that a crowd at the door is planned within a part of a period.

    Where somebody is left out whom a plan could serve, other searches follow, each for more clients than the best
    before it: with the paces of those whose shown result is old set by what they still owe, without these clients where
    they cost too much, ARISE's whole search, and every baseline as a floor (`reactive.floor`). So no baseline serves
    more, and where all are served, or the box is full, a decision costs no more than one search.
    """

    def __init__(self, margin: float = 0.0) -> None:
        """`margin`: share of every SLA kept free at an admission, against removals later (docs/benchmarks/offload.md
        has what it costs). The baselines keep
        none, so with one they are no floor."""
        self._margin = margin

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        if problem.has_variants:
            return self._jointly(problem).plan()
        return self._second_thoughts(self._best_on(fleet_of(problem))).plan()

    def _jointly(self, problem: OffloadInput) -> "_Option":
        """The best of the choices of variants.

        While nobody waits, the one of the previous plan if it still serves everybody.
        """
        common, kept = common_of(problem), held(problem)
        if not problem.waiting and len(kept) == len(problem.clients):
            option = self._best_on(fleet_of(problem, kept, common))
            if option.served == len(problem.clients):
                return option
        promises = choices(problem, common)
        probes = self._probes(problem, promises, common)
        # Of equals the first, where somebody would have to change networks for the other one; else the one that costs
        # less to plan, for its batches are fuller, and more of its plans can be tried.
        probes.sort(key=lambda probe: (-probe.prospect, probe.at if kept else probe.plan_effort))
        first = probes[0]
        best = first.search.best(effort_max=EFFORT_MAX - sum(probe.search.effort for probe in probes[1:]))
        effort = sum(probe.search.effort for probe in probes)
        for at, search in _turns(promises, probes):
            promise = promises[at]
            if effort + best.decision.verified.effort > EFFORT_MAX:
                return best
            beat = max(0, best.served - 1) if kept and at < first.at else best.served
            if promise.most > beat:
                search = search or self._searching(fleet_of(problem, promise.choice, common))
                before = search.effort
                option = search.best(beat, before + EFFORT_MAX - effort)
                effort += search.effort - before
                best = option if option.served > beat else best
        return self._second_thoughts(best, EFFORT_MAX - effort)

    def _probes(self, problem: OffloadInput, promises: Sequence[Promise], common: Common) -> list["_Probe"]:
        """The best promises by a plan of a part of the horizon, for the closed form knows nothing of batches that wait
        behind one another; after each the same with those whose SLA breaks on a more accurate variant, for as long as
        that serves more.
        """
        found: list[_Probe] = []
        effort, most = 0, 0
        for at, promise in enumerate(promises):
            choice: Choice | None = promise.choice
            before = -1
            while choice is not None and (not found or (promise.most > most and effort <= PROBING_EFFORT_MAX)):
                search = self._searching(fleet_of(problem, choice, common))
                plan = search.prospect()
                prospect = len(plan.members) - len(plan.broken)
                found.append(_Probe(at, search, prospect, plan.effort))
                effort, most = effort + search.effort, max(most, prospect)
                broken = [common.clients[i] for i in plan.broken]
                choice = mended(promise, choice, broken) if prospect > before else None
                before = prospect
        return found

    def _best_on(self, fleet: Fleet) -> "_Option":
        return self._searching(fleet).best()

    def _searching(self, fleet: Fleet) -> "_Searching":
        chosen = pace(fleet)
        return self._search(fleet, chosen, resuming(chosen))

    def _search(
        self,
        fleet: Fleet,
        chosen: Pace,
        resume: Resumer | None = None,
        released: Collection[int] = (),
    ) -> "_Searching":
        packers = [leading(chosen), in_order]
        search = Admission(fleet, chosen.load, packers, EXPECTED_LOAD, self._margin, resume, released)
        interval = [int(ms * fleet.frames_per_ms) or 1 for ms in chosen.period_ms]
        return _Searching(fleet, search, chosen, interval, chosen.batch)

    def _second_thoughts(self, option: "_Option", effort_max: float = float("inf")) -> "_Option":
        """The best of what further searches find, while somebody is left out whom a plan could serve; the first of
        equals. No further one is begun once they have cost `effort_max`.
        """
        if option.served == len(option.fleet.clients) or (not option.decision.removed and self._is_full(option, ROOMY)):
            return option
        state = opening(option.fleet)
        able = sum(not is_hopeless(option.fleet, state, i) for i in range(len(option.fleet.clients)))
        for search in (*self._paying_debts(option, state), self._in_order, _floor):
            if effort_max <= 0 or (option.served >= able and not option.fleet.problem.has_variants):
                break
            if search is _floor and (self._margin or self._is_full(option, FULL)):
                break
            found = search(option, effort_max)
            effort_max -= found.decision.effort if found else 0
            option = found if found and found.served > option.served else option
        return option

    def _is_full(self, option: "_Option", share: float) -> bool:
        """Whether many are served, and take this share of what plans usually carry.

        No baseline was seen to serve more there, at `ROOMY` if nobody has to
        go and else at `FULL` (docs/benchmarks/offload.md), and every period asks anew."""
        members = option.decision.verified.members
        if len(members) < SMALL:
            return False
        load = pace(option.fleet).load
        return sum(load[i] for i in members) >= share * EXPECTED_LOAD

    def _paying_debts(self, option: "_Option", state: Opening) -> list["_Search"]:
        """Searches in which whoever was shown an old result runs more often until it is made good; then without
        those who cost too much by it.
        """
        fleet = option.fleet
        usual = pace(fleet).load
        chosen = pace(fleet, [allowed_after(fleet, state, i) for i in range(len(fleet.clients))])
        times = [hurried / max(load, 1e-9) for hurried, load in zip(chosen.load, usual, strict=True)]
        limits = [limit for limit in RELEASED if max(times) > limit]
        if not limits:
            return []

        def without(limit: float) -> "_Search":
            released = {i for i, more in enumerate(times) if more > limit}
            return lambda best, effort_max: self._search(fleet, chosen, released=released).best(best.served, effort_max)

        return [without(float("inf")), *map(without, limits)]

    def _in_order(self, option: "_Option", effort_max: float) -> "_Option":
        """ARISE's own search."""
        fleet = option.fleet
        settings = step1(fleet)
        search = Admission(fleet, settings.load, [adjusting(settings)], EXPECTED_LOAD, self._margin)
        return _Option(fleet, search.decide(option.served, effort_max), settings.interval, settings.batch)


@dataclass(frozen=True, slots=True)
class _Option:
    """A decision on one choice of variants, not yet written as a plan; `interval` and `batch` by client are what it
    was built around.
    """

    fleet: Fleet
    decision: Decision
    interval: Sequence[int]
    batch: Sequence[int]

    @property
    def served(self) -> int:
        return len(self.decision.verified.members)

    def plan(self) -> OffloadPlan:
        return assemble(self.fleet, self.decision, self.interval, self.batch, "earliest due")


@dataclass(slots=True)
class _Searching:
    """The search on one choice of variants; `interval` and `batch` as of `_Option`."""

    fleet: Fleet
    search: Admission
    chosen: Pace
    interval: Sequence[int]
    batch: Sequence[int]

    @property
    def effort(self) -> int:
        """So far, as of `Verified`."""
        return self.search.effort

    def prospect(self) -> Verified:
        """As of `Admission`."""
        return self.search.prospect(leading(self.chosen, 0), PROBED_SHARE)

    def best(self, beat: int = 0, effort_max: float = float("inf")) -> _Option:
        """What it finds. `beat`, `effort_max`: as of `Admission.decide`."""
        return _Option(self.fleet, self.search.decide(beat, effort_max), self.interval, self.batch)


@dataclass(frozen=True, slots=True)
class _Probe:
    """A choice that was tried on a part of the horizon: the place of its promise, how many clients it may serve, and
    what that plan has cost, as of `Verified`.
    """

    at: int
    search: _Searching
    prospect: int
    plan_effort: int


def _turns(promises: Sequence[Promise], probes: Sequence[_Probe]) -> list[tuple[int, _Searching | None]]:
    """Places of promises in the order in which they are searched, once the first of `probes` has been, with the search
    where it was begun: the best ones of one variant for all, since a joint choice is to be no loss, then those that
    were probed, then the others.
    """
    alone = [at for at, promise in enumerate(promises) if promise.is_alone][:ALONE_FIRST]
    begun = [(probe.at, probe.search) for probe in probes[1:] if probe.at not in alone]
    seen = {*alone, *(probe.at for probe in probes)}
    return [*((at, None) for at in alone), *begun, *((at, None) for at in range(len(promises)) if at not in seen)]


_Search = Callable[[_Option, float], _Option | None]
"""From the best option so far, and the effort that it may cost, to another one."""


def _floor(option: _Option, effort_max: float) -> _Option | None:
    """The best of the baselines, each client on its most accurate variant; None if none may serve more."""
    problem = option.fleet.problem
    fleet = fleet_of(problem) if problem.has_variants else option.fleet
    trials_max = min(FLOOR_TRIALS_MAX, effort_max // (len(FLOOR) * max(1, option.decision.verified.effort)))
    found = floor(fleet, option.served, trials_max)
    return None if found is None else _Option(fleet, found[0], found[1].interval, found[1].batch)


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
        plan = verified(fleet, state, members, [*slots, *new])
        planned = {i for _, _, requests in slots for i, _ in requests}
        plan.leaves_out = any(
            i not in planned and due_ms(fleet, state, i, chosen.period_ms[i], fleet.up_ms[i]) < slots[-1][0]
            for i in members
        )
        return plan

    return go_on


def leading(chosen: Pace, rounds: int = ROUNDS) -> Packer:
    """Pack by urgency; mend a plan that nearly holds, so many times."""

    def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
        period_ms, is_mixed = chosen.period_ms, fleet.problem.has_variants
        plan = verified(fleet, state, members, pack_due(fleet, state, members, chosen.batch, period_ms, PATIENT))
        for _ in range(rounds):
            if not 0 < len(plan.broken) <= max(1, len(members) // MENDED):
                break
            if is_mixed and plan.effort > MENDED_EFFORT_MAX:
                break
            period_ms = _shifted(fleet, plan, period_ms)
            mended = verified(fleet, state, members, pack_due(fleet, state, members, chosen.batch, period_ms, EAGER))
            effort = plan.effort + mended.effort
            plan = replace(mended if len(mended.broken) <= len(plan.broken) else plan, effort=effort)
        return plan

    return pack


def _shifted(fleet: Fleet, plan: Verified, period_ms: list[float]) -> list[float]:
    """Periods moved by the slack of each member: a stride of one frame too many shortens its period by one frame."""
    shifted = period_ms[:]
    for i, stride in plan.strides.items():
        slack = min(max(fleet.aimed[i] - stride, -SLACK_FRAMES_MAX), SLACK_FRAMES_MAX)
        shifted[i] = max(fleet.frame_ms, period_ms[i] + slack * fleet.frame_ms)
    return shifted
