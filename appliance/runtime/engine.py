"""The way of a request: admission → residency → queue → worker → result.

One engine serves the real box and the lab; it knows neither HTTP nor files nor threads. Every request gets exactly one answer.
"""

import asyncio
from collections import Counter
from typing import Any

from appliance.clock import Clock
from appliance.domain.catalogue import Application
from appliance.domain.errors import (
    ApplianceError,
    BadTensor,
    DeadlineExceeded,
    LimitReached,
    LoadFailed,
    ModelUnavailable,
    OutOfMemory,
    QuotaExceeded,
    ShuttingDown,
)
from appliance.domain.request import Request, Result
from appliance.domain.states import RequestState
from appliance.runtime.admission import Admission, check_outputs, check_tensors
from appliance.runtime.catalogue import Catalogue, Entry, Servable
from appliance.runtime.memory import MemoryManager
from appliance.runtime.ports import Processor
from appliance.runtime.queues import Job, Queue
from appliance.runtime.reside import Resider
from appliance.runtime.residency import Residency
from appliance.runtime.sequences import Key, Sequences
from appliance.runtime.telemetry import Telemetry
from appliance.runtime.worker import Worker
from appliance.tasks.base import next_state, step_inputs

_SURPRISE = 20
"""A run on the event loop that takes this many times the limit (5 ms by default) is a surprise ..."""
_SURPRISES_MAX = 3
"""... and so many in a row are no scheduling hiccup: the build runs on a worker from then on."""

_Placed = tuple[Servable, Residency, bool, int]
"""A pinned build for a request: (servable, residency, warm, nanoseconds of loading)."""
_Run = tuple[dict[str, Any], int, int]
"""A run: (outputs, start, end)."""


class Engine:
    """Serves requests on one processor's workers. Event-loop thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        admission: Admission,
        memory: MemoryManager,
        queue: Queue,
        processor: Processor,
        sequences: Sequences,
        telemetry: Telemetry,
        resider: Resider | None = None,
        quick_ns_max: int = 0,
    ) -> None:
        """Runs expected to take at most `quick_ns_max` take no worker: they are over before a thread would have begun."""
        self._clock = clock
        self._catalogue = catalogue
        self._admission = admission
        self._memory = memory
        self._queue = queue
        self._sequences = sequences
        self._telemetry = telemetry
        self._resider = resider
        self.workers = [Worker(clock, processor, queue, memory.unpin) for _ in range(processor.describe().workers)]
        self._processor = processor
        self._quick_ns_max = quick_ns_max
        self._unavailable: set[str] = set()
        self._running: Counter[str] = Counter()
        """Requests under way by model id."""
        self._quiet = asyncio.Event()
        self._closing = False

    # -- serving -------------------------------------------------------------------------------------------------------

    def is_quick(self, application: Application) -> bool:
        """Whether `infer_at_once` may have answers to its requests; asked before they are decoded."""
        try:
            order = self._catalogue.entry(application.id).order
        except ModelUnavailable:
            return False
        return any(s.expected_ns is not None and s.expected_ns <= self._quick_ns_max for s in order)

    def infer_at_once(self, request: Request) -> Result | None:
        """Run a plain request on the calling thread, now, where that is shorter than to hand it on: its build is in memory, and quick.

        None, and nothing has happened, for every other request; those that must be refused are among them, and `infer` says why.

        Raises: RunFailed.
        """
        placed_ns = self._clock.now_ns()
        try:
            entry = self._open_entry(request)
            if entry.model.task.state or entry.model.task.constants:
                return None
            placed = self._pin_resident(self._candidates(request, entry))
        except ApplianceError:
            return None
        if placed is None:
            return None
        try:
            return self._answer_at_once(request, entry, placed, placed_ns)
        finally:
            self._memory.unpin(placed[1])

    def _answer_at_once(self, request: Request, entry: Entry, placed: _Placed, placed_ns: int) -> Result | None:
        self._admission.set_deadline(request, entry.application.latency_slo_ms)
        if not self._is_quick(request, placed, placed_ns):
            return None
        tenant = request.tenant
        try:
            self._admission.enter(tenant, self._catalogue.tenant(tenant).quota)
        except QuotaExceeded:
            return None
        try:
            run = self._run_at_once(request, placed[1], placed_ns)
        except Exception as error:
            self._count_failure(request, entry, error)
            raise
        finally:
            self._admission.leave(tenant)
        if self._resider is not None:
            self._resider.seen(request.application_id, placed_ns)
        return self._answered(request, placed, run, placed_ns)

    async def infer(self, request: Request) -> Result:
        """Run one request.

        Raises: ModelUnavailable, UnknownVariant, BadTensor, QuotaExceeded, QueueFull, OutOfMemory, LoadFailed, DeadlineExceeded, RunFailed,
        IllegalState (of a sequence), ShuttingDown.
        """
        entry = self._open_entry(request)
        tenant = request.tenant
        try:
            quota = self._catalogue.tenant(tenant).quota
            self._admission.enter(tenant, quota, is_continuation=request.is_continuation)
        except QuotaExceeded as error:
            self._count_failure(request, entry, error)
            raise
        model_id = entry.model.id
        self._running[model_id] += 1
        try:
            self._admission.set_deadline(request, entry.application.latency_slo_ms)
            self._queue.check_room(request.application_id)
            if entry.model.task.state or entry.model.task.constants:
                return await self._infer_stateful(request, entry)
            return await self._infer(request, entry)
        except Exception as error:
            self._count_failure(request, entry, error)
            raise
        finally:
            self._admission.leave(tenant)
            self._running[model_id] -= 1
            if not self._running[model_id]:
                del self._running[model_id]
                self._quiet.set()

    async def _infer(self, request: Request, entry: Entry) -> Result:
        placed_ns = self._clock.now_ns()
        if self._resider is not None:
            self._resider.seen(request.application_id, placed_ns)
        candidates = self._candidates(request, entry)
        placed = self._pin_resident(candidates) or await self._load(request, entry, candidates)
        start_ns = self._clock.now_ns()
        if self._is_quick(request, placed, start_ns):
            try:
                run = self._run_at_once(request, placed[1], start_ns)
            finally:
                self._memory.unpin(placed[1])
        else:
            run = await self._run_in_turn(request, placed)
        return self._answered(request, placed, run, placed_ns)

    def _open_entry(self, request: Request) -> Entry:
        """Raises: ShuttingDown, ModelUnavailable."""
        if self._closing:
            raise ShuttingDown()
        entry = self._catalogue.entry(request.application_id)
        if request.application_id in self._unavailable:
            raise ModelUnavailable(name=entry.application.name)
        return entry

    def _is_quick(self, request: Request, placed: _Placed, now_ns: int) -> bool:
        """Whether to compute a request at once, on this thread. A build that keeps taking much longer loses the privilege."""
        expected_ns = placed[0].expected_of(_batch(request))
        if expected_ns is None or expected_ns > self._quick_ns_max or placed[1].surprises >= _SURPRISES_MAX:
            return False
        return request.deadline_ns is None or now_ns + expected_ns <= request.deadline_ns

    def _run_at_once(self, request: Request, residency: Residency, start_ns: int) -> _Run:
        """Run here and now."""
        outputs = self._processor.run_at_once(residency.handle, request.inputs, request.outputs)
        end_ns = self._clock.now_ns()
        is_surprise = end_ns - start_ns > _SURPRISE * self._quick_ns_max
        residency.surprises = residency.surprises + 1 if is_surprise else 0
        return outputs, start_ns, end_ns

    def _answered(self, request: Request, placed: _Placed, run: _Run, placed_ns: int) -> Result:
        """Count a run and make it the request's result."""
        servable, _, warm, load_ns = placed
        outputs, start_ns, end_ns = run
        queue_ns = start_ns - placed_ns - load_ns
        compute_ns = end_ns - start_ns
        name = servable.variant.name
        key = (request.application_id, name, request.tenant)
        parts = (queue_ns, load_ns, compute_ns)
        self._telemetry.done(key, warm=warm, parts_ns=parts, batch=_batch(request), at_ns=end_ns)
        return Result(outputs, servable.variant.id, name, warm, *parts)

    async def _run_in_turn(self, request: Request, placed: _Placed) -> _Run:
        """Wait for a worker, and release the build after the run."""
        servable, residency, _, _ = placed
        expected_ns = servable.expected_of(_batch(request))
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        job = Job(request, servable, residency, answer, self._clock.now_ns(), expected_ns=expected_ns)
        try:
            self._queue.put(job)
            outputs = await answer
        finally:
            if job.state is RequestState.RUNNING:  # the caller went away: the build stays pinned until the run is over
                job.is_abandoned = True
            else:
                self._memory.unpin(residency)
        return outputs, job.started_ns, job.finished_ns

    async def _infer_stateful(self, request: Request, entry: Entry) -> Result:
        """Feed constants and the sequence's state; without a sequence the model starts from zeros and forgets."""
        spec = entry.model.task
        if request.sequence_id is None or not spec.state:
            request.inputs = step_inputs(request.inputs, spec, request.inputs)
            return await self._infer(request, entry)
        key: Key = (request.application_id, f"{request.tenant}/{request.sequence_id}")
        sequence = self._sequences.open(key, start=request.sequence_start)
        async with sequence.lock:
            request.inputs = step_inputs(request.inputs, spec, {**sequence.tensors, **_given(request, entry)})
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

    def _pin_resident(self, candidates: list[Servable]) -> _Placed | None:
        """The most wanted candidate that is in memory, pinned."""
        for servable in candidates:
            residency = self._memory.pin_resident(servable.build_id)
            if residency is not None:
                return servable, residency, True, 0
        return None

    async def _load(self, request: Request, entry: Entry, candidates: list[Servable]) -> _Placed:
        """The most wanted candidate that finds room, loaded and pinned."""
        warm = any(self._memory.is_resident(s.build_id) for s in entry.servables.values())
        start_ns = self._clock.now_ns()
        refused: ApplianceError | None = None
        candidates = _distinct_builds(candidates)
        if self._resider is not None and not warm:
            candidates = self._resider.order(request.application_id, candidates)
        for servable in candidates:
            try:
                residency = await self._memory.pin(
                    servable.build_id, servable.resident_bytes, servable.peak_bytes, request.deadline_ns
                )
            except (OutOfMemory, LoadFailed) as error:
                refused = error
            else:
                return servable, residency, warm, self._clock.now_ns() - start_ns
        assert refused is not None
        raise refused

    def _candidates(self, request: Request, entry: Entry) -> list[Servable]:
        """Variants that may answer, most wanted first. Raises: BadTensor, UnknownVariant, ModelUnavailable."""
        if request.variant is not None:
            named = self._catalogue.servable(entry, request.variant)
            _check(request, named)
            return [named]
        if not entry.order:
            raise ModelUnavailable(name=entry.application.name)
        fitting: list[Servable] = []
        misfit: BadTensor | None = None
        for servable in entry.order:
            try:
                _check(request, servable)
                fitting.append(servable)
            except BadTensor as error:
                misfit = misfit or error
        if not fitting and misfit is not None:
            raise misfit
        return fitting

    def preferred(self, application: Application, variant: str | None) -> Servable:
        """The variant that a request would get now: what decoding must prepare the tensors for.

        Raises: UnknownVariant, ModelUnavailable.
        """
        entry = self._catalogue.entry(application.id)
        if application.id in self._unavailable or (variant is None and not entry.order):
            raise ModelUnavailable(name=application.name)
        if variant is not None:
            return self._catalogue.servable(entry, variant)
        return next((s for s in entry.order if self._memory.is_resident(s.build_id)), entry.order[0])

    # -- management ----------------------------------------------------------------------------------------------------

    def is_available(self, application: Application) -> bool:
        """Whether `infer` may be called: a servable variant exists (a cold load counts) and nobody unloaded it."""
        try:
            return bool(self._catalogue.entry(application.id).order) and application.id not in self._unavailable
        except ModelUnavailable:
            return False

    async def load(self, application: Application, variant: str | None = None) -> None:
        """Undo an explicit unload and make the wanted variant resident.

        Raises: ModelUnavailable, UnknownVariant, OutOfMemory, LoadFailed.
        """
        self._make_available(application.id)
        self._quiet.set()  # an unload that still waits for this application has nothing to wait for any more
        servable = self.preferred(application, variant)
        residency = await self._memory.pin(servable.build_id, servable.resident_bytes, servable.peak_bytes, None)
        self._memory.unpin(residency)

    async def unload(self, application: Application) -> None:
        """Make the application unavailable, wait for its running requests, and unload the builds that nobody else uses."""
        entry = self._catalogue.entry(application.id)
        self._unavailable.add(application.id)
        if self._resider is not None:
            self._resider.leave_out(application.id)
        while self._running[entry.model.id] and not self._is_model_in_use(entry.model.id):
            await self._quiet_again()
        used = {s.build_id for e in self._catalogue.entries() if self._is_open(e) for s in e.servables.values()}
        for build in sorted({s.build_id for s in entry.servables.values()} - used):
            await self._memory.unload(build)

    async def retire_model(self, model_id: str) -> None:
        """After the catalogue has forgotten a model: wait for its running requests, then unload what nobody refers to any more."""
        while self._running[model_id]:
            await self._quiet_again()
        for build in self._memory.known_builds():
            if not self._catalogue.users_of(build):
                await self._memory.unload(build)

    def forget_application(self, application_id: str) -> None:
        """Drop what is kept of a deleted application, so that a new one of the same name starts afresh."""
        self._make_available(application_id)
        self._sequences.drop_application(application_id)
        self._telemetry.forget_application(application_id)

    async def prefetch(self, build_ids: list[str]) -> None:
        """Make builds resident in the background, in this order, as far as they fit without evicting; for the start of the box."""
        sizes = {s.build_id: s for e in self._catalogue.entries() for s in e.servables.values()}
        for build_id in build_ids:
            servable = sizes.get(build_id)
            if servable is None or self._memory.used_bytes + servable.peak_bytes > self._memory.budget_bytes:
                continue
            try:
                self._memory.unpin(await self._memory.pin(build_id, servable.resident_bytes, servable.peak_bytes, None))
            except ApplianceError:  # counted and announced by the memory manager; the next request tries again
                continue

    def status(self) -> dict[str, Any]:
        """For `/v1/system`: what waits and runs."""
        return {
            "queued": len(self._queue),
            "queues": self._queue.lengths(),
            "running": sum(self._running.values()),
            "workers": [{"busy_ms": w.busy_ns / 1e6, "runs": w.runs} for w in self.workers],
            "sequences": len(self._sequences),
            "draining": self._closing,
        }

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and wait for the running ones, at most so long; what then still waits is told that the box shuts down."""
        self._closing = True
        try:
            async with asyncio.timeout(seconds):
                while self._running:
                    await self._quiet_again()
        except TimeoutError:
            self._queue.refuse_all()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _make_available(self, application_id: str) -> None:
        if application_id in self._unavailable:
            self._unavailable.discard(application_id)
            if self._resider is not None:
                self._resider.take_in(application_id)

    async def _quiet_again(self) -> None:
        """Return when some model has no running request left."""
        self._quiet.clear()
        await self._quiet.wait()

    def _is_open(self, entry: Entry) -> bool:
        return entry.application.id not in self._unavailable

    def _is_model_in_use(self, model_id: str) -> bool:
        """Whether an available application still uses the model, so that its builds stay anyway."""
        return any(e.model.id == model_id and self._is_open(e) for e in self._catalogue.entries())

    def _count_failure(self, request: Request, entry: Entry, error: Exception) -> None:
        outcome = "failed"
        if isinstance(error, DeadlineExceeded):
            outcome = "expired"
        elif isinstance(error, LimitReached):
            outcome = "rejected"
        # a name that the caller made up must not make a row in the statistics
        variant = request.variant if request.variant in entry.servables else None
        self._telemetry.failed((request.application_id, variant or "", request.tenant), outcome)


def _check(request: Request, servable: Servable) -> None:
    check_tensors(request.inputs, servable)
    if request.outputs is not None:
        check_outputs(request.outputs, servable)


def _batch(request: Request) -> int:
    for tensor in request.inputs.values():
        return int(tensor.shape[0]) if tensor.ndim else 1
    return 1


def _given(request: Request, entry: Entry) -> dict[str, Any]:
    """State tensors that the caller sends itself win over the kept ones."""
    return {pair.input: request.inputs[pair.input] for pair in entry.model.task.state if pair.input in request.inputs}


def _distinct_builds(candidates: list[Servable]) -> list[Servable]:
    """Rungs of a ladder share a build: trying it once is enough."""
    first: dict[str, Servable] = {}
    for servable in candidates:
        first.setdefault(servable.build_id, servable)
    return list(first.values())
