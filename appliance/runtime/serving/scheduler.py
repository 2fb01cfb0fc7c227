"""Which waiting request runs next on which group of processors, where there are several: asks a policy of
`policies.dispatch` whenever a request comes and whenever a run ends (Band §4.3).

Fair shares stand before it: it sees the requests of the tenant whose turn it is, and those of others only to fill a
processor that would idle. A request that is better off with a processor that is busy waits for it, and its place there
is taken when others are weighed. A throttled processor has what the others have no time for. Starts that planners have
reserved are kept: until then a processor begins only with what ends before. Of a network in parts the first run is
decided, and the rest when that is over. With one group there is no scheduler: turns and deadlines say all.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from appliance.clock import NS_PER_S, Clock
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan, DispatchPolicy, Processor
from appliance.policies.dispatch.base import Job as DispatchJob
from appliance.policies.dispatch.sparing import Waiting, spared
from appliance.runtime.ports import DecisionSink, RunGroup
from appliance.runtime.served_parts import TRANSFER_MS
from appliance.runtime.serving.dispatch_jobs import DispatchJobs, rounded_ms
from appliance.runtime.serving.handing_out import HandingOut
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.looking_again import LookingAgain
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.reservations import Reservations

LOOKED_AT = 32
"""Of a tenant's waiting requests so many are weighed, the most urgent of each application: it is asked on the event
loop, before every run."""
SAMPLED_NS = NS_PER_S
"""One decision in so long is recorded."""
_QUIET_S = 10.0
"""A run that goes on for longer is not waited for: what is measured beside it is taken as it is."""


class Scheduler:
    """Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        queue: Queue,
        groups: Sequence[RunGroup],
        policy: DispatchPolicy,
        name: str,
        fixed: Mapping[str, str],
        decisions: DecisionSink,
        reservations: Reservations,
    ) -> None:
        """`name` of the policy, in the decisions that are recorded; `fixed`: see `DispatchJobs`. From here on the queue
        hands out nothing itself.
        """
        self._clock = clock
        self._queue = queue
        self._groups = tuple(groups)
        self._index = {group.name: index for index, group in enumerate(groups)}
        self._policy = policy
        self._name = name
        self._decisions = decisions
        self._reservations = reservations
        self._dispatch_jobs = DispatchJobs(groups, fixed)
        self._handing_out = HandingOut()
        self._looking_again = LookingAgain(self.assign)
        self._pauses = asyncio.Lock()
        self._paused: int | None = None
        self._is_quiet = asyncio.Event()
        """Nothing runs on the one that is paused."""
        self._recorded_ns: int | None = None
        queue.has_groups = True
        queue.requeues_at_head = policy.requeues_at_head
        queue.assign = reservations.on_change = self.assign

    @asynccontextmanager
    async def paused(self, processor: str) -> AsyncIterator[None]:
        """Nothing runs on a processor until the end, so that it can be measured: what is under way there is waited for,
        and nothing else begins (BA-19). One at a time, and only as long as another one runs all that it does. One that
        has no cores of its own computes on those of all groups: the first one leaves it these.
        """
        async with self._pauses:
            at = self._index.get(processor, 0)
            if not self._is_spared(at):
                yield
                return
            self._paused = at
            self._is_quiet.clear()
            self.assign()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_QUIET_S):
                        await self._is_quiet.wait()
                yield
            finally:
                self._paused = None
                self.assign()

    def assign(self, _newcomer: Job | None = None) -> None:
        """Give idle workers what is better off there than where it would have to wait."""
        if self._paused is not None and self._queue.idle()[self._paused] == self._groups[self._paused].workers:
            self._is_quiet.set()
        self._handing_out.all(self._next, self._give)

    def _give(self, found: tuple[Job, int]) -> None:
        job, group = found
        self._queue.give(job, group)
        if self._reservations:
            self._reservations.begun(job)

    def _next(self) -> tuple[Job, int] | None:
        """A job, and the group with an idle worker that runs it now."""
        self._looking_again.not_now()
        idle = {at: count for at, count in self._queue.idle().items() if self._is_serving(at)}
        if not idle or not len(self._queue):
            return None
        now_ns = self._clock.now_ns()
        free = self._free_ns(idle, now_ns)
        waits = False
        for jobs in self._queue.turns(LOOKED_AT):
            lost = next((job for job in jobs if job.build.handle is None), None)
            if lost is not None:  # whichever worker it comes to has it placed anew
                return lost, min(idle)
            starts_ns = [(at, own[0]) for at, own in free.items()]
            able = [job for job in jobs if _may_be_in_time(job, starts_ns, now_ns)]
            at_once = [(at, 0) for at in idle]
            if any(_may_be_in_time(job, at_once, now_ns) for job in able):
                found = self._of(able, free, idle, now_ns)
                if found is not None:
                    return found
            else:  # no policy needs to be asked that none of them begins
                for job in able:
                    _wait_in(free, job, now_ns)
            waits = True
        if waits:  # for a processor that may not be free when it was expected: it may be better off elsewhere
            self._looking_again.after(end_ns for own in free.values() for end_ns in own if end_ns)
        return None

    def _is_serving(self, at: int) -> bool:
        """Whether a group takes runs now."""
        return self._groups[at].is_serving() and not (at == self._paused and self._is_spared(at))

    def _is_spared(self, at: int) -> bool:
        """Whether another group runs all that it does now."""
        own = self._groups[at].kinds.keys()
        return any(
            number != at and group.is_serving() and own <= group.kinds.keys()
            for number, group in enumerate(self._groups)
        )

    def _of(
        self, able: Sequence[Job], free: Mapping[int, list[int]], idle: Collection[int], now_ns: int
    ) -> tuple[Job, int] | None:
        """Of some jobs one that begins now, by the policy; those before it take their places in `free`."""
        is_sampled = self._recorded_ns is None or now_ns - self._recorded_ns >= SAMPLED_NS
        now_ms, jobs, asked = self._stated(able, free, now_ns, is_sampled)
        while asked:
            problem = DispatchInput(
                now_ms,
                tuple([Processor(self._groups[at].name, now_ms + rounded_ms(own[0])) for at, own in free.items()]),
                tuple(asked.values()),
                TRANSFER_MS if any(jobs[name].rest is not None for name in asked) else 0.0,
            )
            plan = self._policy.plan(problem)
            if plan.decision is None:
                return None
            job, group = jobs[plan.decision.job], self._index[plan.decision.processor]
            start_ns, took_ns = free[group][0], _holds_ns(job, group, plan.decision.ops)
            if not start_ns and group in idle:
                if _is_in_time(job, group, 0, now_ns) and not self._is_held(job, group, took_ns, free):
                    if is_sampled:
                        self._record(problem, plan, job, now_ns)
                    _decide(job, plan.decision.ops)
                    job.runs_on(group)
                    return job, group
            else:
                heapq.heapreplace(free[group], start_ns + took_ns)
            del asked[plan.decision.job]
        return None

    def _stated(
        self, able: Sequence[Job], free: Mapping[int, list[int]], now_ns: int, is_sampled: bool
    ) -> tuple[float, dict[str, Job], dict[str, DispatchJob]]:
        """The time, the jobs, and those to weigh as the policy sees them, by name. Of a decision that is recorded,
        times are from now on, and names are places here: they tell a tenant nothing of others' requests, and order
        those that are alike.
        """
        jobs: dict[str, Job] = {}
        asked: dict[str, DispatchJob] = {}
        now_ms = 0.0 if is_sampled else self._dispatch_jobs.now_ms(now_ns)
        for place, (job, open_to) in enumerate(zip(able, self._open_to(able, free, now_ns), strict=True), 1):
            if not open_to:
                continue
            if is_sampled:
                stated = self._dispatch_jobs.anew(f"{place:02}", job, open_to, now_ns)
            else:
                stated = self._dispatch_jobs.of(job, open_to)
            jobs[stated.name], asked[stated.name] = job, stated
        return now_ms, jobs, asked

    def _open_to(self, jobs: Sequence[Job], free: Mapping[int, list[int]], now_ns: int) -> list[tuple[int, ...]]:
        """The groups that each of a tenant's jobs may be weighed for; none: it has to wait."""
        reserved = bool(self._reservations)
        tenant = jobs[0].request.tenant
        gaps_ns = {
            at: self._reservations.gap_ns(tenant, at, free) for at, own in free.items() if reserved and not own[0]
        }

        def is_open(job: Job, at: int) -> bool:
            """Of those with an idle worker the ones where it ends before a start that is reserved. Of one in parts it
            is not known yet what will run next.
            """
            if job.rest is not None or at not in gaps_ns:
                return True
            return job.is_able(at) and not self._reservations.is_held(job, job.takes_ns(at), gaps_ns[at])

        found = self._cool(jobs, free, is_open, now_ns)
        waiting = Counter[tuple[str, int]]()
        found = [self._not_full(job, own, free, waiting, now_ns) for job, own in zip(jobs, found, strict=True)]
        if not reserved:
            return found
        return [tuple([at for at in own if is_open(job, at)]) for job, own in zip(jobs, found, strict=True)]

    def _cool(
        self, jobs: Sequence[Job], free: Mapping[int, list[int]], is_open: Callable[[Job, int], bool], now_ns: int
    ) -> list[tuple[int, ...]]:
        """Groups that are not throttled, of each job for which these have time: none has whose idle workers are kept
        for what is reserved, or take no more runs of its build.
        """
        throttled = [at for at in free if self._groups[at].is_throttled()]
        if not 0 < len(throttled) < len(free):
            return [tuple(free)] * len(jobs)
        cool = tuple([at for at in free if at not in throttled])

        def takes_ns(job: Job) -> dict[int, int]:
            if self._dispatch_jobs.fixed_to(job):
                return {}
            return _takes_ns(job, [at for at in cool if is_open(job, at) and not self._is_full(job, at, free)])

        waiting = [Waiting(takes_ns(job), job.left_ns(now_ns)) for job in jobs]
        return [cool if one else tuple(free) for one in spared(waiting, free, throttled)]

    def _is_full(self, job: Job, at: int, free: Mapping[int, list[int]]) -> bool:
        """Whether a group takes no more runs of its build, though it has an idle worker."""
        return job.rest is None and not free[at][0] and job.is_able(at) and self._queue.under_way.is_full(job, at)

    def _not_full(
        self,
        job: Job,
        own: tuple[int, ...],
        free: Mapping[int, list[int]],
        waiting: Counter[tuple[str, int]],
        now_ns: int,
    ) -> tuple[int, ...]:
        """Groups where more runs of its build pay at once; none where it is done sooner behind those under way.
        `waiting`: builds and groups that jobs before it wait for so.
        """
        if job.rest is not None or (job.servable.at_once_max is None and not job.also_on):
            return own
        under_way = self._queue.under_way
        full = [at for at in own if self._is_full(job, at, free)]
        if not full:
            return own
        ends = {at: free[at][0] + job.takes_ns(at) for at in own if job.is_able(at)}
        for at in full:
            first_ns = min(one.frees_in_ns(now_ns) for one in under_way.of_build(job, at))
            ends[at] = first_ns + (1 + waiting[job.build_on(at).build_id, at]) * job.takes_ns(at)
        home = self._dispatch_jobs.fixed_to(job)
        soonest = min(ends, key=lambda at: (self._groups[at].name != home, ends[at], at))
        if soonest not in full:
            return tuple([at for at in own if at not in full])
        waiting[job.build_on(soonest).build_id, soonest] += 1
        return ()

    def _is_held(self, job: Job, group: int, takes_ns: int, free: Mapping[int, list[int]]) -> bool:
        """Whether an idle worker of a group is kept for a start that is reserved."""
        if not self._reservations:
            job.gap_ns = None
            return False
        return self._reservations.is_held(job, takes_ns, self._reservations.gap_ns(job.request.tenant, group, free))

    def _free_ns(self, idle: Mapping[int, int], now_ns: int) -> dict[int, list[int]]:
        """By group that takes runs: when each of its workers is expected to be free, from now, as a heap."""
        free = {at: [0] * idle.get(at, 0) for at, group in enumerate(self._groups) if self._is_serving(at)}
        for job in self._queue.under_way:
            if job.group in free:
                free[job.group].append(job.frees_in_ns(now_ns))
        for own in free.values():
            heapq.heapify(own)
        return {at: own for at, own in free.items() if own}

    def _record(self, problem: DispatchInput, plan: DispatchPlan, job: Job, now_ns: int) -> None:
        """One in a while: a box decides hundreds of times a second."""
        self._recorded_ns = now_ns
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


def _is_in_time(job: Job, group: int, start_ns: int, now_ns: int) -> bool:
    """Whether a run that begins there so long from now ends before the job is given up."""
    if not job.is_able(group):
        return False
    drop_ns = job.request.drop_ns
    return drop_ns is None or now_ns + start_ns + job.takes_ns(group) <= drop_ns


def _may_be_in_time(job: Job, starts_ns: Sequence[tuple[int, int]], now_ns: int) -> bool:
    """The same in one of several groups, each with the time from now when a run could begin there."""
    drop_ns = job.request.drop_ns
    for group, start_ns in starts_ns:  # a plain loop: a generator costs as much as the answer, for each that waits
        if job.is_able(group) and (drop_ns is None or now_ns + start_ns + job.takes_ns(group) <= drop_ns):
            return True
    return False


def _wait_in(free: Mapping[int, list[int]], job: Job, now_ns: int) -> None:
    """Take the place in which a job that waits is done first, if that is in time."""
    ends = {at: own[0] + job.takes_ns(at) for at, own in free.items() if _is_in_time(job, at, own[0], now_ns)}
    if ends:
        group = min(ends, key=ends.__getitem__)
        heapq.heapreplace(free[group], ends[group])


def _takes_ns(job: Job, groups: Sequence[int]) -> dict[int, int]:
    """What all that is left of a job takes on those groups that run all of it."""
    rest = job.rest
    if rest is None:
        return {at: job.takes_ns(at) for at in groups if job.is_able(at)}
    whole = [at for at in groups if rest.takes_ns.get(at, {}).keys() >= set(rest.next)]
    return {at: sum(rest.takes_ns[at][number] for number in rest.next) for at in whole}


def _decide(job: Job, ops: Sequence[str]) -> None:
    """Of a network in parts those that run next."""
    if job.rest is not None:
        job.rest.next = tuple(int(op) for op in ops)


def _holds_ns(job: Job, group: int, ops: Sequence[str]) -> int:
    """For how long what was decided on would hold a worker."""
    if job.rest is None:
        return job.takes_ns(group)
    return sum(job.rest.takes_ns[group][int(op)] for op in ops)
