"""What the jobs that wait can expect of the processors as they are (Band §4.3.1, Fig. 12), worked out as far as asked.

Jobs of one network that have come equally far expect the same, so they are one group. The bounds of a group are cheap;
the exact time, which has to be worked out anew at each decision (BA-13), is asked for few.
"""

from dataclasses import dataclass

from appliance.policies.dispatch.base import FOREVER, DispatchInput, Job
from appliance.policies.dispatch.partition import Partition, Subgraph
from appliance.policies.dispatch.search import Idle, Run, Search, Way, place_of, search

ROUNDING_MS = 1e-9


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is done, and how it goes on."""

    finish_ms: float
    first: Subgraph
    processor: str
    start_ms: float


class Group:
    """Jobs of one network that have come equally far."""

    __slots__ = ("_done", "_exact", "_outlook", "_place", "_search", "due", "earliest_ms", "jobs", "surely_ms")

    def __init__(self, outlook: "Outlook", job: Job, found: Search) -> None:
        self.jobs: list[Job] = [job]
        self.due = job
        """The one that is due first; of equal ones the earlier arrival, then the name."""
        self._outlook = outlook
        self._search = found
        self._done, self._place = job.done, place_of(job.at, outlook.index)
        now_ms, free_ms = outlook.now_ms, outlook.free_ms
        self.earliest_ms, good = found.bounds(self._done, self._place, now_ms, free_ms)
        """A job is not done before; infinite when the processors cannot do it, or nothing is left to do."""
        self.surely_ms = good.finish_ms(now_ms, free_ms) if self.earliest_ms < FOREVER else FOREVER
        """It can be done by then."""
        self._exact: Way | None = None

    @property
    def can_run(self) -> bool:
        return self.earliest_ms < FOREVER

    @property
    def finish_ms(self) -> float:
        """When a job is done if it runs as quickly as it can, were it alone."""
        return self._way().finish_ms

    def expected(self) -> Expected:
        """The same, and how it begins."""
        way = self._way()
        return Expected(way.finish_ms, way.first.subgraph, self._outlook.names[way.first.processor], way.start_ms)

    def ways(self) -> tuple[Idle, ...]:
        """The best way that begins on each processor, were all idle."""
        return self._search.ways(self._done, self._place)

    def after(self, subgraph: Subgraph, processor: str) -> Expected:
        """When a job is done if it goes on with that run."""
        index, outlook = self._outlook.index[processor], self._outlook
        run = Run(subgraph, index, subgraph.latency_ms[processor], self._done | subgraph.units)
        way = self._search.after(run, self._place, outlook.now_ms, outlook.free_ms)
        return Expected(way.finish_ms, subgraph, processor, way.start_ms)

    def late_before_ms(self) -> float:
        """Jobs with an earlier deadline are late: their best finish is past it. No job that cannot run is."""
        if not self.can_run:
            return -FOREVER
        earliest_ms, surely_ms = self.earliest_ms - ROUNDING_MS, self.surely_ms - ROUNDING_MS
        if self.due.deadline_ms >= surely_ms:
            return surely_ms  # none is
        for job in self.jobs:
            if earliest_ms <= job.deadline_ms < surely_ms:
                return self.finish_ms - ROUNDING_MS
        return surely_ms

    def _way(self) -> Way:
        if self._exact is None:
            outlook = self._outlook
            self._exact = self._search.quickest(self._done, self._place, outlook.now_ms, outlook.free_ms)
        return self._exact


class Outlook:
    """The jobs of one decision, by group."""

    def __init__(self, problem: DispatchInput) -> None:
        processors = sorted(problem.processors, key=lambda processor: processor.name)
        self.now_ms, self.transfer_ms = problem.now_ms, problem.transfer_ms
        self.names = tuple(processor.name for processor in processors)
        self.index = {name: index for index, name in enumerate(self.names)}
        self.free_ms = tuple([max(processor.busy_until_ms, problem.now_ms) for processor in processors])
        groups: dict[tuple[Partition, int, str | None], Group] = {}
        searches: dict[Partition, Search] = {}
        self.has_priorities = False
        priority = problem.jobs[0].priority if problem.jobs else 0
        for job in problem.jobs:  # forty of them are most of what a decision takes
            if job.priority != priority:
                self.has_priorities = True
            key = job.partition, job.done, job.at
            try:
                group = groups[key]
            except KeyError:
                found = searches.get(job.partition)
                if found is None:
                    found = searches[job.partition] = search(job.partition, self.names, self.transfer_ms)
                groups[key] = Group(self, job, found)
                continue
            group.jobs.append(job)
            due = group.due
            if job.deadline_ms <= due.deadline_ms and due_first(job) < due_first(due):
                group.due = job
        self.groups = tuple(groups.values())


def due_first(job: Job) -> tuple[float, float, str]:
    """The order in which jobs are due; of equal ones the earlier arrival, then the name."""
    return job.deadline_ms, job.arrival_ms, job.name
