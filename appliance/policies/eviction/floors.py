"""Our own policy: everybody's smallest variant first, then the rest of memory where it buys most accuracy for the requests that are about to come.

A floor is the smallest variant that will do. As long as all floors fit, none is unloaded, so no request is cold; between requests (`rebalance`) absent
floors are brought in before any upgrade. What is left goes to upgrades by value: expected requests × accuracy × weight (`worth.py`), per byte. A requester
takes the upgrades of minimalists, cheapest loss per byte first, as long as it gains more than they lose; it never takes the floors of others for an
upgrade. Where floors do not all fit, those go cold whose requests are due last (`urgency`), and change hands as requests come (§III's last resort).
"""

from collections.abc import Sequence

from appliance.policies.eviction import ladder
from appliance.policies.eviction.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.eviction.exchange import best_exchange, cheapest_first
from appliance.policies.eviction.last_resort import force_out
from appliance.policies.eviction.rebalance import rebalance
from appliance.policies.eviction.requester import loads, no_room, stays, wanted_options
from appliance.policies.eviction.space import bounded
from appliance.policies.eviction.victims import NO_WISH, levels
from appliance.policies.eviction.worth import urgency


class Floors:
    """Ties by name. O(v·n log n) for v variants of the requester; `rebalance` O(n²·v) at most."""

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        if problem.request is None or problem.intent == "rebalance":
            return rebalance(problem)
        asker = problem.by_name[problem.request]
        loaded = ladder.resident(asker)
        wanted = wanted_options(problem, asker, loaded)
        if not wanted:
            return stays(asker)
        waits = loaded is None or problem.intent == "serve"
        found = cheapest_first(problem)
        for level in levels(found) if waits else (NO_WISH,):
            allowed = [victim for victim in found if victim.level <= level]
            chosen = best_exchange(problem, asker, wanted, allowed)
            if chosen is not None:
                return loads(asker, *chosen)
        if problem.intent == "serve":
            forced = _forced(problem, asker, wanted)
            if forced is not None:
                return loads(asker, *forced)
        return no_room(problem, asker, loaded)


def _forced(
    problem: ResidencyProblem, asker: ApplicationState, wanted: Sequence[Option]
) -> tuple[Option, list[Change]] | None:
    """The smallest variant at the cost of floors, then the best one that fits into what that has freed."""
    others = [a for a in problem.applications if a.resident is not None and a.name != asker.name]
    cost = {a.name: urgency(problem, a) for a in others}
    ranking = sorted(cost, key=lambda name: (cost[name], name))
    for smallest in sorted(wanted, key=lambda option: (option.bytes, option.name)):
        changes = force_out(problem, ranking, asker, smallest)
        if changes is None:
            continue
        for option in wanted:
            if bounded(problem, (*changes, Change(asker.name, asker.resident, option.name))):
                return option, changes
    return None
