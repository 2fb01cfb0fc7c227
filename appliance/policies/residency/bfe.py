"""Best-fit eviction (Edge-MultiAI §III-B3, Policy 2): the minimalist is unloaded whose size differs least from what is
missing.

The paper does not say what happens where no single variant suffices. Here, as in the authors' early simulator: the
least that is enough, else the largest, and again with what is still missing.
"""

from collections.abc import Sequence

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.requester import answer
from appliance.policies.residency.space import Space
from appliance.policies.residency.victims import Victim, make_room, unloaded, victims


class BestFit:
    """What is missing = the peak of the wanted variant less the free memory.

    Ties by name. O(n²) at most for each of the requester's variants.
    """

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        return answer(problem, victims(problem, unloaded), _room)


def _room(space: Space, asker: ApplicationState, wanted: Option, found: Sequence[Victim]) -> list[Change] | None:
    return make_room(space, asker, wanted, found, best_fit)


def best_fit(found: Sequence[Victim], short_bytes: int) -> Victim:
    """The least that frees `short_bytes`, else the one that frees most; lower levels of wishes first."""
    level = min(victim.level for victim in found)
    found = [victim for victim in found if victim.level == level]
    enough = [victim for victim in found if victim.freed_bytes >= short_bytes]
    if enough:
        return min(enough, key=lambda victim: victim.freed_bytes)
    return max(found, key=lambda victim: victim.freed_bytes)
