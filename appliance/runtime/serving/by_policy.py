"""The choice between several groups of processors, by a policy of dispatch.

What waits is asked about anew with each decision, so that a processor that is slower than expected loses work to
others.
"""

from collections.abc import Mapping, Sequence

from appliance.clock import NS_PER_S
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan, DispatchPolicy, Processor
from appliance.policies.dispatch.base import Job as DispatchJob
from appliance.runtime.engine.placement import Candidate, Placed, worth
from appliance.runtime.engine.work import Call
from appliance.runtime.ports import DecisionSink, RunGroup
from appliance.runtime.served_parts import TRANSFER_MS
from appliance.runtime.serving.dispatch_jobs import DispatchJobs, rounded_ms
from appliance.runtime.serving.job import Job

SAMPLED_NS = NS_PER_S
"""Decisions that are recorded are at least so far apart: a box decides hundreds of times a second."""


class ByPolicy:
    """Implements `Placement`."""

    def __init__(
        self,
        groups: Sequence[RunGroup],
        policy: DispatchPolicy,
        name: str,
        fixed: Mapping[str, str],
        decisions: DecisionSink,
    ) -> None:
        """`name` of the policy, in the decisions that are recorded; `fixed`: see `DispatchJobs`."""
        self.requeues_at_head = policy.requeues_at_head
        self._groups = tuple(groups)
        self._index = {group.name: at for at, group in enumerate(groups)}
        self._policy = policy
        self._name = name
        self._decisions = decisions
        self._dispatch_jobs = DispatchJobs(groups, fixed)
        self._recorded_ns: int | None = None
        self._last: tuple[DispatchInput, DispatchPlan] | None = None
        """The decision that is to be recorded if its run begins."""

    def place(
        self, candidates: Sequence[Candidate], free_ns: Mapping[int, Sequence[int]], now_ns: int
    ) -> Placed | None:
        """See `Placement`. Of a decision that is recorded, times are from now on, and names are places among the
        candidates: they tell a tenant nothing of others' requests.
        """
        is_sampled = self._recorded_ns is None or now_ns - self._recorded_ns >= SAMPLED_NS
        now_ms = 0.0 if is_sampled else self._dispatch_jobs.now_ms(now_ns)
        asked: list[DispatchJob] = []
        named: dict[str, Candidate] = {}
        for at, candidate in enumerate(candidates, 1):
            job: Job = candidate.call.reference
            open_to = candidate.groups
            stated = (
                self._dispatch_jobs.anew(f"{at:02}", job, open_to, now_ns)
                if is_sampled
                else self._dispatch_jobs.of(job, open_to)
            )
            asked.append(stated)
            named[stated.name] = candidate
        problem = DispatchInput(
            now_ms,
            tuple([Processor(self._groups[at].name, now_ms + rounded_ms(own[0])) for at, own in free_ns.items()]),
            tuple(asked),
            TRANSFER_MS if any(one.call.is_in_parts for one in candidates) else 0.0,
        )
        plan = self._policy.plan(problem)
        if plan.decision is None:
            return None
        self._last = (problem, plan) if is_sampled else None
        call, options, _ = named[plan.decision.job]
        group, ops = self._index[plan.decision.processor], plan.decision.ops
        option = next(one for one in options if one.group == group)
        if not call.is_in_parts:
            return Placed(call, option, free_ns[group][0], option.run_ns, worth=worth(call, option))
        return _part(call, Placed(call, option, free_ns[group][0], 0, ops), group)

    def begins(self, placed: Placed, now_ns: int) -> None:
        """See `Placement`."""
        job: Job = placed.call.reference
        if job.rest is not None:
            job.rest.next = tuple(int(op) for op in placed.ops)
        if self._last is None:
            return
        problem, plan = self._last
        self._last, self._recorded_ns = None, now_ns
        chosen = job.request
        self._decisions.record(
            "dispatch",
            {
                "policy": self._name,
                "problem": problem,
                "plan": plan,
                "application": chosen.application_id,
                "concerned": ((chosen.application_id, chosen.tenant),),
            },
        )


def _part(call: Call, placed: Placed, group: int) -> Placed:
    """Return how long some parts of a network hold a worker, and what that time is worth."""
    rest = call.reference.rest
    numbers = {int(op) for op in placed.ops}
    holds_ns = sum(rest.takes_ns[group][number] for number in numbers)
    able = [own for own in rest.takes_ns.values() if own.keys() >= numbers]
    least_ns = min(sum(own[number] for number in numbers) for own in able)
    return Placed(call, placed.option, placed.start_in_ns, holds_ns, placed.ops, least_ns / max(1, holds_ns))
