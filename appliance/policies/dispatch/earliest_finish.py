"""Earliest finish of all jobs together, for frames that need all results: the longest job first, where it ends first.

Heterogeneous earliest finish time without its graph of tasks: a frame is done with its last result, so the job that
would end last is placed first (Band §6.2 measures such frames).
"""

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan
from appliance.policies.dispatch.outlook import Outlook
from appliance.policies.dispatch.turns import arrival, in_turn, nobody


class EarliestFinish:
    """Ties: the earlier arrival, then the name."""

    requeues_at_head = True

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        turn = in_turn(problem, Outlook(problem))
        chosen = min(
            ((group, min(jobs, key=arrival)) for group, jobs in turn.candidates.items()),
            key=lambda one: (-one[0].finish_ms, *arrival(one[1])),
            default=None,
        )
        if chosen is None:
            return nobody(problem, turn)
        group, job = chosen
        return decided(problem, job, group.expected(), turn, "ends last of all that wait")
