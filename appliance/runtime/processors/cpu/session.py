"""ONNX Runtime on the CPU: the one place that knows how a session is made.

Serving, the trial runs of an import and the measuring child all go through `OnnxSessions`, so what is measured is what
serves.
"""

import asyncio
import hashlib
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import onnxruntime as ort

from appliance.domain.errors import LoadFailed, RunFailed, RunRefused, RunStopped
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.domain.wording import plain
from appliance.runtime.processors.cpu.align import align
from appliance.runtime.processors.cpu.heap import Trimmer, set_up
from appliance.runtime.processors.cpu.leases import Lease
from appliance.runtime.processors.cpu.mapped import Advise, CachedFile, Damaged, Mappings, ProcFiles, Weights, advise
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.cpu.threads import StagedCall, WorkerThreads, pin, stop_at
from appliance.runtime.processors.cpu.waking import WakeRates
from appliance.runtime.processors.rows import run_rows

T = TypeVar("T")

_OPTIMISED = "model.onnx"
_WEIGHTS = "model.bin"
_WRITTEN = 2
"""Counts the ways in which forms were written, so that those of an earlier one are made anew; 2: also with quantized
depthwise convolutions."""
_PROVIDER = "CPUExecutionProvider"
_ERROR_ONLY = 3
_PROC = ProcFiles()
_LOAD_NICE = 5
"""Where cores are short, loading gets a quarter of one that a run wants, too.

Dropping a session is not that patient: it holds the interpreter's
lock, and whoever holds that and does not get a core stops everybody."""


class Sleeper(Protocol):
    """A handle of whatever home whose weights may come from a file."""

    file: CachedFile | None


_MAPPED_SHARE_MIN = 0.5
"""Of a build's memory; below, little would be won by giving the mapped part back."""


@dataclass(slots=True)
class Loaded:
    """A live session and the names it answers to."""

    session: ort.InferenceSession
    build_id: str
    output_names: tuple[str, ...]
    weights: Weights | None = None
    """What it has mapped; None where that is nothing, or cannot be brought back in one call."""
    file: CachedFile | None = None
    """Where they come from; None where giving them back is not worth it."""
    kept_bytes: int = 0
    """What stays of it when its weights are given back."""
    lease: Lease | None = None
    """On that file."""

    @property
    def mapped_bytes(self) -> int:
        """Of its weights, that it can give back and bring again; 0: it cannot."""
        return 0 if self.weights is None else self.weights.size_bytes


class OnnxSessions:
    """Blocking half: make, use and drop sessions. Holds no state but its options."""

    def __init__(self, threads_per_run: int, own: ProcFiles = _PROC, advise: Advise = advise) -> None:
        self.threads_per_run = threads_per_run
        self._mappings = Mappings(own, advise)

    def stop(self) -> ort.RunOptions:
        """What ends a run that is given it before its next node: by `terminate = True`."""
        return ort.RunOptions()

    def options(self, *, optimised: bool) -> ort.SessionOptions:
        """Session options of serving.

        No spinning: it burns six times the CPU at low load and 40 % of the throughput under contention. No arena: an
        evicted build must leave nothing behind, and outputs must not pin it. A prepared form is not optimised again:
        that is where the load time would go. Subnormal numbers are zero, here and in the threads that call
        (`subnormals`): no values make a run a hundred times slower.
        """
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads_per_run
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_cpu_mem_arena = False
        options.log_severity_level = _ERROR_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        if optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options

    def load(self, form: PreparedForm) -> Loaded:
        """Create the session from its path (never from bytes: that keeps a second copy of the model).

        Raises: LoadFailed.
        """
        if not form.optimised:
            return _loaded(self._session(form), form)
        _read(weights_path(form))
        session, weights = self._mappings.watch(weights_path(form), lambda: self._session(form))
        loaded = _loaded(session, form)
        try:
            weights.populate()
        except Damaged as error:
            raise LoadFailed(build_id=form.build_id, reason=f"its weights cannot be read: {error.strerror}") from error
        except OSError:  # a kernel that cannot: the first run takes the page faults
            return loaded
        if weights.size_bytes and weights.are_the_files():
            loaded.weights = weights
        return loaded

    def _session(self, form: PreparedForm) -> ort.InferenceSession:
        try:
            return ort.InferenceSession(form.path, self.options(optimised=form.optimised), providers=[_PROVIDER])
        except Exception as error:
            raise LoadFailed(build_id=form.build_id, reason=plain(error)) from error

    def sleep(self, loaded: Loaded) -> None:
        """Give the pages of its weights back. Raises: RunFailed where they cannot be told any more."""
        assert loaded.weights is not None
        try:
            loaded.weights.give_back()
        except OSError as error:
            raise RunFailed(variant_id=loaded.build_id, reason=f"its weights stay: {error.strerror}") from error

    def wake(self, loaded: Loaded) -> None:
        """Bring them back. Raises: LoadFailed."""
        assert loaded.weights is not None
        try:
            loaded.weights.populate()
        except OSError as error:
            reason = f"its weights cannot be read: {error.strerror}"
            raise LoadFailed(build_id=loaded.build_id, reason=reason) from error

    def run(
        self, loaded: Loaded, inputs: Tensors, outputs: Sequence[str] | None, stop: ort.RunOptions | None = None
    ) -> dict[str, Any]:
        """One inference; `stop` may end it.

        Raises: RunRefused with the runtime's own words; RunStopped.
        """
        names = loaded.output_names if outputs is None else outputs
        try:
            return dict(zip(names, loaded.session.run(names, inputs, stop), strict=True))
        except Exception as error:
            if stop is not None and stop.terminate:
                raise RunStopped(variant_id=loaded.build_id, reason="it took longer than it may") from None
            raise RunRefused(variant_id=loaded.build_id, reason=plain(error)) from error

    def unload(self, loaded: Loaded) -> None:
        """Drop the session; the C heap keeps what it frees until it is trimmed."""
        if loaded.weights is not None:
            loaded.weights.forget()
        del loaded.session

    def fell_back_to(self, loaded: Loaded) -> str:
        """The provider that computes it, where that is not the one asked for: it falls back in silence."""
        first = str(loaded.session.get_providers()[0])
        return "" if first == _PROVIDER else first

    def supports(self, network: Path) -> bool:
        """Whether ONNX Runtime has kernels for it."""
        try:
            ort.InferenceSession(str(network), self.options(optimised=False), providers=[_PROVIDER])
        except Exception:  # whatever it says of an operator that it does not know
            return False
        return True

    def prepare(self, source: Path, target_dir: Path) -> str | None:
        """Write the prepared form (optimised graph, external and prepacked weights) into an empty folder; the name of
        its graph, None when there can be none.

        Such a form loads many times faster (`scripts/bench loads`), and its weights are mapped, not copied.
        """
        options = self.options(optimised=False)
        options.optimized_model_filepath = str(target_dir / _OPTIMISED)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
        try:
            ort.InferenceSession(str(source), options, providers=[_PROVIDER])
            align(target_dir / _OPTIMISED, target_dir / _WEIGHTS)
            ort.InferenceSession(str(target_dir / _OPTIMISED), self.options(optimised=True), providers=[_PROVIDER])
        except Exception:  # too large for one file, an operator without a writer ...: the plain file serves
            for file in target_dir.iterdir():
                file.unlink()
            return None
        return _OPTIMISED


def _loaded(session: ort.InferenceSession, form: PreparedForm) -> Loaded:
    return Loaded(session, form.build_id, tuple(output.name for output in session.get_outputs()))


class OnnxProcessor:
    """Port `Processor` over ONNX Runtime's CPU provider: worker threads for runs, others for loads, so that neither
    waits for the other.

    Unloads have one of their own: a load often waits for the memory that one gives back, and would wait for the loads
    before it, too. So do wakes, which are much shorter than loads.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        threads_per_run: int,
        loads_parallel_max: int,
        cores: tuple[int, ...] = (),
        advise: Advise = advise,
    ) -> None:
        """`cores` that its runs are pinned to; `advise`: the system call `madvise`."""
        self.sessions = OnnxSessions(threads_per_run, advise=advise)
        self._description = ProcessorDescription(
            name, "cpu", workers, threads_per_run, "host", fingerprint(threads_per_run), cores
        )
        set_up()
        self._make_runs = partial(WorkerThreads, f"{name}-run", workers, begin=partial(_begin_runs, cores))
        # Where a run has several threads, the load makes the others: they inherit where it may run.
        begin = partial(pin, cores if threads_per_run > 1 else ())
        self._make_loads = partial(WorkerThreads, f"{name}-load", loads_parallel_max, nice=_LOAD_NICE, begin=begin)
        self.runs, self._loads = self._make_runs(), self._make_loads()
        self._unloads = WorkerThreads(f"{name}-unload", 1)
        self._wakes = WorkerThreads(f"{name}-wake", loads_parallel_max)
        self._reads = WorkerThreads(f"{name}-read-ahead", 1, nice=_LOAD_NICE)
        self._rates = WakeRates()
        self._ran = 0
        self._trimmer = Trimmer(runs=lambda: self._ran)

    def describe(self) -> ProcessorDescription:
        return self._description

    async def load(self, form: PreparedForm) -> Loaded:
        loaded: Loaded = await self._loads.submit(self.sessions.load, form)
        if loaded.weights is not None:
            loaded.file = sleeping_file(form, loaded.weights.size_bytes)
            loaded.kept_bytes = kept_bytes(form, loaded.weights.size_bytes)
        if not form.optimised:  # optimising leaves up to 1.5 times the model as garbage in the heap
            self._trimmer.want()
        return loaded

    def run(
        self,
        handle: Loaded,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> asyncio.Future[dict[str, Any]]:
        return self._submit(self.sessions.run, handle, inputs, outputs, deadline_ns)

    def stage(
        self,
        handle: Loaded,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None,
        begin_by_ns: int | None,
    ) -> StagedCall:
        """Port `Staging`."""
        stop = self.sessions.stop()
        staged = self.runs.stage(begin_by_ns, self.sessions.run, handle, inputs, outputs, stop)
        if deadline_ns is not None:
            stop_at(deadline_ns, staged.run, stop)
        self._ran += 1
        return staged

    def run_rows(
        self,
        handle: Loaded,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> asyncio.Future[list[dict[str, Any]]]:
        run = partial(run_rows, self.sessions.run, counts)
        return self._submit(run, handle, requests, outputs, deadline_ns)

    def _submit(
        self,
        run_on: Callable[..., T],
        handle: Loaded,
        inputs: Any,
        outputs: Sequence[str] | None,
        deadline_ns: int | None,
    ) -> asyncio.Future[T]:
        self._ran += 1
        if deadline_ns is None:
            return self.runs.submit(run_on, handle, inputs, outputs)
        stop = self.sessions.stop()
        run = self.runs.submit(run_on, handle, inputs, outputs, stop)
        stop_at(deadline_ns, run, stop)
        return run

    def run_inline(self, handle: Loaded, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        self._ran += 1
        return self.sessions.run(handle, inputs, outputs)

    async def unload(self, handle: Loaded) -> None:
        await self._unloads.submit(self.sessions.unload, handle)
        self._trimmer.want()

    def can_sleep(self, handle: Loaded) -> bool:
        return handle.file is not None

    async def sleep(self, handle: Loaded) -> int:
        await self._unloads.submit(self.sessions.sleep, handle)
        self._trimmer.want()
        return handle.kept_bytes

    async def wake(self, handle: Loaded) -> None:
        with self._rates.timed(handle.file) as missing_bytes:
            if missing_bytes:
                await self.fetch(handle)
            await self._wakes.submit(self.sessions.wake, handle)

    async def fetch(self, handle: Sleeper) -> None:
        """Read the file of a build that is about to wake; what cannot be read is for the wake to say."""
        if handle.file is not None:
            await self._wakes.submit(handle.file.read_ahead)

    async def read_ahead(self, handle: Sleeper) -> None:
        if handle.file is not None:
            await self._reads.submit(handle.file.read_ahead)

    def wake_ns(self, handle: Loaded) -> int:
        return self._rates.expected_ns(handle.file)

    def renew(self) -> None:
        """Threads for runs and loads anew, on its cores; those that are there end with what is queued."""
        self.runs.close()
        self._loads.close()
        self.runs, self._loads = self._make_runs(), self._make_loads()

    def close(self) -> None:
        self.runs.close()
        self._loads.close()
        self._unloads.close()
        self._wakes.close()
        self._reads.close()
        self._trimmer.close()


def _begin_runs(cores: tuple[int, ...]) -> None:
    pin(cores)
    flush_subnormals()


def fingerprint(threads_per_run: int) -> str:
    """What a prepared form depends on: how it is written, runtime version, processor model and instruction set,
    threads.
    """
    text = f"{_WRITTEN}|{ort.__version__}|{machine()}|{threads_per_run}"
    return f"cpu-{ort.__version__}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def machine() -> str:
    """Its architecture, processor model and instruction set."""
    flags = ""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "flags", "Features", "CPU part")):
                flags += line
            elif not line:
                break
    return f"{platform.machine()}|{flags}"


def _read(path: Path) -> None:
    """Have a file in the page cache before it is mapped piece by piece: see `CachedFile.read_ahead`."""
    with suppress(OSError, ValueError):  # no weights beside the graph, or too little to be worth it
        file = CachedFile(path)
        if file.cached_bytes() < file.size_bytes:
            file.read_ahead()


def kept_bytes(form: PreparedForm, mapped_bytes: int) -> int:
    """What stays of a build that sleeps: as measured, else what it takes beside its mapped weights."""
    if form.asleep_bytes is not None:
        return form.asleep_bytes
    return max(0, (form.resident_bytes or 0) - mapped_bytes)


def is_worth_sleeping(resident_bytes: int, mapped_bytes: int) -> bool:
    """Whether most of a build's memory can be given back."""
    return mapped_bytes > 0 and mapped_bytes >= _MAPPED_SHARE_MIN * resident_bytes


def sleeping_file(form: PreparedForm, mapped_bytes: int) -> CachedFile | None:
    """The file that a form's weights are mapped from; None where they are too little of it to be given back."""
    if form.optimised and is_worth_sleeping(form.resident_bytes or form.size_bytes, mapped_bytes):
        with suppress(OSError, ValueError):
            return CachedFile(weights_path(form))
    return None


def weights_path(form: PreparedForm) -> Path:
    """Where a prepared form has its weights, where it has any beside its graph."""
    return Path(form.path).with_name(_WEIGHTS)
