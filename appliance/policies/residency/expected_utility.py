"""Our own policy: memory is worth what it answers.

Everybody's smallest variant first, the rest where it buys most accuracy for the requests to come.

`worth` says what each variant of each application is worth over the next seconds: the chance of a request times the
accuracy, less what a cold start costs, less what answers worse or not at all while it loads. Between requests
(`rebalance`) memory is given out by worth per byte. So the floors, the smallest variants that will do, come first as
long as anybody may ask for them; one that is surely not needed before it can be back makes room for an upgrade that is.
A requester (`demotions`) gets the variant that is worth most after what others lose by giving way; §III's last resort
is the fallback.
"""

from collections.abc import Sequence

from appliance.policies.residency.base import ApplicationState, Change, Option, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.demotions import Demotions, best_demotions, demotions
from appliance.policies.residency.last_resort import force_out
from appliance.policies.residency.rebalance import rebalance
from appliance.policies.residency.requester import fits_now, largest_fit, loads, no_room, stays, wanted_options
from appliance.policies.residency.steps import Steps, at_once
from appliance.policies.residency.victims import NO_WISH
from appliance.policies.residency.worth import Outlook


class ExpectedUtility:
    """Ties by name. O(v²·n²) at worst for v variants and n applications that all must give way, O(v·n) where few do."""

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan:
        """See `EvictionPolicy`."""
        if problem.request is None or problem.intent == "rebalance":
            return at_once(rebalance(problem))
        asker = problem.asker
        loaded = asker.loaded
        wanted = wanted_options(problem, asker, loaded)
        if not wanted:
            return stays(asker)
        # Where nobody waits nobody gives way: what is worth that is found between requests.
        if problem.intent == "procure" and not fits_now(problem, asker, wanted):
            return no_room(problem, asker, loaded, nobody_yields=True)
        outlook = Outlook(problem)
        found = demotions(problem, outlook) if problem.intent == "serve" else None
        for level in sorted({NO_WISH} | (set() if found is None else found.levels())):
            chosen = best_demotions(problem, outlook, wanted, None if found is None else found.up_to(level))
            if chosen is not None:
                return loads(asker, *chosen)
        forced = _forced(problem, asker, wanted, found) if found else None
        return no_room(problem, asker, loaded) if forced is None else loads(asker, *forced)

    def steps(self, problem: ResidencyProblem) -> Steps:
        """See `in_steps`: what memory should hold takes long where there are many applications."""
        if problem.request is None or problem.intent == "rebalance":
            return (yield from rebalance(problem))
        return self.plan(problem)


def _forced(
    problem: ResidencyProblem, asker: ApplicationState, wanted: Sequence[Option], found: Demotions
) -> tuple[Option, list[Change]] | None:
    """The smallest variant at any cost, for peaks or guarantees may forbid the cheapest way: whoever loses least
    goes first.
    """
    losses = found.losses_of_leaving()
    ranking = sorted(losses, key=lambda name: (losses[name], name))
    for smallest in sorted(wanted, key=lambda option: (option.bytes, option.name)):
        changes = force_out(problem, ranking, asker, smallest)
        if changes is not None:
            return largest_fit(problem, asker, wanted, changes), changes
    return None
