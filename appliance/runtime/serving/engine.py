"""The way of a request: admission → placement → queue → worker → result.

A run shorter than the hop to a worker and back is computed inline, on the event loop: neither queue nor worker, the
same way before and after. So is a longer one, up to a bound, of who asks alone.

One engine serves the real box and the lab; it knows neither HTTP nor files nor threads. Every request gets exactly one
answer.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US, Clock
from appliance.domain.catalogue import Application
from appliance.domain.errors import LimitReached, NoRoomToRun, Overloaded, ProcessorLost, QuotaExceeded
from appliance.domain.request import Request, Result
from appliance.policies.batching.base import BatchingPolicy
from appliance.policies.dispatch.base import DispatchPolicy
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import DecisionSink, Processor, RunGroup
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.servable import Servable
from appliance.runtime.serving.admission import Admission
from appliance.runtime.serving.availability import Availability
from appliance.runtime.serving.batching import Batching
from appliance.runtime.serving.dispatcher import Dispatching, PartsDispatcher
from appliance.runtime.serving.eager import in_task
from appliance.runtime.serving.gaps import Gaps
from appliance.runtime.serving.inline_runs import InlineRuns
from appliance.runtime.serving.job import Job, RunAgain
from appliance.runtime.serving.outcomes import EndedRun, Outcomes, result_of
from appliance.runtime.serving.overflow import Overflow
from appliance.runtime.serving.parts import PartsRun
from appliance.runtime.serving.placement import Placed, Placement
from appliance.runtime.serving.queue import Announced, Queue
from appliance.runtime.serving.reservations import Reservations
from appliance.runtime.serving.scheduler import Scheduler
from appliance.runtime.serving.sequences import Key, Sequences
from appliance.runtime.serving.spending import Spending
from appliance.runtime.serving.staging import StagedJob
from appliance.runtime.serving.worker import Worker
from appliance.runtime.telemetry import Telemetry
from appliance.tasks.base import next_state, step_inputs

_STUCK_NS = 60 * NS_PER_S
_AFTER_NS = NS_PER_US
"""The answer that a deadline has passed comes so long after it: a run that ends at the deadline itself is in time."""


class Engine:
    """Serves requests on one processor's workers. Event-loop thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        admission: Admission,
        availability: Availability,
        placement: Placement,
        memory: MemoryManager,
        queue: Queue,
        processor: Processor,
        sequences: Sequences,
        residency: ResidencyLoop,
        telemetry: Telemetry,
        decisions: DecisionSink,
        batching: BatchingPolicy,
        dispatch: DispatchPolicy,
        dispatch_name: str,
        fixed: Mapping[str, str],
        groups: Sequence[RunGroup],
        inline_ns_max: int = 0,
        alone_ns_max: int = 0,
    ) -> None:
        """`groups`: who takes runs of what `processor` holds; `dispatch` is asked where there are several.

        Runs expected to take at most `inline_ns_max` take no worker: they are over before a thread would have
        begun. So do runs up to `alone_ns_max` while nobody else is there who would wait.
        """
        self._clock = clock
        self._catalogue = catalogue
        self._admission = admission
        self._availability = availability
        self._placement = placement
        self._memory = memory
        self._queue = queue
        self._sequences = sequences
        self.outcomes = Outcomes(clock, catalogue, telemetry, decisions)
        self._residency = residency
        workers = sum(group.workers for group in groups)
        self.single = Spending()
        """Processor time of requests that have no meter of their own."""
        self.on_processors: Callable[[], None] = lambda: None
        """Called when processors have come or gone."""
        self._batching = shared = Batching(clock, queue, batching, memory.runs, workers)
        self.workers = [
            Worker(clock, group, queue, memory.unpin, shared, self.single, index)
            for index, group in enumerate(groups)
            for _ in range(group.workers)
        ]
        self._dispatching = Dispatching(clock, queue, memory, groups)
        self._overflow = Overflow(clock, catalogue, memory)
        placement.on_overflow = self._overflow.bring
        self.reservations = Reservations(clock, queue, len(groups))
        self._scheduler = None
        if len(groups) == 1 and groups[0].stage is not None:
            queue.staged = StagedJob(groups[0].stage)
        if len(groups) > 1:
            self._scheduler = Scheduler(
                clock, queue, groups, dispatch, dispatch_name, fixed, decisions, self.reservations
            )
        else:
            Gaps(clock, queue, self.reservations)
        self._inline = InlineRuns(
            clock,
            catalogue,
            queue,
            memory,
            processor,
            self.reservations,
            self.single,
            inline_ns_max,
            alone_ns_max,
        )

    def preferred(self, application: Application, variant: str | None) -> Servable:
        """The variant that a request would get now: what decoding must prepare the tensors for.

        Raises: ShuttingDown, UnknownVariant, ModelUnavailable.
        """
        return self._placement.preferred(self._availability.entry(application.id), variant)

    async def infer(self, request: Request) -> Result:
        """Run one request.

        One whose build is in memory and quick waits for nothing: `eager.begin` has its result without a task.

        Raises: ModelUnavailable, UnknownVariant, BadTensor, QuotaExceeded, QueueFull, OutOfMemory, LoadFailed,
        DeadlineExceeded, RunFailed, IllegalState (of a sequence), ShuttingDown.
        """
        entry = self._availability.entry(request.application_id)
        tenant = request.tenant
        try:
            quota = self._catalogue.tenant(tenant).quota
            if not request.is_admitted:
                self._admission.enter(tenant, quota)
        except QuotaExceeded as error:
            self.outcomes.failed(request, entry, error)
            raise
        model_id = entry.model.id
        self._availability.begin(model_id)
        try:
            self._admission.set_deadline(request, entry.application)
            if entry.model.task.state or entry.model.task.constants:
                return await self._infer_stateful(request, entry)
            return await self._infer(request, entry)
        except Exception as error:
            self.outcomes.failed(request, entry, error)
            raise
        finally:
            if not request.is_admitted:
                self._admission.leave(tenant)
            self._availability.end(model_id)

    def check(self, application: Application, tenant: str) -> None:
        """Whether a request would be let in now: asked before its body is kept.

        Raises: QuotaExceeded, QueueFull, ModelUnavailable, ShuttingDown.
        """
        entry = self._availability.entry(application.id)
        try:
            self._admission.check(tenant, self._catalogue.tenant(tenant).quota)
            self._queue.check_room(application.id, tenant)
        except LimitReached as error:
            self.outcomes.failed(Request(application.id, tenant, {}, self._clock.now_ns()), entry, error)
            raise

    def wake_ahead(self, application: Application, variant: str | None) -> bool:
        """Begin to wake what a request that was let in will want, while its body is read and decoded; whether it
        began cold (`Request.began_cold`).

        Raises: ShuttingDown, ModelUnavailable.
        """
        return self._placement.wake_ahead(self._availability.entry(application.id), variant)

    @contextmanager
    def admitted(self, application: Application, tenant: str) -> Iterator[None]:
        """Let a call in as a whole: decoding, its runs (`Request.is_admitted`) and what comes after them.

        Raises: as `check`.
        """
        self.check(application, tenant)
        self._admission.enter(tenant, self._catalogue.tenant(tenant).quota)
        try:
            yield
        finally:
            self._admission.leave(tenant)

    def take_item(self, tenant: str) -> bool:
        """One more run of a call that was let in, beside those of it that are under way: whether the tenant may have
        one more request at once. One that may is counted until `give_item`; it is none of the rate.
        """
        return self._admission.enter_beside(tenant, self._catalogue.tenant(tenant).quota)

    def give_item(self, tenant: str) -> None:
        """It is over."""
        self._admission.leave(tenant)

    def expected_ns(self, application: Application, variant: str | None) -> int:
        """What a run of one usual input would take now, on what would answer it; 0: nobody knows.

        Raises: as `preferred`.
        """
        times = self.preferred(application, variant).times
        return 0 if times is None else times.usual.likely_ns(self._clock.now_ns())

    def announce(self, application: Application, tenant: str, deadline_ns: int | None = None) -> Announced:
        """While the body of a request is read, in a `with`: its run counts among those that wait.

        `deadline_ns` None: it has not stated any yet. Raises: Overloaded, before the body has cost anything.
        """
        entry = self._availability.entry(application.id)
        now_ns = self._clock.now_ns()
        request = Request(application.id, tenant, {}, now_ns, deadline_ns=deadline_ns)
        self._admission.set_deadline(request, entry.application)
        times = next((s.times for s in entry.order if s.times is not None), None)
        expected_ns = 0 if times is None else times.usual.likely_ns(now_ns)
        try:
            return self._queue.announce(request, expected_ns, self._catalogue.weights(application, tenant))
        except Overloaded as error:
            self.outcomes.failed(request, entry, error)
            raise

    def charge(self, application: Application, tenant: str, took_ns: int) -> None:
        """Count processor time that a tenant's call took beside its runs, as that of an inline run."""
        self._inline.charge(application, tenant, took_ns, self._clock.now_ns())

    def deadline_ns(self, application: Application, arrival_ns: int) -> int:
        """Of a request that states none."""
        return self._admission.deadline_ns(arrival_ns, application)

    def ran(self) -> tuple[int, float]:
        """Runs since the start, and the milliseconds that they took, on workers and on the event loop."""
        runs = self._inline.runs + sum(worker.runs for worker in self.workers)
        busy_ns = self._inline.busy_ns + sum(worker.busy_ns for worker in self.workers)
        return runs, busy_ns / NS_PER_MS

    def batches(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Group and kind of processors → runs of whole networks there that have ended well, and their rows."""
        runs: Counter[tuple[str, str]] = Counter()
        rows: Counter[tuple[str, str]] = Counter()
        first = self.workers[0].group
        for group, of in ((first, self._inline.whole), *((one.group, one.whole) for one in self.workers)):
            runs.update({(group, kind): count for kind, count in of.items()})
        for group, of in ((first, self._inline.rows), *((one.group, one.rows) for one in self.workers)):
            rows.update({(group, kind): count for kind, count in of.items()})
        return {key: (count, rows[key]) for key, count in runs.items()}

    def free_workers(self) -> int:
        """Workers that a request would get at once."""
        return self._queue.free

    def ran_unplanned(self) -> tuple[float, float]:
        """What runs that belong to no session have taken since the start, and the longest of them since this was asked
        last; milliseconds."""
        each = (self._inline.unplanned, *(worker.unplanned for worker in self.workers))
        total_ns, longest_ns = sum(one.ns for one in each), max(one.longest_ns for one in each)
        for one in each:
            one.longest_ns = 0
        return total_ns / NS_PER_MS, longest_ns / NS_PER_MS

    def busy_for_ns(self) -> int:
        """For how long every worker is expected to be taken by the run that it has; 0: one is free."""
        rests_ns = self._queue.rests_ns()
        return 0 if len(rests_ns) < len(self.workers) else min(rests_ns)

    def is_stuck(self) -> bool:
        """Whether a run holds its worker a minute after it was stopped at its deadline, and after it should have ended:
        that one will never end. Those that take no worker hold the event loop, and nobody asks.
        """
        return self._queue.overdue_ns(self._clock.now_ns()) > _STUCK_NS

    def status(self) -> dict[str, Any]:
        """For `/v1/system`: what waits and runs."""
        return {
            "queued": len(self._queue),
            "queues": self._queue.lengths(),
            "running": self._availability.running(),
            "workers": [{"busy_ms": w.busy_ns / NS_PER_MS, "runs": w.runs} for w in self.workers],
            "sequences": len(self._sequences),
            "draining": self._availability.is_closing,
        }

    def look_again(self) -> None:
        """Processors have come or gone: who waits may have another one now."""
        if self._scheduler is not None:
            self._scheduler.assign()
        self.on_processors()

    @asynccontextmanager
    async def paused(self, processor: str) -> AsyncIterator[None]:
        """Nothing runs on a processor until the end, so that it can be measured, as long as another one runs all that
        it does; else nothing is different: a box with one group of processors does not stop serving.
        """
        if self._scheduler is None:
            yield
            return
        async with self._scheduler.paused(processor):
            yield

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and wait for the running ones, at most so long; what then still waits is told that the
        box shuts down.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._availability.close()
        except TimeoutError:
            self._queue.refuse_all()

    # -- the steps of a request ----------------------------------------------------------------------------------------

    async def _infer(self, request: Request, entry: Entry) -> Result:
        start_ns = placed_ns = self._clock.now_ns()
        if not request.is_frame:
            self._residency.seen(request.application_id, placed_ns)
        inline = self._inline
        inline.sole_caller.saw(request.source, placed_ns)
        while True:
            placed = self._placement.pin_resident(request, entry)
            if placed is None:
                candidates = self._placement.candidates(request, entry)
                await in_task()
                if not request.runs_alone:
                    self._queue.check_room(request.application_id, request.tenant)
                try:
                    placed = await self._placement.load(request, entry, candidates)
                except ProcessorLost:  # while it was loaded
                    before, entry = entry, self._catalogue.entry(request.application_id)
                    if entry is before:  # there is no other processor for it
                        raise
                    continue
                start_ns = self._clock.now_ns()
            servable = placed[0]
            items = servable.items_of(request.inputs)
            times = servable.usual_times or servable.times_of(request.inputs, items)
            inline_ns = None if times is None else times.inline_ns(items, start_ns)
            run_bytes = self._run_bytes(request, placed) if servable.counted_bytes_max else 0
            if run_bytes == 0 and inline.may_run(request, placed, inline_ns, start_ns, inline.short):
                run = inline.run(request, entry, placed[1], start_ns, items)
                inline.ran(request, entry, placed[1], times, run, inline.short)
                self.outcomes.answered(request, entry, placed, items, run, placed_ns)
            elif inline.is_alone(request, start_ns, inline_ns) and inline.may_run(
                request, placed, inline_ns, start_ns, inline.alone
            ):
                run = inline.run(request, entry, placed[1], start_ns, items, run_bytes)
                # Answered first: after such a run the caches are cold, and what counts it takes a tenth of a
                # millisecond that nobody need wait for. No other request is read before.
                soon = asyncio.get_running_loop().call_soon
                soon(inline.ran, request, entry, placed[1], times, run, inline.alone)
                soon(self.outcomes.answered, request, entry, placed, items, run, placed_ns)
            elif servable.parts is not None:
                try:
                    return await self._run_in_parts(request, entry, placed, times, items, run_bytes, placed_ns)
                except RunAgain:
                    entry = self._catalogue.entry(request.application_id)  # a processor may be lost
                    continue
            else:
                try:
                    run, ran_on = await self._run_in_turn(request, entry, placed, times, items, run_bytes)
                except RunAgain:
                    entry = self._catalogue.entry(request.application_id)  # what it was to run on may be lost
                    continue
                self.outcomes.answered(request, entry, placed, items, run, placed_ns)
                return result_of(placed, run, placed_ns, ran_on)
            return result_of(placed, run, placed_ns)

    def _run_bytes(self, request: Request, placed: Placed) -> int:
        """What the run will take. Raises: NoRoomToRun, with the build released, where that does not fit now."""
        servable, build, *_ = placed
        run_bytes = servable.run_bytes_of(request.shapes)
        try:
            self._memory.runs.check(servable.build_id, servable.name, run_bytes)
        except NoRoomToRun:
            self._memory.unpin(build)
            raise
        return run_bytes

    async def _run_in_turn(
        self, request: Request, entry: Entry, placed: Placed, times: RunTimes | None, items: int, run_bytes: int
    ) -> tuple[EndedRun, str]:
        """Wait for a worker, and release the build after the run; at the deadline the caller is told, whatever its
        run does. Also gives the build that it ran as: it may be the one for another kind of processor.
        """
        servable, build, *_ = placed
        expected_ns: int | None = None
        if times is not None:
            expected_ns = self._expected_ns(request, times, items)
        loop = asyncio.get_running_loop()
        weights = self._catalogue.weights(entry.application, request.tenant)
        answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        job = Job(
            request,
            servable,
            build,
            answer,
            times=times,
            expected_ns=expected_ns,
            run_bytes=run_bytes,
            weights=weights,
        )
        if servable.places:
            job.times_by_group = found = servable.times_by_place(request.inputs, items)
            job.expected_by_group = {at: self._expected_ns(request, one, items) for at, one in found.items()}
            job.expected_ns = min(job.expected_by_group.values(), default=expected_ns)
        held = [build]
        if servable.overflow:
            held += self._may_overflow(job, items)
        since_ns, idle = self._clock.now_ns(), self._queue.idle().keys() if servable.overflow else frozenset()
        timer: asyncio.TimerHandle | None = None
        try:
            self._queue.put(job)
            if request.drop_ns is not None:
                timer = loop.call_at((request.drop_ns + _AFTER_NS) / NS_PER_S, self._queue.expire, job)
            outputs = await answer
            return (outputs, job.started_ns, job.finished_ns, job.run_items), job.build.build_id
        finally:
            if timer is not None:
                timer.cancel()
            if self._queue.is_running(job):  # nobody waits for it: the build stays pinned until the run is over
                job.is_abandoned = True
                held = [one for one in held if one is not job.build]
            else:
                self._queue.leave(job)
            for each in held:
                self._memory.unpin(each)
            if servable.overflow or self._overflow.is_used:
                self._overflow.ended(servable, job, since_ns, idle)
            # An error holds this frame, and the answer holds the error: a circle that would keep the tensors.
            del answer, job

    def _may_overflow(self, job: Job, items: int) -> list[LoadedBuild]:
        """Let a job run on further kinds of processors, too, as far as its build for them is there; returns those,
        pinned.
        """
        if job.times_by_group is None or job.expected_by_group is None:
            return []
        times, expected, also = dict(job.times_by_group), dict(job.expected_by_group), {}
        others = self._overflow.pinned(job.servable)
        for other, build in others:
            for at, one in other.times_by_place(job.request.inputs, items).items():
                if at not in times:
                    times[at], also[at] = one, (other, build)
                    expected[at] = self._expected_ns(job.request, one, items)
        job.times_by_group, job.expected_by_group, job.also_on = times, expected, also
        job.expected_ns = min(expected.values(), default=job.expected_ns)
        return [build for _, build in others]

    async def _run_in_parts(
        self,
        request: Request,
        entry: Entry,
        placed: Placed,
        times: RunTimes | None,
        items: int,
        run_bytes: int,
        placed_ns: int,
    ) -> Result:
        """Run the parts of a network where they are dispatched to; the build is released when nothing of it runs any
        more. At the deadline the caller is told, as for a network that runs whole; so is one that goes away, and where
        others have rows in its run, that goes on for them.

        What its parts have taken is what it computed; whatever was between them, it waited.
        """
        servable, build, *_ = placed
        assert servable.parts is not None
        expected_ns = None if times is None else self._expected_ns(request, times, items)
        weights = self._catalogue.weights(entry.application, request.tenant)
        dispatcher = PartsDispatcher(self._dispatching, request, servable, build, expected_ns, run_bytes, weights)
        outputs = request.outputs if request.outputs is not None else [one.name for one in servable.variant.outputs]
        parts = PartsRun(self._clock, servable.parts.cut, request, outputs, items)
        until_s = None if request.drop_ns is None else (request.drop_ns + _AFTER_NS) / NS_PER_S
        work: asyncio.Task[dict[str, Any]] | None = None
        try:
            await in_task()
            work = asyncio.create_task(parts.run(dispatcher))
            work.add_done_callback(partial(_close, dispatcher))
            async with asyncio.timeout_at(until_s):
                answer = await asyncio.shield(work)
        except TimeoutError:
            raise parts.too_late() from None
        finally:
            if work is None:
                dispatcher.close()
            elif not work.done():
                parts.is_left = True
                if not parts.is_shared:
                    work.cancel()
            del work  # it holds its error, and that this frame: a circle that would keep the tensors
        end_ns = self._clock.now_ns()
        if times is not None and parts.run_items:
            times.ran(parts.run_items, 1, parts.took_ns, end_ns)
        run = answer, end_ns - parts.took_ns, end_ns, parts.run_items
        self.outcomes.answered(request, entry, placed, items, run, placed_ns, parts.ran)
        return result_of(placed, run, placed_ns, parts=parts.ran)

    def _expected_ns(self, request: Request, times: RunTimes, items: int) -> int:
        """What a run that began now would take."""
        running = min(self._batching.running + 1, len(self.workers))
        now_ns = self._clock.now_ns()
        if request.drop_ns is None:
            return times.expected_ns(items, running, now_ns)
        return times.in_time_ns(items, running, now_ns, request.drop_ns - now_ns)

    async def _infer_stateful(self, request: Request, entry: Entry) -> Result:
        """Feed constants and the sequence's state; without a sequence the model starts from zeros and forgets."""
        await in_task()
        self._queue.check_room(request.application_id, request.tenant)
        spec = entry.model.task
        if request.sequence_id is None or not spec.state:
            request.inputs = step_inputs(request.inputs, spec, request.inputs, _dtypes(request, entry))
            return await self._infer(request, entry)
        key: Key = (request.application_id, request.tenant, request.sequence_id)
        sequence = self._sequences.open(key, start=request.sequence_start)
        async with self._sequences.turn(sequence, request.drop_ns):
            known = {**sequence.tensors, **_given(request, entry)}
            request.inputs = step_inputs(request.inputs, spec, known, _dtypes(request, entry))
            wanted = request.outputs
            if wanted is not None:
                request.outputs = list(dict.fromkeys([*wanted, *(pair.output for pair in spec.state)]))
            result = await self._infer(request, entry)
            sequence.tensors = next_state(result.outputs, spec)
        if request.sequence_end:
            self._sequences.close(key, sequence)
        if wanted is not None:
            result.outputs = {name: result.outputs[name] for name in wanted}
        return result


def _close(dispatcher: PartsDispatcher, work: "asyncio.Task[dict[str, Any]]") -> None:
    """Nothing is left to run of a request in parts."""
    dispatcher.close()
    if not work.cancelled():
        work.exception()  # whoever asked may have gone


def _given(request: Request, entry: Entry) -> dict[str, Any]:
    """State tensors that the caller sends itself win over the kept ones."""
    return {pair.input: request.inputs[pair.input] for pair in entry.model.task.state if pair.input in request.inputs}


def _dtypes(request: Request, entry: Entry) -> dict[str, Any]:
    """Of the inputs of the variant that is named, else of the one that would be chosen first."""
    servable = entry.servables.get(request.variant or "") or next(iter(entry.order), None)
    slots = {} if servable is None else servable.inputs
    return {name: slot.dtype for name, slot in slots.items() if slot.dtype is not None}
