"""First come, first served: the job that arrived first, by its quickest sequence."""

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan
from appliance.policies.dispatch.outlook import Outlook
from appliance.policies.dispatch.turns import arrival, in_turn, nobody


class Fifo:
    """Ties: the name."""

    requeues_at_head = True

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        turn = in_turn(problem, Outlook(problem))
        first = turn.first(arrival)
        if first is None:
            return nobody(problem, turn)
        group, job = first
        return decided(problem, job, group.expected(), turn, "came first")
