"""Whose turn it is among those that wait: of the tenants by weight, inside a tenant of its applications by weight,
inside an application of the most urgent request. Fair queueing (`fairness`) on two levels.

No clock, and no rule about a single request: whether one may run now is the queue's to say.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.runtime.serving.fairness import FairLine, Flow
from appliance.runtime.serving.job import LONG_NS, Job

ACTIVE_NS = 60 * NS_PER_S
"""A tenant that asked within this time may ask again at any moment."""
AHEAD_NS = 500 * NS_PER_MS
"""Processor time that an application's items of pipelines may have beyond the others of its tenant, while only items
wait there. Frames come together for as long as their SLOs are: of the frames of three pipelines that show eight items
from one moment on, at 70 % of what the box does of these, in virtual time, 0.56 s of them are late with half a second
of it or more, 0.72 s with 200 ms, 1.14 s with 50 ms.
"""
_NEAR = 16
"""Applications of a tenant whose items are weighed against one another, before every run."""
_SORTED = 8
"""Times as many as are asked for are put in order at once: taking these one by one out of their heap costs more."""
FOREVER_NS = 1 << 62
_KEPT = 64
"""Applications of an idle tenant that are not worth forgetting."""


@dataclass(slots=True, eq=False)
class ApplicationFlow(Flow):
    """Requests of one tenant to one application, the most urgent first: priority, then deadline, then arrival."""

    jobs: list[list[Any]] = field(default_factory=list)
    calls: int = 0
    """Of those that wait: no items of pipelines."""

    def ahead_of(self, place: list[Any]) -> Callable[[], int]:
        """Gives the work that goes before a place, in nanoseconds."""
        return lambda: sum(other[-1].waiting_ns for other in self.jobs if other[-1] is not None and other < place)

    def in_order(self) -> Iterator[Job]:
        """Those that are still there, the most urgent first; so many of them cost no more where many wait."""
        ahead = [(place, at) for at, place in enumerate(self.jobs[:1])]
        while ahead:
            place, at = heapq.heappop(ahead)
            if place[-1] is not None:
                yield place[-1]
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(self.jobs):
                    heapq.heappush(ahead, (self.jobs[child], child))

    def first(self, most: int) -> list[Job]:
        """The most urgent ones that are still there, at most so many."""
        if len(self.jobs) > _SORTED * most:
            return list(islice(self.in_order(), most))
        return [place[-1] for place in sorted(self.jobs) if place[-1] is not None][:most]

    def head(self) -> Job | None:
        """The most urgent one that is still there."""
        while self.jobs and self.jobs[0][-1] is None:
            heapq.heappop(self.jobs)
        return self.jobs[0][-1] if self.jobs else None


@dataclass(slots=True, eq=False)
class TenantFlow(Flow):
    """What one tenant asked of its applications and of shared ones."""

    applications: dict[str, ApplicationFlow] = field(default_factory=dict)
    line: FairLine[ApplicationFlow] = field(default_factory=FairLine)

    def of(self, application_id: str) -> ApplicationFlow:
        """The flow of an application."""
        found = self.applications.get(application_id)
        if found is None:
            found = self.applications[application_id] = ApplicationFlow()
        return found

    def head(self, awaits: Callable[[Job], bool] | None = None) -> Job | None:
        """The request whose turn it is among the tenant's; of applications whose first one `awaits` others none.

        Of items of pipelines it is the one that has to begin first, of those whose applications have had no more than
        `AHEAD_NS` beyond the others: a frame goes through several of them, and is in time with its last item. Where a
        call of its own waits, too, be it behind items of its application, it is no more than `LONG_NS`: those of others
        keep it waiting for no longer.
        """
        held: list[tuple[ApplicationFlow, Any]] = []
        found: Job | None = None
        while found is None and (application := self.line.first()) is not None:
            job = application.head()
            if job is None:
                self.line.drop(application)
            elif awaits is not None and awaits(job):
                assert application.entry is not None
                held.append((application, application.entry[1]))
                self.line.drop(application)
            else:
                found = job
        if found is not None and found.request.is_item:
            items = self._items()
            found = min((job for job in items if awaits is None or not awaits(job)), key=_begins_by, default=found)
        for application, tie in held:
            self.line.put(application, tie)
        return found

    def _items(self) -> list[Job]:
        """The first items of those applications that have had hardly more than the others."""
        near = self._near(AHEAD_NS)
        if any(application.calls for application in near):
            near = self._near(LONG_NS)
        heads = (application.head() for application in near)
        return [job for job in heads if job is not None and job.request.is_item]

    def _near(self, span_ns: int) -> list[ApplicationFlow]:
        return list(islice(self.line.near(span_ns), _NEAR))


class TenantFlows:
    """All tenants'. A job's run is charged on both levels, with `Job.charged_ns` when it begins."""

    def __init__(self) -> None:
        self.line: FairLine[TenantFlow] = FairLine()
        self.by_name: dict[str, TenantFlow] = {}
        """Of the tenants that wait or run, and some that did."""
        self._seen: OrderedDict[str, int] = OrderedDict()
        """Tenant → when it last asked or ran, the latest last; those of the last minute."""

    def of(self, tenant: str) -> TenantFlow:
        """The flow of a tenant."""
        found = self.by_name.get(tenant)
        if found is None:
            found = self.by_name[tenant] = TenantFlow()
        return found

    def waiting(self) -> list[TenantFlow]:
        """Those that are in line."""
        return [tenant for tenant in self.by_name.values() if tenant.entry is not None]

    def jobs(self) -> Iterator[Job]:
        """Everything that waits."""
        for tenant in self.by_name.values():
            for application in tenant.applications.values():
                yield from (place[-1] for place in application.jobs if place[-1] is not None)

    # -- who waits -----------------------------------------------------------------------------------------------------

    def put(self, tenant: TenantFlow, application: ApplicationFlow, place: list[Any]) -> None:
        """A job takes its place: (what orders it: urgency, deadline, number; the job)."""
        heapq.heappush(application.jobs, place)
        application.calls += not place[-1].request.is_item
        if application.jobs[0] is place:
            tenant.line.put(application, tie=place[:3])
        if tenant.entry is None:
            self.line.put(tenant, tie=place[2])

    def remove(self, job: Job) -> None:
        """A waiting job leaves; its place goes when it is first."""
        assert job.place is not None
        job.place[-1] = None
        job.place = None
        tenant = self.by_name[job.request.tenant]
        application = tenant.applications[job.request.application_id]
        application.calls -= not job.request.is_item
        head = application.head()
        if head is None:
            tenant.line.drop(application)
        else:
            assert head.place is not None
            tenant.line.put(application, tie=head.place[:3])
        if not tenant.line.waiting:
            self.line.drop(tenant)

    # -- who has had how much ------------------------------------------------------------------------------------------

    def begin(self, job: Job) -> None:
        """The run of a job begins whose turn it is."""
        tenant = self.by_name[job.request.tenant]
        self.line.begin(tenant, job.charged_ns, job.weights[0])
        tenant.line.overtake(tenant.of(job.request.application_id), job.charged_ns, job.weights[1])

    def overtake(self, job: Job) -> None:
        """The same, whoever's turn it is."""
        tenant = self.by_name[job.request.tenant]
        self.line.overtake(tenant, job.charged_ns, job.weights[0])
        tenant.line.overtake(tenant.applications[job.request.application_id], job.charged_ns, job.weights[1])

    def join(self, job: Job) -> None:
        """A job begins with the run of another."""
        tenant = self.by_name[job.request.tenant]
        self.line.join(tenant, job.charged_ns, job.weights[0])
        tenant.line.join(tenant.applications[job.request.application_id], job.charged_ns, job.weights[1])

    def end(self, job: Job, now_ns: int) -> None:
        """The run of a job is over: it is charged with what it took."""
        error_ns = job.worth_ns - job.charged_ns
        tenant = self.by_name[job.request.tenant]
        self.line.end(tenant, error_ns, job.weights[0])
        tenant.line.end(tenant.applications[job.request.application_id], error_ns, job.weights[1])
        self.saw(job.request.tenant, now_ns)
        if not tenant.line.is_busy and len(tenant.applications) > _KEPT:
            tenant.applications.clear()  # they would all start equal
        self._forget(now_ns)

    def ran(self, tenant: str, application_id: str, took_ns: int, weights: tuple[float, float]) -> None:
        """A run that waited for nothing has begun and ended."""
        flow = self.of(tenant)
        self.line.ran(flow, took_ns, weights[0])
        flow.line.ran(flow.of(application_id), took_ns, weights[1])

    def start_of(self, tenant: str) -> float:
        """The start tag of a tenant's next run."""
        flow = self.by_name.get(tenant)
        return self.line.now if flow is None else self.line.start_of(flow)

    def lead_ns(self, tenant: str, other: str) -> float:
        """How much more processor time a tenant has had than another one, by weight 1."""
        return self.start_of(tenant) - self.start_of(other)

    def is_behind(self, tenant: str) -> bool:
        """Whether somebody waits who is to run before this tenant."""
        first = self.line.first()
        return first is not None and self.line.start_of(first) < self.start_of(tenant)

    # -- who was active ------------------------------------------------------------------------------------------------

    def saw(self, tenant: str, now_ns: int) -> None:
        """The tenant is active."""
        self._seen[tenant] = now_ns
        self._seen.move_to_end(tenant)

    def may_go_before(self, tenant: str, start: float, now_ns: int) -> bool:
        """Whether another tenant was active in the last minute whose next run would start before this tag."""
        active_since_ns = now_ns - ACTIVE_NS
        for other, seen_ns in reversed(self._seen.items()):
            if seen_ns < active_since_ns:
                return False
            if other != tenant and (other not in self.by_name or self.by_name[other].tag < start):
                return True
        return False

    def _forget(self, now_ns: int) -> None:
        """Drop what need not be known any more, so that names coming and going do not grow the process."""
        active_since_ns = now_ns - ACTIVE_NS
        while len(self._seen) > 1 and next(iter(self._seen.values())) < active_since_ns:  # the last one was just seen
            name, _ = self._seen.popitem(last=False)
            if name in self.by_name and not self.by_name[name].line.is_busy:
                del self.by_name[name]


def in_turn(flow: Flow) -> list[Any]:
    """What orders flows that wait: whose turn comes first."""
    assert flow.entry is not None
    return flow.entry[:3]


def _begins_by(job: Job) -> tuple[int, int, int]:
    """Of items: by priority, then by when they have to begin at the latest, then as they came."""
    assert job.place is not None, "it waits"
    drop_ns = job.request.drop_ns
    return -job.request.priority, FOREVER_NS if drop_ns is None else drop_ns - job.likely_ns, job.place[2]
