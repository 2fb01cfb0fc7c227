"""Who is served: remove while an SLA breaks, add while none does (step 2c, AR-15, AR-16). The same for every policy; the packer is a parameter.

The paper leaves open whom. Here: those whose SLA no plan could keep go first; then, of the violators, the one that takes most of the processor. Those
who are served stay before those who wait; among the waiting the cheapest come first. Ties: the name that comes last goes first. So the choice depends on
slow quantities (drop rate, SLA, link), not on the phase of a request, and does not flap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.ledger import Opening, Slot, opening
from appliance.policies.offload.verify import is_hopeless, mean_strides, violators

OVERLOAD_MAX = 1.5
"""Σ load beyond which a set is not even tried: the heaviest go at once. Loads assume full batches, so no packer comes near."""


@dataclass(slots=True)
class Packed:
    """A set of clients with its plan; `slots` without the head. `ok`: no SLA breaks."""

    members: list[int]
    slots: list[Slot]
    strides: dict[int, float]
    broken: list[int]

    @property
    def ok(self) -> bool:
        return not self.broken


Packer = Callable[[Fleet, Opening, Sequence[int]], list[Slot]]


@dataclass(slots=True)
class Decision:
    packed: Packed
    state: Opening
    trials: int


class Admission:
    """One search: caches nothing but counts its trials. At most about 2·log₂ of the candidates beyond the first plan, plus one per removal."""

    def __init__(self, fleet: Fleet, load: Sequence[float], pack: Packer, expected: float) -> None:
        """`expected`: Σ load up to which the packer usually keeps every SLA; only where the search starts."""
        self._fleet = fleet
        self._load = load
        self._pack = pack
        self._expected = expected
        self._state = opening(fleet)
        self._trials = 0

    def decide(self) -> Decision:
        fleet, load = self._fleet, self._load
        order = sorted(range(len(fleet.clients)), key=lambda i: (load[i], i))
        served = [i for i in order if fleet.is_served[i] and not self._is_out(i)]
        waiting = [i for i in order if not fleet.is_served[i] and not self._is_out(i)]
        base = self._keep(served)
        kept = set(base.members)
        removed = [i for i in served if i not in kept]
        if len(kept) < sum(fleet.is_served):
            self._forget({i for i in order if fleet.is_served[i] and i not in kept and i not in removed})
        best = self._extend(base, removed + waiting)
        gone = {i for i in order if fleet.is_served[i] and i not in set(best.members)}
        if self._forget(gone):
            best = self._settle(best.members)
        return Decision(best, self._state, self._trials)

    def _is_out(self, i: int) -> bool:
        return self._load[i] == float("inf") or is_hopeless(self._fleet, self._state, i)

    def _forget(self, gone: set[int]) -> bool:
        """Take clients that are no longer served out of the head. True if the head changed."""
        if not any(i in gone for _, _, requests in self._state.head for i, _ in requests):
            return False
        self._state = opening(self._fleet, frozenset(gone))
        return True

    def _settle(self, members: list[int]) -> Packed:
        """Plan after the head changed; removes on where that broke an SLA."""
        best = self._try(members)
        while best.broken:
            best = self._try(self._without_heaviest(best, 1))
        return best

    def _try(self, members: list[int]) -> Packed:
        self._trials += 1
        slots = self._pack(self._fleet, self._state, members) if members else []
        strides = mean_strides(self._fleet, self._state, members, slots)
        return Packed(members, slots, strides, violators(self._fleet, strides))

    def _keep(self, served: list[int]) -> Packed:
        """The served, less those that have to go."""
        members = served[:]
        total = sum(self._load[i] for i in members)
        while members and total > OVERLOAD_MAX:
            total -= self._load[members.pop()]
        packed = self._try(members)
        while packed.broken:
            over = max(1, len(packed.broken) // 4)
            packed = self._try(self._without_heaviest(packed, over))
        return packed

    def _without_heaviest(self, packed: Packed, count: int) -> list[int]:
        heavy = sorted(packed.broken, key=lambda i: (self._load[i], i))[-count:]
        return [i for i in packed.members if i not in heavy]

    def _extend(self, base: Packed, candidates: list[int]) -> Packed:
        """`base` with the longest prefix of candidates that the search finds to keep every SLA: from the expected number up or down, then by halves."""
        best, low, high = base, 0, len(candidates)
        guess = self._expected_number(base, candidates)
        step = 1
        while low < high:
            guess = max(low + 1, min(high, guess))
            packed = self._try(sorted([*base.members, *candidates[:guess]], key=lambda i: (self._load[i], i)))
            if packed.ok:
                best, low = packed, guess
                guess, step = (guess + step, step * 2) if high == len(candidates) else ((low + high + 1) // 2, step)
            else:
                high = guess - 1
                guess, step = (guess - step, step * 2) if low == 0 else ((low + high + 1) // 2, step)
        return best

    def _expected_number(self, base: Packed, candidates: list[int]) -> int:
        total = sum(self._load[i] for i in base.members)
        for number, i in enumerate(candidates):
            total += self._load[i]
            if total > self._expected:
                return number
        return len(candidates)
