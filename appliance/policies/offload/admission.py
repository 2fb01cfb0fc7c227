"""Who is served: remove while an SLA breaks, add while none does (step 2c, AR-15, AR-16).

The same for every policy; the packers are parameters.

The paper leaves open whom. Here: a client whose SLA no plan could keep goes first; then the one that takes most of the
processor, which makes room for the most others. If that mends nothing, the heaviest of those whose SLA breaks goes
next. Of the waiting the cheapest come first, and after them those who had to go, if there is room again. Ties: the name
that comes last goes first. So the choice depends on slow quantities (drop rate, SLA, link), not on the phase of a
request, and is the same a period later.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from appliance.policies.offload.fleet import Fleet, glance_of
from appliance.policies.offload.ledger import Opening, opening
from appliance.policies.offload.verify import TIGHT, Verified, is_hopeless

OVERLOAD_MAX = 1.2
"""Σ load beyond which a set is not even tried: the heaviest go at once.

Loads assume full batches, so no packer comes near.
"""

ROOMY = 0.7
"""Share of the expected load below which a broken SLA is the client's own trouble, not the crowd's."""
BLOCKING_MAX = 2
"""Clients that a trial may show to be in trouble of their own; if more are, the plan is at fault."""
MIXED_ROOMY, MIXED_BLOCKING = 1.1, 0.25
"""The same of a crowd on several networks, as shares of the expected load and of the clients: there a long run of one
network breaks the SLAs of those who need short waits, however much room the processor has."""

SMALL = 12
"""Clients up to which another packer gets a chance at one more: there a single batch decides, and a plan costs
little.
"""

BEGIN_EFFORT = 8
"""What it costs to begin a search, by client, as of `Verified`: its columns, paces and opening."""

Packer = Callable[[Fleet, Opening, Sequence[int]], Verified]
Resumer = Callable[[Fleet, Opening, Sequence[int]], Verified | None]
"""None: nothing to go on with."""


@dataclass(slots=True)
class Decision:
    """The set to serve with its plan, the opening it begins from, how many plans were tried, how many clients have
    to go, and the effort of the search, as of `Verified`.
    """

    verified: Verified
    state: Opening
    trials: int
    removed: int
    effort: int


class Admission:
    """One search.

    Trials: one if all is well and nobody waits, else about 2·log₂ of the candidates more, and one or two a removal.
    """

    def __init__(
        self,
        fleet: Fleet,
        load: Sequence[float],
        packers: Sequence[Packer],
        expected: float,
        margin: float = 0.0,
        resume: Resumer | None = None,
        released: Collection[int] = (),
    ) -> None:
        """`packers`: the first one searches, the others get a second chance where it fails.

        `expected`: Σ load up to which SLAs are usually kept; only
        where the search starts. `margin`: share of its SLA that every client keeps free when one is admitted to a box
        that serves others. `resume`: how to go on with the previous plan. `released`: served clients that stay only if
        there is room after the waiting ones."""
        self._fleet = fleet
        self._load = load
        self._packers = packers
        self._expected = expected
        self._margin = margin
        self._resume = resume
        self._released = released
        self._state = opening(fleet)
        self._trials = 0
        self.effort = BEGIN_EFFORT * len(fleet.clients)
        """So far, as of `Verified`."""
        order = sorted(range(len(fleet.clients)), key=lambda i: (load[i], i))
        able = [i for i in order if load[i] < float("inf")]
        self._served = [i for i in able if fleet.is_served[i]]
        self._held = [i for i in self._served if i not in released]
        self._able = [i for i in able if not fleet.is_served[i] and not is_hopeless(fleet, self._state, i)]

    def prospect(self, packer: Packer, share: float) -> Verified:
        """A plan of all that stay, and of as many of the waiting as are usually carried, over that `share` of the
        horizon: about those of them may be served whose SLAs hold in it.
        """
        base = sum([self._load[i] for i in self._held])
        joined = [*self._held, *self._able[: max(1, self._number_within(self._expected, base, self._able))]]
        glance = glance_of(self._fleet, share)
        return self.counted(packer(glance, opening(glance), self._sorted(joined)))

    def decide(self, beat: int = 0, effort_max: float = float("inf")) -> Decision:
        """`beat`: nobody is interested in serving no more clients than this; the search ends where it sees that it will
        not get there. `effort_max`: nor does it look for more where that would cost more and it serves some.
        """
        fleet = self._fleet
        base = self._first(self._held)
        if base is None or base.broken:
            hopeful = [i for i in self._held if not is_hopeless(fleet, self._state, i)]
            base = self._keep(hopeful, beat - len(self._able) if beat and fleet.problem.has_variants else 0)
        kept = set(base.members)
        best = self._extend(base, [*self._able, *(i for i in self._served if i not in kept)], beat, effort_max)
        is_served = {i for i in range(len(fleet.clients)) if fleet.is_served[i]}
        while self._forget(is_served - set(best.members)):
            best = self._keep(best.members)
        staying = sum(fleet.is_served[i] for i in best.members)
        return Decision(best, self._state, self._trials, sum(fleet.is_served) - staying, self.effort)

    def _first(self, served: Sequence[int]) -> Verified | None:
        """A plan of all that are served.

        While nobody waits, the previous plan goes on if it can, which is quick, and leaves out nobody; else a new one,
        which leaves more room for others, and the previous one only where that would break an SLA."""
        ways = [self._anew, self._go_on] if len(served) < len(self._fleet.clients) else [self._go_on, self._anew]
        plan = ways[0](served)
        if plan is None or plan.broken:
            plan = ways[1](served) or plan
        elif plan.leaves_out:
            anew = self._anew(served)
            plan = anew if anew is not None and anew.ok else plan
        return plan

    def _go_on(self, served: Sequence[int]) -> Verified | None:
        plan = self._resume(self._fleet, self._state, served) if self._resume else None
        self._trials += plan is not None
        return plan and self.counted(plan)

    def _anew(self, served: Sequence[int]) -> Verified | None:
        return self._try(served) if sum([self._load[i] for i in served]) <= OVERLOAD_MAX else None

    def _forget(self, gone: set[int]) -> bool:
        """Take clients that are no longer served out of the head. True if that changed it."""
        if not gone or not any(i in gone for _, _, requests in self._state.head for i, _ in requests):
            return False
        self._state = opening(self._fleet, frozenset(gone))
        return True

    def _try(self, members: Sequence[int], packer: Packer | None = None) -> Verified:
        self._trials += 1
        return self.counted((packer or self._packers[0])(self._fleet, self._state, members))

    def counted(self, plan: Verified) -> Verified:
        self.effort += plan.effort
        return plan

    def _keep(self, served: list[int], more_than: int = 0) -> Verified:
        """The served, less those that have to go; nobody where no more than `more_than` would be left."""
        members = served[:]
        total = sum(self._load[i] for i in members)
        while members and total > OVERLOAD_MAX:
            total -= self._load[members.pop()]
        plan = self._try(members if len(members) > more_than else [])
        broken_before = len(plan.broken) + 1
        while plan.broken:
            second = self._second_chance(plan.members) if len(plan.broken) == 1 else None
            if second:
                return second
            stuck = len(plan.broken) >= broken_before
            broken_before = len(plan.broken)
            left = self._without_heaviest(plan, of=plan.broken if stuck else plan.members)
            plan = self._try(left if len(left) > more_than else [])
        return plan

    def _without_heaviest(self, plan: Verified, of: list[int]) -> list[int]:
        """One goes, or several where many SLAs break."""
        count = max(1, len(plan.broken) // 4)
        heavy = set(sorted(of, key=lambda i: (self._load[i], i))[-count:])
        return [i for i in plan.members if i not in heavy]

    def _second_chance(self, members: Sequence[int]) -> Verified | None:
        for packer in self._packers[1:]:
            plan = self._try(members, packer)
            if plan.ok:
                return plan
        return None

    def _extend(self, base: Verified, candidates: list[int], beat: int, effort_max: float) -> Verified:
        """`base` with the longest prefix of candidates that the search finds to keep every SLA: from the expected
        number up or down, then by halves.
        """
        if not candidates:
            return base
        total = sum([self._load[i] for i in base.members])
        best, low, high = base, 0, self._number_within(OVERLOAD_MAX, total, candidates)
        enough = beat + 1 - len(base.members) if beat else 0
        guess, step, top = enough or self._number_within(self._expected, total, candidates), 1, high
        cost = 0
        while low < high and high >= enough and (self.effort + cost < effort_max or not (best.members or beat)):
            guess = max(low + 1, min(high, guess))
            plan = self._try(self._joined(base, candidates[:guess]))
            cost = plan.effort
            if self._is_admissible(plan, base):
                best, low = plan, guess
            elif blocking := self._blocking(plan, base):
                candidates = [i for i in candidates if i not in blocking]
                top = high = min(high, len(candidates))
                guess = max(enough, guess - len(blocking)) if self._fleet.problem.has_variants else guess
                continue
            else:
                high = guess - 1
            bracketed = low > 0 and high < top
            guess, step = ((low + high + 1) // 2, step) if bracketed else (guess + step * (1 if low else -1), step * 2)
        while enough - 1 <= low < top and len(best.members) < SMALL and self.effort < effort_max:
            plan_or_none = self._second_chance(self._joined(base, candidates[: low + 1]))
            if plan_or_none is None or not self._is_admissible(plan_or_none, base):
                break
            best, low = plan_or_none, low + 1
        return best

    def _blocking(self, plan: Verified, base: Verified) -> set[int]:
        """Candidates that cannot be served now although the processor has room: only their SLAs break.

        They must not keep out those behind them.
        """
        broken = set(plan.broken) - set(base.members)
        room, most = ROOMY, BLOCKING_MAX
        if self._fleet.problem.has_variants:
            room, most = MIXED_ROOMY, max(most, int(MIXED_BLOCKING * len(plan.members)))
        has_room = sum(self._load[i] for i in plan.members) < room * self._expected
        return broken if has_room and len(broken) == len(plan.broken) <= most else set()

    def _joined(self, base: Verified, more: Sequence[int]) -> list[int]:
        return self._sorted([*base.members, *more])

    def _sorted(self, members: Sequence[int]) -> list[int]:
        return sorted(members, key=lambda i: (self._load[i], i))

    def _is_admissible(self, plan: Verified, base: Verified) -> bool:
        fleet, spare = self._fleet, self._margin
        if plan.broken or not all(stride <= fleet.aimed[i] + TIGHT for i, stride in plan.strides.items()):
            return False
        if not spare or not base.members:
            return True
        return all(
            fleet.allowed[i] - stride + TIGHT >= spare * (fleet.allowed[i] - fleet.reference[i])
            for i, stride in plan.strides.items()
        )

    def _number_within(self, load: float, total: float, candidates: list[int]) -> int:
        """How many candidates join a Σ load of `total` before that passes `load`."""
        for number, i in enumerate(candidates):
            total += self._load[i]
            if total > load:
                return number
        return len(candidates)
