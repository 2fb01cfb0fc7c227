"""What the jobs that wait can expect of the processors as they are (Band §4.3.1, Fig. 12), worked out as far as asked.

Jobs of one network that have come equally far expect the same, so they are one group. The bounds of a group are cheap;
the exact time, which has to be worked out anew at each decision (BA-13), is asked for few.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.policies.dispatch.base import FOREVER, DispatchInput, Job, Processor
from appliance.policies.dispatch.partition import Partition, Subgraph
from appliance.policies.dispatch.search import Idle, Run, Way, search

ROUNDING_MS = 1e-9


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is done, and how it goes on."""

    finish_ms: float
    first: Subgraph
    processor: str
    start_ms: float


class Group:
    """Jobs of one network that have come equally far, and what they can expect."""

    __slots__ = ("_bounds", "_exact", "_left", "_search", "_surely_ms", "can_run", "due", "jobs", "outlook", "took_ms")

    def __init__(self, jobs: list[Job], outlook: "Outlook") -> None:
        self.jobs, self.outlook = jobs, outlook
        first = jobs[0]
        self.due = first if len(jobs) == 1 else due_of(jobs)
        """The one that is due first; of equal ones the earlier arrival, then the name."""
        self._search = search(first.partition, outlook.names, outlook.transfer_ms)
        self._left = self._search.left(first.done, first.at)
        self.can_run = bool(self._left.begins)
        """Whether something is left to do, and the processors can do it."""
        self.took_ms = self._left.took_ms
        """How long a job takes on idle processors."""
        self._bounds: tuple[float, Idle] | None = None
        self._surely_ms: float | None = None
        self._exact: Way | None = None

    @property
    def surely_ms(self) -> float:
        """A job can be done by then. It must be able to run."""
        if self._surely_ms is None:
            outlook = self.outlook
            self._surely_ms = self._bound()[1].finish_ms(outlook.now_ms, outlook.free_ms)
        return self._surely_ms

    def _bound(self) -> tuple[float, Idle]:
        """A job is not done before the first; the second is a good way to do it."""
        if self._bounds is None:
            self._bounds = self._left.bounds(self.outlook.now_ms, self.outlook.free_ms)
        return self._bounds

    @property
    def finish_ms(self) -> float:
        """When a job is done if it runs as quickly as it can, were it alone."""
        return self._way().finish_ms

    def expected(self) -> Expected:
        """The same, and how it begins."""
        way = self._way()
        return Expected(way.finish_ms, way.first.subgraph, self.outlook.names[way.first.processor], way.start_ms)

    def ways(self) -> tuple[Idle, ...]:
        """The best way that begins on each processor, were all idle."""
        return self._left.ways

    def after(self, subgraph: Subgraph, processor: str) -> Expected:
        """When a job is done if it goes on with that run."""
        outlook = self.outlook
        index = outlook.names.index(processor)
        run = Run(subgraph, index, subgraph.latency_ms[processor], self._left.done | subgraph.units)
        way = self._search.after(run, self._left.place, outlook.now_ms, outlook.free_ms)
        return Expected(way.finish_ms, subgraph, processor, way.start_ms)

    def late_before_ms(self) -> float:
        """Jobs with an earlier deadline are late: their best finish is past it. It must be able to run."""
        if self.due.deadline_ms >= self.outlook.now_ms + self.took_ms + self.outlook.delay_ms:
            return -FOREVER  # none is, whatever processors it waits for
        earliest_ms, surely_ms = self._bound()[0] - ROUNDING_MS, self.surely_ms - ROUNDING_MS
        if self.due.deadline_ms >= surely_ms:
            return surely_ms  # none is
        for job in self.jobs:
            if earliest_ms <= job.deadline_ms < surely_ms:
                return self.finish_ms - ROUNDING_MS
        return surely_ms

    def _way(self) -> Way:
        if self._exact is None:
            outlook = self.outlook
            self._exact = self._search.quickest(self._left, outlook.now_ms, outlook.free_ms, self._bound())
        return self._exact


class Outlook:
    """The jobs of one decision, by group."""

    __slots__ = ("delay_ms", "free_ms", "groups", "has_priorities", "names", "now_ms", "transfer_ms")

    def __init__(self, problem: DispatchInput) -> None:
        processors = sorted(problem.processors, key=_name)
        self.now_ms = now_ms = problem.now_ms
        self.transfer_ms = problem.transfer_ms
        self.names = tuple([processor.name for processor in processors])
        self.free_ms = tuple([max(processor.busy_until_ms, now_ms) for processor in processors])
        self.delay_ms = max(self.free_ms, default=now_ms) - now_ms
        """No job waits longer for processors."""
        alike: dict[tuple[Partition, int, str | None], list[Job]] = {}
        for job in problem.jobs:  # of forty jobs this is most of what a decision takes
            key = job.partition, job.done, job.at
            jobs = alike.get(key)
            if jobs is None:
                alike[key] = [job]
            else:
                jobs.append(job)
        self.groups = [Group(jobs, self) for jobs in alike.values()]
        self.has_priorities = len({job.priority for job in problem.jobs}) > 1


def due_of(jobs: Sequence[Job]) -> Job:
    """The one that is due first; of equal ones the earlier arrival, then the name."""
    due = jobs[0]
    for job in jobs:  # most of the time the first comparison says all
        if job.deadline_ms < due.deadline_ms or (
            job.deadline_ms == due.deadline_ms and (job.arrival_ms, job.name) < (due.arrival_ms, due.name)
        ):
            due = job
    return due


def _name(processor: Processor) -> str:
    return processor.name
