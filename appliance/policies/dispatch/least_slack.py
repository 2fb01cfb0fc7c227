"""Least slack first (Band §4.3.1, Fig. 12): the job with the least time to spare, if it runs as quickly as it can."""

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.outlook import Group, Outlook, due_first
from appliance.policies.dispatch.turns import in_turn, nobody


class LeastSlack:
    """Slack = arrival + SLO − now − expected latency. Ties: the earlier arrival, then the name."""

    requeues_at_head = True

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        turn = in_turn(problem, Outlook(problem))
        # Of jobs that have come equally far, the one that is due first has the least slack.
        due = [
            (group, group.due if len(jobs) == len(group.jobs) else min(jobs, key=due_first))
            for group, jobs in turn.candidates.items()
        ]
        if not due:
            return nobody(problem, turn)
        due.sort(key=lambda one: one[1].deadline_ms - one[0].surely_ms)
        best: tuple[tuple[float, float, str], Group, Job] | None = None
        for group, job in due:
            if best is not None and job.deadline_ms - group.surely_ms > best[0][0]:
                break  # whoever is left has more slack, however quick it is
            order = round(job.deadline_ms - group.finish_ms, 6), job.arrival_ms, job.name
            if best is None or order < best[0]:
                best = order, group, job
        assert best is not None
        _order, group, job = best
        return decided(problem, job, group.expected(), turn, "least slack")
