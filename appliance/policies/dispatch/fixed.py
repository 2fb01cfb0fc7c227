"""A processor for each network, as common runtimes have it; the yardstick of Band §6.1.

What that processor does not run goes to the quickest of the others, unit by unit, and back again: all that it can run
runs there (the paper's "TFLite+MaxPartition").
"""

from collections.abc import Collection

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.outlook import Outlook
from appliance.policies.dispatch.turns import arrival, in_turn, nobody


class Fixed:
    """First come, first served. Ties: the name."""

    requeues_at_head = True

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        turn = in_turn(problem, Outlook(problem))
        first = turn.first(arrival)
        if first is None:
            return nobody(problem, turn)
        group, job = first
        there = {processor.name for processor in problem.processors}
        home = job.fixed if job.fixed in there else _home(job, there)
        choices = [one for _after, one in job.partition.next[job.done] if one.latency_ms.keys() & there]
        at_home = [one for one in choices if home in one.latency_ms]
        if at_home:
            subgraph, processor = max(at_home, key=lambda one: len(one.ops)), home
        else:
            subgraph = min(choices, key=lambda one: (one.units.bit_count(), one.units))
            processor = min(subgraph.latency_ms.keys() & there, key=lambda p: (subgraph.latency_ms[p], p))
        return decided(problem, job, group.after(subgraph, processor), turn, f"came first, fixed to {home!r}")


def _home(job: Job, there: Collection[str]) -> str:
    """The processor that runs most of its operators, then the quickest of these, then the first name."""
    units = [one for one in job.partition.subgraphs if one.units.bit_count() == 1]

    def rank(processor: str) -> tuple[int, float, str]:
        own = [one for one in units if processor in one.latency_ms]
        return -sum(len(one.ops) for one in own), sum(one.latency_ms[processor] for one in own), processor

    return min(there, key=rank)
