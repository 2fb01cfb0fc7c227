"""A device of several processors in virtual time, of which a dispatch policy says what runs where next.

It does what Band's scheduler and workers do (§4.1, §4.3): the policy is asked whenever a request comes and whenever a
run ends; a processor runs one subgraph at a time; what remains of a job goes back into the queue. A lost processor is
excluded, and what ran there goes back as it was. There is no memory, and every network is loaded.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from appliance.policies.dispatch.base import FOREVER, Decision, DispatchInput, DispatchPolicy, Job, Processor
from appliance.policies.dispatch.partition import Partition

ROUNDING_MS = 1e-9


class Broken(Exception):
    """The device answered twice, or started what could not start; the experiment is void."""


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of a run. `elsewhere`: it needs one of these processors, too, while the run's own stands still (a
    fallback that the runtime makes without a word).
    """

    took_ms: float
    elsewhere: tuple[str, ...] = ()


class Model(Protocol):
    """What the device knows of networks."""

    def partition(self, network: str) -> Partition:
        """As it is believed now: what the policy decides by."""
        ...

    def legs(self, network: str, units: int, processor: str) -> Sequence[Leg]:
        """What this run really takes; asked once a run."""
        ...

    def learn(self, network: str, units: int, processor: str, took_ms: float) -> None:
        """What a run took."""
        ...


@dataclass(slots=True)
class _Request:
    job: Job
    network: str
    on_end: Callable[["Answer"], None]
    is_dropped_late: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended; `ended_ms` is when. Not `ran`: it was dropped, for it could not be in time."""

    name: str
    ended_ms: float
    ran: bool


@dataclass(slots=True, eq=False)
class _Run:
    request: _Request
    decision: Decision
    legs: deque[Leg]
    start_ms: float
    moved_ms: float
    expected_end_ms: float
    helper: str | None = None
    """The processor that a leg has taken beside the run's own."""
    delay_ms: float = 0.0
    """By legs of other runs that share its processor."""
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One run as it was: the processor, the job, its operators, from when to when."""

    processor: str
    job: str
    ops: tuple[str, ...]
    start_ms: float
    end_ms: float


class Device:
    """Runs requests on processors. `is_serial`: one request of a network at a time is under way, as one instance of a
    common runtime does. `traces`: the runs that ended. `broken`: how many a loss broke off.
    """

    def __init__(
        self,
        processors: Iterable[str],
        policy: DispatchPolicy,
        model: Model,
        *,
        transfer_ms: float = 0.0,
        is_serial: bool = False,
    ) -> None:
        self.now_ms = 0.0
        self._policy, self._model, self._transfer_ms = policy, model, transfer_ms
        self._processors, self._is_serial = tuple(processors), is_serial
        self._waiting: dict[str, _Request] = {}
        self._running: dict[str, _Run] = {}
        self._helping: dict[str, _Run] = {}
        """By processor: the run of another one that it helps."""
        self._lost: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._is_due = False
        self.traces: list[Trace] = []
        self.broken = 0

    # -- what happens to it --------------------------------------------------------------------------------------------

    def at(self, ms: float, do: Callable[[], None]) -> None:
        """Do something then."""
        heapq.heappush(self._timers, (ms, next(self._numbers), do))

    def submit(
        self,
        name: str,
        network: str,
        on_end: Callable[[Answer], None],
        deadline_ms: float = FOREVER,
        *,
        drop_late: bool = False,
    ) -> None:
        """A request comes now. Names are unique. `drop_late`: it is dropped when it cannot be in time any more; else it
        runs late.
        """
        if name in self._waiting or name in self._answered:
            raise Broken(f"request {name!r} came twice")
        job = Job(name, self._model.partition(network), self.now_ms, deadline_ms)
        self._waiting[name] = _Request(job, network, on_end, drop_late)
        self._is_due = True

    def lose(self, processor: str) -> None:
        """It runs nothing any more; what it ran goes back to the queue."""
        self._lost[processor] += 1
        for place, run in [*self._running.items()]:
            if processor in (place, run.helper):
                run.is_broken = True
                self.broken += 1
                del self._running[place]
                if run.helper is not None:
                    del self._helping[run.helper]
                self._requeue(run.request, at_head=True)
        self._is_due = True

    def restore(self, processor: str) -> None:
        """Undo one `lose`."""
        self._lost[processor] -= 1
        self._is_due = True

    def run(self) -> None:
        """Until nothing is left to happen."""
        while True:
            if self._is_due:
                self._is_due = False
                self._dispatch()
            if not self._timers:
                return
            self.now_ms = self._timers[0][0]
            while self._timers and self._timers[0][0] <= self.now_ms:
                heapq.heappop(self._timers)[2]()

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Ask until no processor that could begin now has a job for it.

        Who is to begin later is set aside, and its processor is taken until then: others go where that leaves room.
        Nothing of that is kept, for the next event decides anew.
        """
        free_ms = {name: self._free_ms(name) for name in self._processors if not self._lost[name]}
        jobs = self._candidates()
        while jobs and any(self._can_begin(name) and until <= self.now_ms for name, until in free_ms.items()):
            processors = tuple(Processor(name, until) for name, until in free_ms.items())
            plan = self._policy.plan(DispatchInput(self.now_ms, processors, tuple(jobs.values()), self._transfer_ms))
            late = [name for name in plan.violated if self._waiting[name].is_dropped_late]
            for name in late:
                del jobs[name]
                self._end(self._waiting.pop(name), ran=False)
            if late:
                continue
            decision = plan.decision
            if decision is None:
                return
            job = jobs.pop(decision.job)
            took_ms = self._believed_ms(job, decision)
            place = decision.processor
            if self._can_begin(place) and free_ms[place] <= self.now_ms:
                self._begin(decision, took_ms)
                free_ms[place] = max(self._free_ms(place), self.now_ms + took_ms)
                opened = self._open()
                jobs = {name: job for name, job in jobs.items() if name in opened}
            else:
                free_ms[place] = max(free_ms[place], decision.start_ms) + took_ms

    def _candidates(self) -> dict[str, Job]:
        """Jobs as they are believed now."""
        found = {}
        for name in self._open():
            request = self._waiting[name]
            now_believed = self._model.partition(request.network)
            if request.job.partition is not now_believed:
                request.job = replace(request.job, partition=now_believed)
            found[name] = request.job
        return found

    def _open(self) -> list[str]:
        """Requests that may begin: all that wait, or of each network the one that has begun, else the first."""
        if not self._is_serial:
            return [*self._waiting]
        running = {run.request.network for run in self._running.values()}
        first: dict[str, str] = {}
        for name, request in self._waiting.items():
            held = first.setdefault(request.network, name)
            if request.job.done and not self._waiting[held].job.done:
                first[request.network] = name
        return [name for network, name in first.items() if network not in running]

    def _run_on(self, name: str) -> _Run | None:
        """The run that keeps a processor busy, as its own or as one that calls it."""
        return self._running.get(name) or self._helping.get(name)

    def _free_ms(self, name: str) -> float:
        """When it is expected to be free."""
        run = self._run_on(name)
        return self.now_ms if run is None else max(run.expected_end_ms, self.now_ms + ROUNDING_MS)

    def _can_begin(self, name: str) -> bool:
        return self._run_on(name) is None and not self._lost[name]

    def _believed_ms(self, job: Job, decision: Decision) -> float:
        (subgraph,) = (one for one in job.partition.subgraphs if one.units == decision.units)
        return subgraph.latency_ms[decision.processor] + self._moved_ms(job, decision.processor)

    def _moved_ms(self, job: Job, processor: str) -> float:
        return 0.0 if job.at in (None, processor) else self._transfer_ms

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _begin(self, decision: Decision, believed_ms: float) -> None:
        request = self._waiting.pop(decision.job)
        place = decision.processor
        moved_ms = self._moved_ms(request.job, place)
        legs = deque(self._model.legs(request.network, decision.units, place))
        run = _Run(request, decision, legs, self.now_ms, moved_ms, self.now_ms + believed_ms)
        self._running[place] = run
        self.at(self.now_ms + moved_ms, lambda: self._next_leg(run))

    def _next_leg(self, run: _Run) -> None:
        if run.is_broken:
            return
        if run.delay_ms:
            delay_ms, run.delay_ms = run.delay_ms, 0.0
            self.at(self.now_ms + delay_ms, lambda: self._next_leg(run))
            return
        if run.helper is not None:
            del self._helping[run.helper]
            run.helper = None
            self._is_due = True
        if not run.legs:
            self._ended(run)
            return
        leg = run.legs.popleft()
        took_ms = self._elsewhere_ms(run, leg) if leg.elsewhere else leg.took_ms
        self.at(self.now_ms + took_ms, lambda: self._next_leg(run))

    def _elsewhere_ms(self, run: _Run, leg: Leg) -> float:
        """What a leg takes on another processor: alone on an idle one, else beside what runs there, half as quick."""
        idle = next((name for name in leg.elsewhere if self._can_begin(name)), None)
        if idle is not None:
            run.helper, self._helping[idle] = idle, run
            return leg.took_ms
        hosts = [host for name in leg.elsewhere if (host := self._run_on(name))]
        if not hosts:
            raise Broken(f"{leg.elsewhere} are lost, and {run.decision.ops} call them")
        min(hosts, key=lambda host: host.delay_ms).delay_ms += leg.took_ms
        return 2 * leg.took_ms

    def _ended(self, run: _Run) -> None:
        place, request = run.decision.processor, run.request
        del self._running[place]
        self.traces.append(Trace(place, request.job.name, run.decision.ops, run.start_ms, self.now_ms))
        took_ms = self.now_ms - run.start_ms - run.moved_ms
        self._model.learn(request.network, run.decision.units, place, took_ms)
        self._is_due = True
        done = request.job.done | run.decision.units
        if done == request.job.partition.whole:
            self._end(request, ran=True)
        else:
            request.job = replace(request.job, done=done, at=place, queued_ms=self.now_ms)
            self._requeue(request, at_head=self._policy.requeues_at_head)

    def _requeue(self, request: _Request, *, at_head: bool) -> None:
        again = {request.job.name: request}
        self._waiting = again | self._waiting if at_head else self._waiting | again

    def _end(self, request: _Request, *, ran: bool) -> None:
        job = request.job
        if job.name in self._answered:
            raise Broken(f"request {job.name!r} was answered twice")
        self._answered.add(job.name)
        self._is_due = True
        request.on_end(Answer(job.name, self.now_ms, ran))


Times = Mapping[tuple[int, str], float]
"""(units of a subgraph, processor) → milliseconds."""


def believed(cut: Partition, times: Times) -> Partition:
    """The same cut with other times; they need not add up."""
    made = {
        one.units: replace(one, latency_ms={p: times[one.units, p] for p in one.latency_ms}) for one in cut.subgraphs
    }
    return replace(
        cut,
        subgraphs=tuple(made.values()),
        next={done: tuple((after, made[one.units]) for after, one in choices) for done, choices in cut.next.items()},
        searches={},
    )
