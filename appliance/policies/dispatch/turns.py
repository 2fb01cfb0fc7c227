"""Whose jobs a policy may choose from: those in time before those that are late, then the tenant whose turn it is, then
the highest priority (fair shares stand before slack).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.policies.dispatch.base import DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.outlook import Group, Outlook

Candidates = Mapping[Group, list[Job]]


@dataclass(frozen=True, slots=True)
class Turn:
    """`candidates` by group, none when no job can run; `violated`: whose best finish is past their deadline."""

    candidates: Candidates
    violated: tuple[str, ...]

    def first(self, order: Callable[[Job], Any]) -> tuple[Group, Job] | None:
        """The candidate that comes first in an order."""
        firsts = [(group, min(jobs, key=order)) for group, jobs in self.candidates.items()]
        return min(firsts, key=lambda first: order(first[1]), default=None)


def arrival(job: Job) -> tuple[float, str]:
    """First come, first served; then by name."""
    return job.arrival_ms, job.name


def in_turn(problem: DispatchInput, outlook: Outlook) -> Turn:
    """Who may be chosen now. A tenant that is not listed has had nothing."""
    in_time: dict[Group, list[Job]] = {}
    late: dict[Group, list[Job]] = {}
    for group in outlook.groups:
        if not group.can_run:
            continue
        late_before_ms = group.late_before_ms()
        if group.due.deadline_ms >= late_before_ms:  # most of the time
            in_time[group] = group.jobs
            continue
        late[group] = [job for job in group.jobs if job.deadline_ms < late_before_ms]
        if len(late[group]) < len(group.jobs):
            in_time[group] = [job for job in group.jobs if job.deadline_ms >= late_before_ms]
    candidates: Candidates = in_time or late
    if problem.tenants and candidates:
        had = {tenant.name: tenant.served_ms / tenant.weight for tenant in problem.tenants}
        _had_ms, turn = min((had.get(job.tenant, 0.0), job.tenant) for job in _jobs(candidates))
        candidates = _only(candidates, lambda job: job.tenant == turn)
    if outlook.has_priorities and candidates:
        highest = max(job.priority for job in _jobs(candidates))
        candidates = _only(candidates, lambda job: job.priority == highest)
    return Turn(candidates, tuple(sorted(job.name for job in _jobs(late))))


def nobody(problem: DispatchInput, turn: Turn) -> DispatchPlan:
    """The plan when no job can run."""
    why = "no job waits" if not problem.jobs else "no waiting job has a processor that runs what is next of it"
    return DispatchPlan(None, turn.violated, why)


def _jobs(candidates: Candidates) -> Iterable[Job]:
    return (job for jobs in candidates.values() for job in jobs)


def _only(candidates: Candidates, chosen: Callable[[Job], bool]) -> Candidates:
    kept = ((group, [job for job in jobs if chosen(job)]) for group, jobs in candidates.items())
    return {group: jobs for group, jobs in kept if jobs}
