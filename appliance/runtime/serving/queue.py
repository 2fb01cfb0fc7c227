"""Requests that are ready to run and wait for a worker: processor time goes to tenants by weight, inside a tenant to
applications by weight, and inside an application to the most urgent request. Of a tenant's items of pipelines the one
goes first that has to begin first, as far as its application has hardly had more than the others.

Bounded per application of each tenant, per tenant and in all. Only the event-loop thread touches a queue. Late work is
dropped here, before it costs a processor anything.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import Overloaded, ShuttingDown
from appliance.domain.request import Request
from appliance.domain.states import RequestState
from appliance.policies.limits.requests import AdmissionInput, is_too_late, refused_by
from appliance.runtime.serving.backlog import LEAST_NS, Announced, Backlog
from appliance.runtime.serving.fairness import FairLine, Flow
from appliance.runtime.serving.flows import FOREVER_NS, TenantFlow, TenantFlows, in_turn
from appliance.runtime.serving.handing_out import HandingOut
from appliance.runtime.serving.job import LONG_NS, Job, too_late
from appliance.runtime.serving.looking_again import LookingAgain
from appliance.runtime.serving.staging import StagedJob
from appliance.runtime.serving.under_way import RunsUnderWay
from appliance.runtime.serving.waiting_counts import WaitingCounts
from appliance.runtime.serving.waits import PlannedWaits

_HASTE = 0.9
"""Of the time until its deadline a request may be expected to take: the rest is for the way back, and for what was not
expected."""
_LOST = -1000
"""Priority of items whose frames cannot be in time any more."""
_LOOKED_AT = 2
"""Times as many as may share a run are asked whether they can: where most cannot, asking all takes longer than runs."""


class Queue:
    """Who waits for a worker, and who is next. Priorities and short time limits order a tenant's own requests only."""

    def __init__(
        self, clock: Clock, len_max: int, total_max: int, *, workers: int = 1, wait_ns_max: int = FOREVER_NS
    ) -> None:
        """Nobody waits who is expected to wait longer than `wait_ns_max`."""
        self._clock = clock
        self._wait_ns_max = wait_ns_max
        self._backlog = Backlog(workers)
        self.counts = WaitingCounts(len_max, total_max)
        self.flows = TenantFlows()
        self._idle: deque[tuple[Callable[[Job], None], int]] = deque()
        """What an idle worker begins with, and its group of processors."""
        self.assign: Callable[[Job | None], None] | None = None
        """Hands jobs out where there are several groups of processors, or starts are reserved, and is told of one that
        has just come where nothing else is new; None: whoever is idle takes the next in line."""
        self._handing_out = HandingOut()
        self._looking_again = LookingAgain(self.hand_out)
        self.staged: StagedJob | None = None
        """Who begins without a worker having asked; None: nobody ever does."""
        self.under_way = RunsUnderWay(clock)
        self.has_groups = False
        """Whether there are several groups of processors: then it depends on these whether more runs of a build pay at
        once, which is for `assign` to know."""
        self.requeues_at_head = True
        """Where the rest of a network goes of which some has run: before all that has not begun, else to where it would
        be if none had (Band's EnqueueRemaining)."""
        self.waits = PlannedWaits(clock, workers)
        self.waits.on_over = self.hand_out
        self._sequence = 0

    def __len__(self) -> int:
        return len(self.counts)

    # -- coming in -----------------------------------------------------------------------------------------------------

    def put(self, job: Job) -> None:
        """Add a job; an idle worker begins at once. One that was let in before is not refused: it runs anew, or some of
        its network has run, and then the rest goes first, unless the policy of dispatch has it otherwise.

        Raises: QueueFull, Overloaded.
        """
        request = job.request
        is_begun = job.rest is not None and job.rest.is_begun
        was_let_in = request.runs_alone or is_begun
        if not was_let_in:
            self.counts.check_room(request.application_id, request.tenant)
        tenant = self.flows.of(request.tenant)
        job.queued_ns = self._clock.now_ns()
        self.flows.saw(request.tenant, job.queued_ns)
        if (
            self._idle
            and not request.batch
            and not self.counts
            and self.assign is None
            and not self.is_late(job)
            and not self._is_held(job, tenant)
            and not self._waits_its_turn(job)
        ):
            job.to(RequestState.QUEUED)
            self._charge(job)  # nobody waits: it needs no place
            self._idle.popleft()[0](job)
            return
        self._sequence += 1
        deadline = FOREVER_NS if request.deadline_ns is None else request.deadline_ns
        rank = -FOREVER_NS if is_begun and self.requeues_at_head else -request.priority
        place = [rank, deadline, self._sequence, job]
        application = tenant.of(request.application_id)
        job.waiting_ns = max(LEAST_NS, job.likely_ns)
        if not (was_let_in or request.is_item):
            # Items of pipelines go by when they have to begin, which shares do not say, and nobody asks again for one
            # that is refused: they wait until they can no longer be in time.
            self._check_wait(request, job.waiting_ns, job.weights, application.ahead_of(place))
        job.to(RequestState.QUEUED)
        job.place = place
        if request.beyond_plan:
            self._waits_for_planned(job)  # since now, whenever a worker is free
        self.counts.add(request)
        self._backlog.add(request.tenant, request.application_id, job.waiting_ns, job.weights)
        self.flows.put(tenant, application, place)
        if request.batch:  # those that it is planned with are put in this very turn of the loop
            asyncio.get_running_loop().call_soon(self.hand_out)
        elif self._idle or self.assign is not None or self.waits or request.is_item or application.jobs[0] is place:
            self.hand_out(job)
        # else it waits behind others of its application: who is next, and staged, is who it was

    def announce(self, request: Request, work_ns: int, weights: tuple[float, float]) -> Announced:
        """While its body is read, a request's run counts among those that wait: who comes later is told of it.

        Raises: Overloaded, when it would wait too long.
        """
        work_ns = max(LEAST_NS, work_ns)
        self._check_wait(request, work_ns, weights, None)
        return Announced(self._backlog, request.tenant, request.application_id, work_ns, weights)

    # -- workers -------------------------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Workers that a job would get at once: those that are idle while nobody waits."""
        return 0 if self.counts else len(self._idle)

    @property
    def is_expecting(self) -> bool:
        """Whether anybody waits for a worker, has one, or is still being read."""
        return self.flows.line.is_busy or self._backlog.work_ns > 0

    def offer(self, begin: Callable[[Job], None], group: int = 0) -> None:
        """A worker is free: it begins with the next job, now or when one comes."""
        self._idle.append((begin, group))
        self.hand_out()

    def withdraw(self, begin: Callable[[Job], None], group: int = 0) -> None:
        """The worker is no longer there."""
        if (begin, group) in self._idle:
            self._idle.remove((begin, group))

    def hand_out(self, newcomer: Job | None = None) -> None:
        """Give idle workers what may run. `newcomer`: it has just come, and nothing else is new."""
        if self.assign is not None:
            self._unstage()
            self.assign(newcomer)
        elif self._handing_out.all(self._take_for_idle, self._begin_on_idle):
            self.stage()
        if self._idle and self.counts and not self.has_groups:  # each may wait for a run, or leave a worker to others
            now_ns = self._clock.now_ns()
            self._looking_again.after(job.frees_in_ns(now_ns) for job in self.under_way)

    def _take_for_idle(self) -> Job | None:
        return self.take() if self._idle else None

    def _begin_on_idle(self, job: Job) -> None:
        self._idle.popleft()[0](job)

    def take(self) -> Job | None:
        """The next job that can still be in time and whose caller still waits; None when there is none that may run
        now. `ended` must follow, also where its run never began.
        """
        self._unstage()
        job = self._next()
        if job is None:
            return None
        # And none of those may run: whoever is before it in line keeps that.
        if job.request.beyond_plan and self._waits_for_planned(job):
            self.under_way.begin(job)
            self.flows.overtake(job)
        else:
            self._charge(job)
        self._remove(job)
        return job

    def idle(self) -> Counter[int]:
        """Idle workers, by group of processors."""
        return Counter(group for _, group in self._idle)

    def turns(self, most: int) -> Iterator[list[Job]]:
        """Who may run now where a worker is idle: of the tenant whose turn it is the jobs of its highest priority, at
        most so many, then the others of it, then those of the next tenant. Late and abandoned ones leave.

        Applications of a tenant that have had more than `LONG_NS` of processor time beyond the others come after,
        whatever their priorities: who may call one of them does not keep the others from being served. Last come those
        that are beyond what a plan counts on, where others wait with what is within.
        """
        now_ns = self._clock.now_ns()
        behind: list[list[Job]] = []
        for tenant in sorted(self.flows.waiting(), key=in_turn):
            found: list[tuple[float, Job]] = []
            applications = [one for one in tenant.applications.values() if one.entry is not None]
            each = max(2, most // max(1, len(applications)))
            for application in sorted(applications, key=in_turn)[:most]:
                start = tenant.line.start_of(application)
                beyond = []
                for job in application.first(each):  # of all that wait this is asked before every run
                    if self._has_left(job, now_ns) or self._is_held(job, tenant) or self._waits_its_turn(job):
                        continue
                    if job.request.beyond_plan and self._waits_for_planned(job):
                        beyond.append(job)
                    else:
                        found.append((start, job))
                behind.append(beyond)
            least = min((start for start, _ in found), default=0.0)
            turns: dict[tuple[bool, int], list[Job]] = {}
            for start, job in found:
                turns.setdefault((start - least > LONG_NS, -job.request.priority), []).append(job)
            for _turn, jobs in sorted(turns.items()):
                yield jobs
        yield from filter(None, behind)

    def may_begin(self, job: Job) -> bool:
        """Whether a job that waits may begin where a worker is idle; a late or abandoned one leaves."""
        return job.place is not None and self._is_ready(job, self.flows.by_name[job.request.tenant])

    def give(self, job: Job, group: int) -> None:
        """A waiting job begins on an idle worker of a group."""
        at = next(index for index, (_begin, own) in enumerate(self._idle) if own == group)
        begin, _ = self._idle[at]
        del self._idle[at]
        self.under_way.begin(job)
        self.flows.overtake(job)
        self._remove(job)
        begin(job)

    def mates(self, job: Job, most: int) -> list[Job]:
        """Who waits and may share the run of a job that was taken, at most so many: its own tenant's in their order,
        then, where the network may be trusted with that, those of others who call the same application, who was before
        others in line first.
        """
        request = job.request
        own = self.flows.by_name[request.tenant]
        others: list[TenantFlow] = []
        if job.servable.mixes_tenants:
            others = [tenant for tenant in self.flows.waiting() if tenant is not own]
        found: list[Job] = []
        left = _LOOKED_AT * most
        for tenant in (own, *sorted(others, key=self.flows.line.start_of)):
            application = tenant.applications.get(request.application_id)
            for mate in () if application is None else application.in_order():
                if self._may_join(mate, job):
                    found.append(mate)
                left -= 1
                if len(found) == most or not left:
                    return found
        return found

    def shared_ns_max(self, job: Job) -> int | None:
        """How long the run of a job that was taken may become by others' rows; None: as long as they gain by it.

        As with long runs, the last free worker is not kept from a tenant that was active and has had less; nor from a
        start that is reserved.
        """
        may_wait = not self._idle and self.flows.may_go_before(
            job.request.tenant, self.flows.line.now, self._clock.now_ns()
        )
        bounds = (LONG_NS if may_wait else None, job.gap_ns)
        return min((bound for bound in bounds if bound is not None), default=None)

    def join(self, mate: Job, charged_ns: int) -> None:
        """Take a waiting job into the run of another, charged with its part of that."""
        mate.charged_ns = charged_ns
        self.flows.join(mate)
        self._remove(mate)

    def ended(self, job: Job) -> None:
        """The run of a job that was taken is over: it is charged with what it took."""
        took_ns = job.took_ns
        self.under_way.end(job, took_ns)
        self.flows.end(job, self._clock.now_ns())
        if took_ns:
            self._backlog.done(max(LEAST_NS, job.charged_ns), took_ns, job.finished_ns)

    # -- staged: it begins without a worker having asked for it --------------------------------------------------------

    def is_running(self, job: Job) -> bool:
        """Whether a processor computes a job, as far as anybody can know."""
        self._unstage(job)
        return job.state is RequestState.RUNNING

    def begun_after(self, run: asyncio.Future[Any]) -> tuple[Job, asyncio.Future[Any]] | None:
        """The staged job that has begun where this run has ended, and its run. It needs a worker of its own."""
        staged = self.staged
        if staged is None or not staged.has_followed(run):
            return None
        self._unstage()
        return staged.take()

    def stage(self) -> None:
        """Who is next in line begins as soon as one of the runs under way has ended."""
        staged = self.staged
        if staged is None or self._idle or self.assign is not None or staged.begun is not None:
            return
        if self.under_way.have_parts:  # a worker goes on with the next of its parts
            self._unstage()
            return
        job = self._next()
        if staged.begun is not None:  # who was staged had begun: late by now, or left by its caller, it was looked at
            return
        if job is not staged.job and self._unstage() and job is not None:
            staged.put(job, self.counts.of(job.request))

    def _unstage(self, job: Job | None = None) -> bool:
        """Nobody is staged any more (`job`: not this one). False: the one who was has begun, and waits no longer."""
        staged = self.staged
        if staged is None or staged.job is None or (job is not None and staged.job is not job):
            return True
        found = staged.job
        if staged.revoke():
            return True
        self.under_way.begin(found)
        found.started_ns = found.request.started_ns = staged.begun_ns
        found.request.run_rows = found.items
        self.flows.overtake(found)
        self._remove(found)
        found.to(RequestState.RUNNING)
        return False

    # -- going out unserved --------------------------------------------------------------------------------------------

    def expire(self, job: Job) -> None:
        """The deadline of a job has come: its caller is told, whether it waits or runs."""
        if job.answer.done():
            return
        if not self.is_running(job) and job.state is RequestState.QUEUED:
            self._remove(job)
            job.to(RequestState.EXPIRED)
        now_ns = self._clock.now_ns()
        error = too_late(job.request, job.expected_ns, now_ns)
        if job.state is RequestState.RUNNING:
            error.ran_ms = (now_ns - job.started_ns) / NS_PER_MS
        job.answer.set_exception(error)

    def leave(self, job: Job) -> None:
        """The caller of a waiting job went away."""
        if not self.is_running(job) and job.state is RequestState.QUEUED:
            self._remove(job)
            job.to(RequestState.FAILED)

    def refuse_all(self) -> None:
        """Answer whatever waits that the box is shutting down."""
        self._unstage()
        for job in list(self.flows.jobs()):
            self._remove(job)
            job.to(RequestState.FAILED)
            if not job.answer.done():
                job.answer.set_exception(ShuttingDown())

    def is_late(self, job: Job, now_ns: int | None = None) -> bool:
        """Whether a run that began now would end after the deadline."""
        deadline_ns = job.request.drop_ns
        if deadline_ns is None:
            return False
        return is_too_late(self._clock.now_ns() if now_ns is None else now_ns, job.expected_ns, deadline_ns)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _next(self) -> Job | None:
        """The head of the first tenant in line that may run now. Those passed over keep their places. Who is beyond a
        plan has its turn also where those that are within may not run now: they wait for company.
        """
        held: list[tuple[FairLine[Any], Flow, Any]] = []
        passed: list[tuple[TenantFlow, Any]] = []
        """Of whom only an application was passed over."""
        found: Job | None = None
        behind: Job | None = None
        while found is None and (tenant := self.flows.line.first()) is not None:
            job = tenant.head(self._waits_its_turn)
            if job is None:
                if tenant.entry is not None and tenant.line.first() is not None:  # its first ones wait for company
                    held.append((self.flows.line, tenant, tenant.entry[1]))
                self.flows.line.drop(tenant)
            elif self._has_left(job, self._clock.now_ns()):
                continue
            elif self._is_in_vain(job):
                self._put_behind(job)
            elif self._is_held(job, tenant):
                self._set_aside(self.flows.line, tenant, held)
            elif job.request.beyond_plan and self._waits_for_planned(job):
                behind = behind or job
                self._set_aside(tenant.line, tenant.of(job.request.application_id), held)
                assert tenant.entry is not None
                passed.append((tenant, tenant.entry[1]))
                if not tenant.line.waiting:
                    self._set_aside(self.flows.line, tenant, held)
            else:
                found = job
        for line, flow, tie in held:
            line.put(flow, tie)
        for tenant, tie in passed:  # it left the line if nothing else of it was there to wait
            if tenant.entry is None and tenant.line.waiting:
                self.flows.line.put(tenant, tie)
        return found or behind

    def _is_in_vain(self, job: Job) -> bool:
        """Whether it is an item of a frame that is lost, since now or before, and has its place by its deadline yet."""
        request = job.request
        frame, drop_ns = request.frame, request.drop_ns
        if frame is None or request.priority <= _LOST:
            return False
        if not frame.is_lost and request.behind_ns and drop_ns is not None:
            frame.is_lost = self._clock.now_ns() + job.likely_ns + request.behind_ns > drop_ns
        return frame.is_lost

    def _put_behind(self, job: Job) -> None:
        """Behind those of its tenant that can make their frames be in time: it is answered where a worker is idle."""
        request = job.request
        assert job.place is not None, "it waits"
        _rank, deadline, sequence, _job = job.place
        self.flows.remove(job)
        request.priority = _LOST
        job.place = [-_LOST, deadline, sequence, job]
        tenant = self.flows.of(request.tenant)
        self.flows.put(tenant, tenant.of(request.application_id), job.place)

    @staticmethod
    def _set_aside(line: FairLine[Any], flow: Flow, held: list[tuple[FairLine[Any], Flow, Any]]) -> None:
        """Take a flow out of its line until who may run now is found."""
        assert flow.entry is not None
        held.append((line, flow, flow.entry[1]))
        line.drop(flow)

    def _waits_for_planned(self, job: Job) -> bool:
        """Of one that is beyond what the plan of its pipeline counts on: whether another tenant waits with what is
        within. A crowded scene of one keeps nobody else's frames from being in time. What may not run now keeps no
        worker idle for all that.
        """
        if not self.counts.has_planned_beside(job.request.tenant):
            return False
        if job.behind_ns is None:
            job.behind_ns = self._clock.now_ns()
        return True

    def _drop(self, job: Job) -> None:
        """A waiting job would be late if it began now; a staged one may have begun in time."""
        if not self.is_running(job):
            self.expire(job)

    def _is_ready(self, job: Job, tenant: TenantFlow) -> bool:
        """Whether a waiting job may run now; one that never will leaves."""
        if self._has_left(job, self._clock.now_ns()):
            return False
        return not (self._is_held(job, tenant) or self._waits_its_turn(job))

    def _has_left(self, job: Job, now_ns: int) -> bool:
        """Whether a waiting job will never run: it leaves then."""
        if job.answer.done():  # the caller went away
            self.leave(job)
        elif self.is_late(job, now_ns):
            self._drop(job)
        else:
            return False
        return True

    def _waits_its_turn(self, job: Job) -> bool:
        """Whether a job waits for others to share its run, or for another run of its build to end."""
        return (job.request.is_item and self._awaits(job)) or (not self.has_groups and self.under_way.is_full(job))

    def _awaits(self, job: Job) -> bool:
        """Whether an item waits for others to share its run, as a plan has reserved it; nobody else's call waits behind
        it."""
        if not self.waits:
            return False
        request = job.request
        return self.counts.are_items(request.tenant, request.application_id) and self.waits.is_held(job, self.mates)

    def _may_join(self, mate: Job, job: Job) -> bool:
        if mate.answer.done() or self.is_late(mate) or not mate.may_run_with(job):
            return False
        return job.request.priority <= _LOST or not self._is_in_vain(mate)

    def _charge(self, job: Job) -> None:
        """The run of a job begins whose turn it is, while no start is reserved."""
        job.gap_ns = None
        self.under_way.begin(job)
        self.flows.begin(job)

    def _is_held(self, job: Job, tenant: TenantFlow) -> bool:
        """Whether a long run leaves the free worker, the only one left of several, to a tenant that was active in the
        last minute and has had less of its share.
        """
        if len(self._idle) != 1 or not self.flows.line.running or job.likely_ns <= LONG_NS:
            return False
        start = self.flows.line.start_of(tenant)
        if start <= self.flows.line.now:
            return False
        return self.flows.may_go_before(job.request.tenant, start, self._clock.now_ns())

    def _check_wait(
        self, request: Request, work_ns: int, weights: tuple[float, float], ahead: Callable[[], int] | None
    ) -> None:
        """Refuse what would end too late, or wait too long, before it costs anything.

        `ahead` gives the waiting work of its application that goes before it; None: all does. Raises: Overloaded.
        """
        rests_ns = () if self._idle else self.under_way.rests_ns()
        if not self._backlog.work_ns and not rests_ns:
            return
        now_ns = self._clock.now_ns()
        allowed_ns = self._wait_ns_max + work_ns
        drop_ns = request.drop_ns
        if drop_ns is not None:
            allowed_ns = min(allowed_ns, int((drop_ns - now_ns) * _HASTE))
        if self._backlog.most_ns(work_ns, rests_ns) <= allowed_ns:
            return
        asked = (request.tenant, request.application_id, work_ns, weights)
        lead_ns = self.flows.start_of(request.tenant) - self.flows.line.now
        end_ns = self._backlog.end_ns(*asked, lead_ns=lead_ns, rests_ns=rests_ns)
        if end_ns > allowed_ns and ahead is not None:
            end_ns = self._backlog.end_ns(*asked, ahead_ns=ahead(), lead_ns=lead_ns, rests_ns=rests_ns)
        expected_ms, allowed_ms = end_ns / NS_PER_MS, max(0.0, allowed_ns / NS_PER_MS)
        if refused_by(AdmissionInput(expected_ms=expected_ms, allowed_ms=allowed_ms)) is not None:
            raise Overloaded(
                application_id=request.application_id,
                expected_ms=expected_ms,
                allowed_ms=allowed_ms,
                retry_after_s=(end_ns - allowed_ns) / NS_PER_S,
            )

    def _remove(self, job: Job) -> None:
        """Take a waiting job out."""
        request = job.request
        self.flows.remove(job)
        self.counts.remove(request)
        self._backlog.remove(request.tenant, request.application_id, job.waiting_ns)
