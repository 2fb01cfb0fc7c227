"""Hands waiting jobs to workers as the scheduler decides, and tells their callers what becomes of them.

The scheduler is pure (`engine.scheduler`); this gives it the time, run times and memory, keeps its one timer, and
begins the runs that it has decided on. Event-loop thread only.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US, Clock
from appliance.domain.errors import NoRoomToRun, Overloaded, QueueFull, ShuttingDown
from appliance.domain.request import Request
from appliance.domain.slots import NO_SLOT, Lane, Member, PlannedBatch, PlannedRows
from appliance.domain.states import RequestState
from appliance.policies.batching.base import BatchingPolicy
from appliance.runtime.engine.placement import Placement
from appliance.runtime.engine.scheduler import Limits, Scheduler
from appliance.runtime.engine.work import Call, GroupFacts, Kind, Option, Out, Refusal, RefusedBy, Run, Why
from appliance.runtime.memory.loader import handles_of
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import RunGroup
from appliance.runtime.serving.job import Job, RunAgain, shapes_of, too_late
from appliance.runtime.serving.staging import StagedJob

_QUIET_S = 15.0
"""A processor that is to be measured waits no longer for the end of its runs."""
_PATIENCE = 4
"""Times what is expected of a run it may take before it is held to hang: others are at work on the machine, too."""
Begin = Callable[[Run], None]


class _Environment:
    """What the scheduler asks of jobs and of memory."""

    def __init__(self, memory: RunMemory) -> None:
        self._memory = memory

    def run_ns(self, option: Option, rows: int, running: int, now_ns: int) -> int | None:
        job: Job = option.times
        hoped_ns = job.hoped_on(option.group)
        return None if hoped_ns is None else hoped_ns(rows, running, now_ns)

    def likely_ns(self, call: Call) -> int:
        job: Job = call.reference
        return job.likely_ns

    def has_room(self, option: Option, calls: Sequence[Call]) -> bool:
        jobs: list[Job] = [call.reference for call in calls]
        run_bytes = jobs[0].run_bytes if len(jobs) == 1 else jobs[0].servable.run_bytes_of(shapes_of(jobs))
        try:
            if run_bytes:
                self._memory.check(jobs[0].servable.build_id, jobs[0].servable.name, run_bytes)
        except NoRoomToRun:
            return False
        return True

    def may_share(self, mate: Call, call: Call, option: Option) -> bool:
        return bool(mate.reference.may_run_with(call.reference, option.group))

    def is_there(self, option: Option) -> bool:
        job: Job = option.times
        return job.build_on(option.group).handle is not None


class Announced:
    """A run that counts among those that wait, until the end of the `with`."""

    __slots__ = ("_call", "_scheduler")

    def __init__(self, scheduler: Scheduler, call: Call) -> None:
        self._scheduler, self._call = scheduler, call

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._scheduler.unannounce(self._call)


class Queue:
    """Jobs that wait for workers."""

    def __init__(
        self,
        clock: Clock,
        groups: Sequence[RunGroup],
        memory: RunMemory,
        *,
        limits: Limits | None = None,
        placement: Placement | None = None,
        batching: BatchingPolicy | None = None,
        homes: Mapping[str, int] | None = None,
    ) -> None:
        """`placement`: the policy between groups, where there are several; `homes`: model → the group that it is fixed
        to. Workers come with `offer`; until then a group has none.
        """
        self._clock = clock
        self._groups = tuple(groups)
        self._index = {group.name: at for at, group in enumerate(groups)}
        self._memory = memory
        self._homes = homes or {}
        self._offered: list[list[Begin]] = [[] for _ in groups]
        self._idle: list[list[Begin]] = [[] for _ in groups]
        self._begins: dict[Run, Begin] = {}
        """The worker of each run under way."""
        self.scheduler = Scheduler(
            [GroupFacts(0) for _ in groups],
            _Environment(memory),
            limits=limits or Limits(),
            placement=placement,
            batching=batching,
            workers=sum(group.workers for group in groups),
        )
        self.staged: StagedJob | None = None
        if len(groups) == 1 and groups[0].stage is not None:
            shares = batching is None or batching.shares
            self.staged = StagedJob(groups[0].stage, memory, groups[0].workers, may_share=shares)
        self._requeues_at_head = placement is None or placement.requeues_at_head
        self._timer: asyncio.TimerHandle | None = None
        self._looks_ns = 0
        self._pauses = asyncio.Lock()
        self._paused: int | None = None
        self._is_quiet = asyncio.Event()

    def __len__(self) -> int:
        return len(self.scheduler)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def put(self, job: Job) -> None:
        """Add a job; an idle worker begins at once. A job that was let in before is not refused.

        Raises: QueueFull, Overloaded.
        """
        now_ns = self._clock.now_ns()
        job.queued_ns = now_ns
        call = job.call = self._call(job)
        answer = self.scheduler.put(call, now_ns)
        if isinstance(answer, Refusal):
            raise _error(answer, job.request.application_id, self.scheduler)
        job.to(RequestState.QUEUED)
        if answer is not None:
            self._start(answer)
        elif self.scheduler.has_idle or call.slot is not NO_SLOT:
            self.look()
            return
        if call.drop_ns is not None:
            self._look_at(call.drop_ns + NS_PER_US, now_ns)
        self._stage(now_ns)

    def _call(self, job: Job) -> Call:
        request, servable, rest = job.request, job.servable, job.rest
        likely_ns, is_known = job.likely_ns, job.expected_ns is not None
        is_planned, together_max = request.slot.is_planned, servable.together_max
        if len(self._groups) == 1:
            most = None if is_planned else servable.at_once_max
            options: tuple[Option, ...] = (Option(0, job.build.build_id, likely_ns, is_known, most, together_max, job),)
        else:
            options = tuple(
                [
                    Option(
                        at,
                        job.build_on(at).build_id,
                        run_ns,
                        is_known,
                        None if is_planned else job.at_once_on(at),
                        together_max,
                        job,
                    )
                    for at, run_ns in (job.expected_by_group or dict.fromkeys(servable.places, likely_ns)).items()
                ]
            )
        is_begun = rest is not None and rest.is_begun
        rows = job.items
        return Call(
            request.tenant,
            request.application_id,
            options,
            Kind.ITEM if request.is_item else Kind.FRAME if request.is_frame else Kind.PLAIN,
            request.slot,
            job.weights,
            request.drop_ns,
            request.deadline_ns,
            request.priority,
            rows,
            0 if servable.padding is None else sum(one.size for one in request.inputs.values()) // (rows or 1),
            servable.variant.name,
            likely_ns,
            job.expected_ns or 0,
            request.frame,
            request.behind_ns,
            request.beyond_plan,
            request.runs_alone,
            servable.mixes_tenants,
            rest is not None,
            request.runs_alone or is_begun,
            self._homes.get(servable.variant.model_id) if self._homes else None,
            is_begun and self._requeues_at_head,
            job,
        )

    def announce(self, request: Request, work_ns: int, weights: tuple[float, float]) -> "Announced":
        """Count a run among those that wait while the body of its request is read: until the end of a `with`.

        Raises: Overloaded, when it would wait too long.
        """
        call = Call(
            request.tenant, request.application_id, (), weights=weights, drop_ns=request.drop_ns, likely_ns=work_ns
        )
        refusal = self.scheduler.announce(call, self._clock.now_ns())
        if refusal is not None:
            raise _error(refusal, request.application_id, self.scheduler)
        return Announced(self.scheduler, call)

    def check_place(self, application_id: str, tenant: str) -> None:
        """Raises: QueueFull, where too many wait."""
        refusal = self.scheduler.no_place(tenant, application_id)
        if refusal is not None:
            raise _error(refusal, application_id, self.scheduler)

    def leave(self, job: Job) -> None:
        """The caller of a job that may wait is gone."""
        if not self.is_running(job) and job.call is not None and job.state is RequestState.QUEUED:
            self.scheduler.leave(job.call)
            job.to(RequestState.FAILED)
            if job.call.slot.lane is not None:
                self.look()

    def refuse_all(self) -> None:
        """Tell the callers of all that waits that the box shuts down."""
        for call in self.scheduler.line.calls():
            job: Job = call.reference
            self.leave(job)
            if not job.answer.done():
                job.answer.set_exception(ShuttingDown())

    def lengths(self) -> dict[str, int]:
        """Return how many jobs wait, by application."""
        found = Counter(call.application for call in self.scheduler.line.calls())
        return dict(sorted(found.items()))

    def plan(self, lane: Lane, tenant: str, batches: Iterable[PlannedBatch]) -> None:
        """Replace the planned batches of a lane."""
        self.scheduler.plan(lane, tenant, batches)
        self.look()

    def absent(self, member: Member) -> None:
        """A frame will not come, or is over."""
        self.scheduler.absent(member)
        self.look()

    def plan_rows(self, rows: Mapping[str, PlannedRows]) -> None:
        """Replace what runs of builds wait for, by plans of pipelines."""
        self.scheduler.plan_rows(rows)
        self.look()

    # -- workers -------------------------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Workers that a job would get at once: those that are idle while nothing waits."""
        return 0 if len(self.scheduler) else sum(map(len, self._idle))

    def idle(self) -> Counter[int]:
        """Return the idle workers by group."""
        return Counter({at: len(own) for at, own in enumerate(self._idle) if own})

    def offer(self, begin: Begin, group: int = 0) -> None:
        """Add a worker: it begins with the next run."""
        self._offered[group].append(begin)
        self._idle[group].append(begin)
        self._tell_facts()
        self.look()

    def withdraw(self, begin: Begin, group: int = 0) -> None:
        """Take a worker out."""
        self._offered[group].remove(begin)
        if begin in self._idle[group]:
            self._idle[group].remove(begin)
        self._tell_facts()

    def ended(self, run: Run, now_ns: int, following: Run | None = None) -> None:
        """The run of a worker has ended; `look` follows. `following`: the worker goes on with it."""
        self.scheduler.end(run, now_ns)
        begin = self._begins.pop(run)
        if following is not None:
            self._begins[following] = begin
        elif begin in self._offered[run.group]:
            self._idle[run.group].append(begin)
        if len(self._groups) == 1:
            return
        if self._paused is not None and not any(one.group == self._paused for one in self.scheduler.runs):
            self._is_quiet.set()

    def go_on(self) -> None:
        """Begin what may begin now that a worker is free."""
        if len(self.scheduler) or self.scheduler.lanes.has_reserved:
            self.look()

    def look(self) -> None:
        """Begin and end what the scheduler decides."""
        if len(self._groups) > 1:
            self._tell_facts()
        self._unstage()
        now_ns = self._clock.now_ns()
        decision = self.scheduler.decide(now_ns)
        for out in decision.outs:
            self._out(out, now_ns)
        for run in decision.starts:
            self._start(run)
        if decision.next_look_ns is not None:
            self._look_at(decision.next_look_ns, now_ns)
        self._stage(now_ns)

    # -- staged: a run begins on the thread that ends another one ------------------------------------------------------

    def _stage(self, now_ns: int) -> None:
        """Have the call that would begin next begin as soon as a run has ended."""
        staged = self.staged
        if staged is None or staged.begun is not None or self.scheduler.has_idle:
            return
        call = self.scheduler.next_alone(now_ns)
        job: Job | None = None if call is None else call.reference
        if job is not staged.job and self._unstage() and call is not None and job is not None:
            staged.put(job, self.scheduler.waiting_beside(call))

    def _unstage(self) -> bool:
        """Take the staged job back. False: it has begun, and waits no longer."""
        staged = self.staged
        if staged is None or staged.job is None:
            return True
        job = staged.job
        if staged.revoke():
            return True
        assert job.call is not None, "it waited"
        run = staged.following = self.scheduler.begin_alone(job.call, staged.begun_ns)
        job.begins(run)
        job.to(RequestState.RUNNING)
        return False

    def is_running(self, job: Job) -> bool:
        """Return whether a processor computes a job, as far as can be known."""
        if self.staged is not None and self.staged.job is job:
            self._unstage()
        return job.state is RequestState.RUNNING

    def followed(self, ended: asyncio.Future[Any]) -> tuple[Run, asyncio.Future[Any]] | None:
        """Return the staged run that has begun where a run has ended, and its future. It needs a worker of its own."""
        staged = self.staged
        if staged is None or not staged.has_followed(ended):
            return None
        self._unstage()
        return staged.take()

    def _start(self, run: Run) -> None:
        begin = self._idle[run.group].pop(0)
        self._begins[run] = begin
        for call in run.calls:
            call.reference.begins(run)
        begin(run)

    def _out(self, out: Out, now_ns: int) -> None:
        job: Job = out.call.reference
        is_waiting = job.state is RequestState.QUEUED
        if is_waiting:
            job.to(RequestState.EXPIRED if out.why in (Why.LATE, Why.EXPIRED) else RequestState.FAILED)
        if job.answer.done():
            return
        if out.why is Why.REPLACE:
            job.answer.set_exception(RunAgain())
        elif out.why is Why.NO_MEMORY:
            job.answer.set_exception(self._no_room(job))
        else:
            error = too_late(job.request, job.expected_ns, now_ns)
            if not is_waiting:
                error.ran_ms = (now_ns - job.started_ns) / NS_PER_MS
            job.answer.set_exception(error)

    def _no_room(self, job: Job) -> Exception:
        try:
            self._memory.check(job.servable.build_id, job.servable.name, job.run_bytes)
        except NoRoomToRun as error:
            return error.with_traceback(None)
        return RunAgain()  # there is room again

    def _look_at(self, at_ns: int, now_ns: int) -> None:
        """Look again at a time, at the latest."""
        if self._timer is not None:
            if now_ns < self._looks_ns <= at_ns:
                return
            self._timer.cancel()
        self._looks_ns = at_ns
        # A nanosecond later: times of the loop are floats, and a timer that comes before its time is set again.
        self._timer = asyncio.get_running_loop().call_at((at_ns + 1) / NS_PER_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look()

    # -- groups --------------------------------------------------------------------------------------------------------

    def _tell_facts(self) -> None:
        has_groups = len(self._groups) > 1
        self.scheduler.facts(
            [
                GroupFacts(
                    len(self._offered[at]),
                    not has_groups or (group.is_serving() and not (at == self._paused and self._is_spared(at))),
                    has_groups and group.is_throttled(),
                )
                for at, group in enumerate(self._groups)
            ]
        )

    def _is_spared(self, at: int) -> bool:
        """Return whether another group runs all that a group does."""
        own = self._groups[at].kinds.keys()
        return any(
            number != at and group.is_serving() and own <= group.kinds.keys()
            for number, group in enumerate(self._groups)
        )

    @asynccontextmanager
    async def paused(self, processor: str) -> AsyncIterator[None]:
        """Let nothing run on a processor until the end, so that it can be measured (Band, section 4.3.2): runs under
        way there are waited for. One at a time, and only as long as another group runs all that it does. A processor
        without cores of its own computes on those of all groups: the first group leaves them to it.
        """
        async with self._pauses:
            at = self._index.get(processor, 0)
            if len(self._groups) == 1 or not self._is_spared(at):
                yield
                return
            self._paused = at
            self._is_quiet.clear()
            if not any(run.group == at for run in self.scheduler.runs):
                self._is_quiet.set()
            self.look()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_QUIET_S):
                        await self._is_quiet.wait()
                yield
            finally:
                self._paused = None
                self.look()

    # -- runs under way ------------------------------------------------------------------------------------------------

    def rests_ns(self) -> list[int]:
        """Return for how long each run under way is expected to go on."""
        return self.scheduler.rests_ns(self._clock.now_ns())

    def rest_ns(self, is_of: Callable[[Any], bool], begun_ns: int, now_ns: int) -> int:
        """Return how much longer a run may take that a processor began at `begun_ns`, and is one of those under way, by
        the handle of its build: until it has had `_PATIENCE` times what was expected of it. 0: it has had that. Runs
        that began later do not count, though they are of the same build.
        """
        ends = (
            run.began_ns + _PATIENCE * run.holds_ns
            for run in self.scheduler.runs
            if run.began_ns <= begun_ns and any(map(is_of, handles_of(run.calls[0].reference.build.handle)))
        )
        return max([0, *(end_ns - now_ns for end_ns in ends)])

    def overdue_ns(self, now_ns: int) -> int:
        """Return how long ago the run should have ended that is most behind, by when it was stopped and by what was
        expected of it. Runs that nothing stops do not count, for what is expected may be wrong, nor runs in guards,
        which end with their process. 0: none is behind.
        """
        most_ns = 0
        for run in self.scheduler.runs:
            job: Job = run.calls[0].reference
            if job.stops_ns is not None and not job.servable.is_guarded:
                most_ns = max(most_ns, now_ns - max(job.stops_ns, run.began_ns + run.holds_ns))
        return most_ns


def _error(refusal: Refusal, application_id: str, scheduler: Scheduler) -> QueueFull | Overloaded:
    if refusal.by is RefusedBy.LENGTH:
        most = scheduler.limits.calls_max
        return QueueFull(application_id=application_id, queue_len_max=most, waiting=refusal.waiting)
    return Overloaded(
        application_id=application_id,
        expected_ms=refusal.expected_ns / NS_PER_MS,
        allowed_ms=max(0.0, refusal.allowed_ns / NS_PER_MS),
        retry_after_s=refusal.retry_after_ns / NS_PER_S,
    )
