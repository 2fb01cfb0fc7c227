"""What the jobs that wait can expect of the processors as they are (Band §4.3.1, Fig. 12), worked out as far as asked.

Jobs of one network that have come equally far expect the same, so they are one group. The bounds of a group are cheap;
the exact time, which has to be worked out anew at each decision (BA-13), is asked for few. Most jobs wait on from one
decision to the next, so whoever decides often keeps the groups (`Waiting`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from appliance.policies.dispatch.base import FOREVER, DispatchInput, Job, Processor
from appliance.policies.dispatch.partition import Partition, Subgraph
from appliance.policies.dispatch.search import Idle, Run, Search, Way, place_of, search

ROUNDING_MS = 1e-9
_ANEW = 4
"""Where more than one in so many has gone, all groups are made anew: that is quicker."""


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is done, and how it goes on."""

    finish_ms: float
    first: Subgraph
    processor: str
    start_ms: float


class Group:
    """Jobs of one network that have come equally far, and what they can expect at one decision, that of `outlook`."""

    __slots__ = (
        "_bounds",
        "_done",
        "_exact",
        "_place",
        "_search",
        "_surely_ms",
        "can_run",
        "due",
        "jobs",
        "outlook",
        "took_ms",
    )

    def __init__(self, job: Job, found: Search, place: int) -> None:
        self.jobs: list[Job] = [job]
        self.due = job
        """The one that is due first; of equal ones the earlier arrival, then the name."""
        self.outlook: Outlook
        self._search, self._done, self._place = found, job.done, place
        self.can_run = bool(found.ways(job.done, place))
        """Whether something is left to do, and the processors can do it."""
        self.took_ms = found.took_ms(job.done, place)
        """How long a job takes on idle processors."""
        self._bounds: tuple[float, Idle] | None = None
        self._surely_ms: float | None = None
        self._exact: Way | None = None

    def look(self, outlook: "Outlook") -> None:
        """Processors are as they are at another decision."""
        self.outlook, self._bounds, self._surely_ms, self._exact = outlook, None, None, None

    def drop(self, job: Job) -> bool:
        """One waits no longer; whether others do."""
        self.jobs = [one for one in self.jobs if one is not job]
        if self.jobs and self.due is job:
            self.due = min(self.jobs, key=due_first)
        return bool(self.jobs)

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
            outlook = self.outlook
            self._bounds = self._search.bounds(self._done, self._place, outlook.now_ms, outlook.free_ms)
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
        return self._search.ways(self._done, self._place)

    def after(self, subgraph: Subgraph, processor: str) -> Expected:
        """When a job is done if it goes on with that run."""
        index, outlook = self.outlook.index[processor], self.outlook
        run = Run(subgraph, index, subgraph.latency_ms[processor], self._done | subgraph.units)
        way = self._search.after(run, self._place, outlook.now_ms, outlook.free_ms)
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
            known = self._bound()
            self._exact = self._search.quickest(self._done, self._place, outlook.now_ms, outlook.free_ms, known)
        return self._exact


class Waiting:
    """The jobs that waited at the last decision, by group."""

    __slots__ = ("_depends_on", "_groups", "_index", "_jobs", "_odd", "_usual")

    def __init__(self) -> None:
        self._depends_on: tuple[tuple[str, ...], float] = (), 0.0
        """Processors and the time to transfer results between them: what searches depend on."""
        self._index: Mapping[str, int] = {}
        self._jobs: dict[int, Job] = {}
        """By identity, which says most cheaply which of them are still there; it holds them, so that they keep it."""
        self._groups: dict[tuple[Partition, int, str | None], Group] = {}
        self._usual, self._odd = 0, 0
        """A priority, and how many jobs have another one."""

    def at(self, problem: DispatchInput, outlook: "Outlook") -> Collection[Group]:
        """The groups at a decision."""
        depends_on = outlook.names, problem.transfer_ms
        jobs = dict(zip(map(id, problem.jobs), problem.jobs, strict=True))
        gone = self._jobs.keys() - jobs.keys()
        if depends_on != self._depends_on or _ANEW * len(gone) > len(jobs):
            self._depends_on, self._index, self._groups = depends_on, outlook.index, {}
            self._usual, self._odd = problem.jobs[0].priority if problem.jobs else 0, 0
            self._add(problem.jobs)
        else:
            for number in gone:
                self._drop(self._jobs[number])
            self._add([jobs[number] for number in jobs.keys() - self._jobs.keys()])
        self._jobs = jobs
        for group in self._groups.values():
            group.look(outlook)
        return self._groups.values()

    @property
    def has_priorities(self) -> bool:
        """Whether they may differ."""
        return self._odd > 0

    def _add(self, jobs: Iterable[Job]) -> None:
        groups = self._groups
        for job in jobs:  # where all forty are new they are most of what a decision takes
            if job.priority != self._usual:
                self._odd += 1
            key = job.partition, job.done, job.at
            try:
                group = groups[key]
            except KeyError:
                groups[key] = Group(job, search(job.partition, *self._depends_on), place_of(job.at, self._index))
                continue
            group.jobs.append(job)
            due = group.due
            if job.deadline_ms <= due.deadline_ms and due_first(job) < due_first(due):
                group.due = job

    def _drop(self, job: Job) -> None:
        if job.priority != self._usual:
            self._odd -= 1
        key = job.partition, job.done, job.at
        if not self._groups[key].drop(job):
            del self._groups[key]


class Outlook:
    """The jobs of one decision, by group. `waiting`: what is known of the last one's."""

    def __init__(self, problem: DispatchInput, waiting: Waiting | None = None) -> None:
        processors = sorted(problem.processors, key=_name)
        self.now_ms, self.transfer_ms = problem.now_ms, problem.transfer_ms
        self.names = tuple([processor.name for processor in processors])
        self.index: Mapping[str, int] = {name: index for index, name in enumerate(self.names)}
        self.free_ms = tuple([max(processor.busy_until_ms, problem.now_ms) for processor in processors])
        self.delay_ms = max(self.free_ms, default=self.now_ms) - self.now_ms
        """No job waits longer for processors."""
        if waiting is None:
            waiting = Waiting()
        self.groups = waiting.at(problem, self)
        self.has_priorities = waiting.has_priorities


def due_first(job: Job) -> tuple[float, float, str]:
    """The order in which jobs are due; of equal ones the earlier arrival, then the name."""
    return job.deadline_ms, job.arrival_ms, job.name


def _name(processor: Processor) -> str:
    return processor.name
