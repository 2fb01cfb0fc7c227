"""Least slack first (Band §4.3.1, Fig. 12): the job with the least time to spare, if it runs as quickly as it can."""

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import FOREVER, DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.outlook import Group, Outlook, due_of
from appliance.policies.dispatch.turns import in_turn, nobody

_TIE_MS = 1e-6
"""Slacks are told apart to so much: sums of equal times in another order differ by less."""


class LeastSlack:
    """Slack = arrival + SLO − now − expected latency. Ties: the earlier arrival, then the name."""

    requeues_at_head = True

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        outlook = Outlook(problem)
        turn = in_turn(problem, outlook)
        # Of jobs that have come equally far, the one that is due first has the least slack. How long all of them take
        # on idle processors bounds it from above; from below, the longest that anybody waits for one.
        due = []
        for group, jobs in turn.candidates.items():
            job = group.due if len(jobs) == len(group.jobs) else due_of(jobs)
            due.append((job.deadline_ms - group.took_ms, group, job))
        if not due:
            return nobody(problem, turn)
        due.sort(key=_most)
        longest_ms = outlook.now_ms + outlook.delay_ms
        best: tuple[tuple[float, float, str], Group, Job] | None = None
        for most_ms, group, job in due:
            if best is not None:
                at_most_ms = best[0][0] + _TIE_MS
                if most_ms - longest_ms > at_most_ms:
                    break  # whoever is left has more slack, however quick it is
                if job.deadline_ms - group.surely_ms > at_most_ms:
                    continue
            slack_ms = FOREVER if most_ms == FOREVER else round(job.deadline_ms - group.finish_ms, 6)
            order = slack_ms, job.arrival_ms, job.name
            if best is None or order < best[0]:
                best = order, group, job
        assert best is not None
        _order, group, job = best
        return decided(problem, job, group.expected(), turn, "least slack")


def _most(one: tuple[float, Group, Job]) -> float:
    return one[0]
