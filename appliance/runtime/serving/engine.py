"""The way of a request: admission → placement → queue → worker → result.

A run shorter than the hop to a worker and back is computed inline, on the event loop: neither queue nor worker, the
same way before and after. So is a longer one, up to a bound, of who asks alone.

One engine serves the real box and the lab; it knows neither HTTP nor files nor threads. Every request gets exactly one
answer.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import Application
from appliance.domain.errors import BadTensor, LimitReached, NoRoomToRun, Overloaded, ProcessorLost, QuotaExceeded
from appliance.domain.request import RanPart, Request, Result
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import DecisionSink, Processor, RunGroup
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.servable import Servable
from appliance.runtime.serving.admission import Admission, Described, check_input
from appliance.runtime.serving.availability import Availability
from appliance.runtime.serving.dispatcher import Dispatching
from appliance.runtime.serving.eager import in_task
from appliance.runtime.serving.inline_runs import InlineRuns
from appliance.runtime.serving.job import RunAgain
from appliance.runtime.serving.outcomes import Outcomes, result_of
from appliance.runtime.serving.overflow import Overflow
from appliance.runtime.serving.placement import Placed, Placement
from appliance.runtime.serving.queue import Announced, Queue
from appliance.runtime.serving.queued_runs import QueuedRuns
from appliance.runtime.serving.runs_in_parts import RunsInParts
from appliance.runtime.serving.sequences import Key, Sequences
from appliance.runtime.serving.spending import SpendingByTenant
from appliance.runtime.serving.trial_samples import TrialSamples
from appliance.runtime.serving.worker import Worker
from appliance.runtime.telemetry import Telemetry
from appliance.tasks.base import next_state, step_inputs, with_defaults

_STUCK_NS = 60 * NS_PER_S


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
        trials: TrialSamples,
        groups: Sequence[RunGroup],
        inline_ns_max: int = 0,
        alone_ns_max: int = 0,
    ) -> None:
        """`groups`: who takes runs of what `processor` holds.

        Runs expected to take at most `inline_ns_max` take no worker: they are over before a thread would have
        begun. So do runs up to `alone_ns_max` while nobody else is there who would wait.
        """
        self._clock = clock
        self.groups = groups
        self._catalogue = catalogue
        self._admission = admission
        self._availability = availability
        self._placement = placement
        self._memory = memory
        self.queue = queue
        self._sequences = sequences
        self.trials = trials
        self.outcomes = Outcomes(clock, catalogue, telemetry, decisions, trials)
        self._residency = residency
        workers = sum(group.workers for group in groups)
        self.single_calls = SpendingByTenant()
        """Processor time of requests that have no meter of their own."""
        self.on_processors: Callable[[], None] = lambda: None
        """Called when processors have come or gone."""
        self.workers = [
            Worker(clock, group, queue, memory.runs, memory.unpin, self.single_calls, index)
            for index, group in enumerate(groups)
            for _ in range(group.workers)
        ]
        overflow = Overflow(clock, catalogue, memory, groups)
        placement.on_overflow = overflow.bring
        self.queued = QueuedRuns(clock, catalogue, queue, memory, workers, overflow)
        self._in_parts = RunsInParts(clock, catalogue, self.queued, Dispatching(clock, queue, memory, groups))
        self._inline = InlineRuns(
            clock,
            catalogue,
            queue,
            memory,
            processor,
            self.single_calls,
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
            task = entry.model.task
            if task.state or task.constants:
                return await self._infer_stateful(request, entry)
            if task.defaults:
                request.inputs = with_defaults(request.inputs, task)
            return await self._infer(request, entry)
        except Exception as error:
            self.outcomes.failed(request, entry, error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self.outcomes.cancelled(request, entry)
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
            self.queue.check_place(application.id, tenant)
        except LimitReached as error:
            self.outcomes.failed(Request(application.id, tenant, {}, self._clock.now_ns()), entry, error)
            raise

    def check_inputs(
        self, application: Application, tenant: str, variant: str | None, inputs: Sequence[Described]
    ) -> None:
        """Whether a variant that may answer takes such inputs: asked before anything is made of their data.

        Raises: BadTensor, ModelUnavailable, ShuttingDown.
        """
        entry = self._availability.entry(application.id)
        misfit: BadTensor | None = None
        for servable in entry.order if variant is None else filter(None, (entry.servables.get(variant),)):
            try:
                for name, dtype, shape in inputs:
                    check_input(name, dtype, shape, servable)
            except BadTensor as error:
                misfit = misfit or error
            else:
                return
        if misfit is not None:
            asked = Request(application.id, tenant, {}, self._clock.now_ns(), variant=variant)
            self.outcomes.failed(asked, entry, misfit)
            try:
                raise misfit
            finally:
                del misfit  # it holds this frame, which would hold it, and so the body of the request

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

    def running_of(self, tenant: str) -> int:
        """Requests of a tenant that were let in and have no answer yet."""
        return self._admission.running(tenant)

    def take_slot(self, tenant: str) -> bool:
        """One more run of a call that was let in, beside those of it that are under way: whether the tenant may have
        one more request at once. One that may is counted until `give_slot`; it is none of the rate.
        """
        if not self._catalogue.has_tenant(tenant):  # deleted meanwhile
            return False
        return self._admission.enter_beside(tenant, self._catalogue.tenant(tenant).quota)

    def give_slot(self, tenant: str) -> None:
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
            return self.queue.announce(request, expected_ns, self._catalogue.weights(application, tenant))
        except Overloaded as error:
            self.outcomes.failed(request, entry, error)
            raise

    def charge(self, application: Application, tenant: str, took_ns: int) -> None:
        """Count processor time that a tenant's call took beside its runs, as that of an inline run."""
        self._inline.charge(application, tenant, took_ns, self._clock.now_ns())

    def deadline_ns(self, application: Application, arrival_ns: int) -> int:
        """Of a request that states none."""
        return self._admission.deadline_ns(arrival_ns, application)

    def run_totals(self) -> tuple[int, float]:
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
        if not self.queue.free or len(self.groups) == 1:
            return self.queue.free
        return sum(count for at, count in self.queue.idle().items() if self.groups[at].is_serving())

    def serving_workers(self) -> int:
        """Workers whose processors take runs now; one where none does, for they come back."""
        return max(1, sum(group.workers for group in self.groups if group.is_serving()))

    def unplanned(self, now_ns: int) -> tuple[float, float]:
        """What runs that belong to no session take of late, in workers, and the longest of them, milliseconds."""
        each = (self._inline.unplanned, *(worker.unplanned for worker in self.workers))
        return sum(one.share(now_ns) for one in each), max(one.longest_ns(now_ns) for one in each) / NS_PER_MS

    def busy_for_ns(self) -> int:
        """For how long every worker is expected to be taken by the run that it has; 0: one is free."""
        rests_ns = self.queue.rests_ns()
        return 0 if len(rests_ns) < self.serving_workers() else min(rests_ns)

    def asked(self) -> tuple[int, int]:
        """Requests since the start, and those under way."""
        return self._availability.begun, self._availability.running()

    def is_stuck(self) -> bool:
        """Whether a run holds its worker a minute after it was stopped at its deadline, and after it should have ended:
        that one will never end. Those that take no worker hold the event loop, and nobody asks.
        """
        return self.queue.overdue_ns(self._clock.now_ns()) > _STUCK_NS

    def status(self) -> dict[str, Any]:
        """For `/v1/system`: what waits and runs."""
        return {
            "queued": len(self.queue),
            "queues": self.queue.lengths(),
            "running": self._availability.running(),
            "workers": [{"busy_ms": w.busy_ns / NS_PER_MS, "runs": w.runs} for w in self.workers],
            "sequences": len(self._sequences),
            "draining": self._availability.is_closing,
        }

    def look_again(self) -> None:
        """Processors have come or gone: who waits may have another one now."""
        self.queue.look()
        self.on_processors()

    @asynccontextmanager
    async def paused(self, processor: str) -> AsyncIterator[None]:
        """Nothing runs on a processor until the end, so that it can be measured, as long as another one runs all that
        it does; else nothing is different: a box with one group of processors does not stop serving.
        """
        async with self.queue.paused(processor):
            yield

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and wait for the running ones, at most so long; what then still waits is told that the
        box shuts down.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._availability.close()
        except TimeoutError:
            self.queue.refuse_all()

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
                    self.queue.check_place(request.application_id, request.tenant)
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
            else:
                ran_on = ""
                parts: Sequence[RanPart] = ()
                try:
                    if servable.parts is None:
                        run, ran_on = await self.queued.run(request, entry, placed, times, items, run_bytes)
                    else:
                        run, parts = await self._in_parts.run(request, entry, placed, times, items, run_bytes)
                except RunAgain:
                    entry = self._catalogue.entry(request.application_id)  # what it was to run on may be lost
                    continue
                self.outcomes.answered(request, entry, placed, items, run, placed_ns, parts)
                return result_of(placed, run, placed_ns, ran_on, parts)
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

    async def _infer_stateful(self, request: Request, entry: Entry) -> Result:
        """Feed constants and the sequence's state; without a sequence the model starts from zeros and forgets."""
        await in_task()
        self.queue.check_place(request.application_id, request.tenant)
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


def _given(request: Request, entry: Entry) -> dict[str, Any]:
    """State tensors that the caller sends itself win over the kept ones."""
    return {pair.input: request.inputs[pair.input] for pair in entry.model.task.state if pair.input in request.inputs}


def _dtypes(request: Request, entry: Entry) -> dict[str, Any]:
    """Of the inputs of the variant that is named, else of the one that would be chosen first."""
    servable = entry.servables.get(request.variant or "") or next(iter(entry.order), None)
    slots = {} if servable is None else servable.inputs
    return {name: slot.dtype for name, slot in slots.items() if slot.dtype is not None}
