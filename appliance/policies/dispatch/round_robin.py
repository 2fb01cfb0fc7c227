"""In turns: the job that is in the queue for longest, on the processor that has been free for longest."""

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan
from appliance.policies.dispatch.outlook import Outlook
from appliance.policies.dispatch.turns import in_turn, nobody


class RoundRobin:
    """It runs there as much as it can. Ties: the names."""

    requeues_at_head = False

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        turn = in_turn(problem, Outlook(problem))
        first = turn.first(lambda job: (job.arrival_ms if job.queued_ms is None else job.queued_ms, job.name))
        if first is None:
            return nobody(problem, turn)
        group, job = first
        free_ms = {processor.name: processor.busy_until_ms for processor in problem.processors}
        choices = [one for _after, one in job.partition.next[job.done]]
        able = {processor for one in choices for processor in one.latency_ms} & free_ms.keys()
        processor = min(able, key=lambda name: (free_ms[name], name))
        largest = max((one for one in choices if processor in one.latency_ms), key=lambda one: len(one.ops))
        return decided(problem, job, group.after(largest, processor), turn, "longest in the queue")
