"""Figures of one build on one kind of processor, in the process that has nothing else to do: what it takes in memory,
how long loads and runs take, how many rows may share one. Sizes are what the process alone has (`own_bytes`), the peak
is the high-water mark of a load.
"""

import gc
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import trim
from appliance.runtime.processors.cpu.process_memory import memory_of, own_bytes, peak_rss, reset_peak
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.measuring.independence import rows_are_independent
from appliance.runtime.processors.measuring.stopwatch import Stopwatch
from appliance.runtime.processors.sessions import InferenceSessions


class Runs(NamedTuple):
    """How many are timed: at least `least`, and beyond them `most` at most within so many seconds."""

    least: int
    most: int
    seconds: float


class Memory(NamedTuple):
    """Memory figures of this process in bytes, as the kernel gives them; tests give their own."""

    own_bytes: Callable[..., int] = own_bytes
    rss_bytes: Callable[[], int] = partial(memory_of, "Rss")
    peak_bytes: Callable[[], int] = peak_rss
    reset_peak: Callable[[], None] = reset_peak


_THIS_PROCESS = Memory()
MANY, FEW = Runs(5, 200, 1.0), Runs(3, 20, 0.1)
"""Of a network that is profiled, and of a part that others are estimated from (BA-18)."""
_INDEPENDENCE_BUDGET_MS = 600.0
"""A run of the rows that are shown to be independent takes no longer: it takes ten of them."""
_AT_ONCE_RUNS_MIN, _AT_ONCE_RUNS_MAX, _AT_ONCE_BUDGET_S = 3, 40, 0.3
"""Of each thread where several runs are under way at once."""
_BATCH_USUAL = 8
_CLOCK = SystemClock()


def latencies(
    sessions: InferenceSessions,
    loaded: Any,
    cases: Sequence[tuple[int, Mapping[str, np.ndarray]]],
    on_device: bool,
) -> list[dict[str, Any]]:
    """Return the `latency` of each case, in their order, up to the first of more than the usual batches that does not
    run. Raises: RunFailed where a usual one does not.
    """
    rows: list[dict[str, Any]] = []
    for batch, inputs in cases:
        try:
            rows.append(latency(sessions, loaded, batch, inputs, on_device))
        except RunFailed:
            if batch <= _BATCH_USUAL:
                raise
            break
    return rows


def shared_rows_max(
    sessions: InferenceSessions,
    loaded: Any,
    cases: Sequence[tuple[int, Mapping[str, np.ndarray]]],
    latencies: Sequence[Mapping[str, Any]],
) -> int:
    """The largest measured batch, of those that do not take long, if its rows do not influence one another; else 1."""
    pairs = zip(cases, latencies, strict=True)
    affordable = [case for case, row in pairs if row["p50_ms"] <= _INDEPENDENCE_BUDGET_MS]
    batch, inputs = affordable[-1] if affordable else (1, {})
    try:
        is_shown = rows_are_independent(lambda tensors: sessions.run(loaded, tensors, None), inputs, batch)
    except RunFailed:  # it does not bear such values
        return 1
    return batch if is_shown else 1


def size(
    sessions: InferenceSessions, form: PreparedForm, inputs: Mapping[str, np.ndarray], memory: Memory = _THIS_PROCESS
) -> tuple[int, int, int, int]:
    """Resident and peak bytes of one load and one run of the smallest batch, from a trimmed heap to a trimmed heap; the
    bytes that stay when it sleeps, and how long it takes to wake.

    Before any larger batch: what its activations leave scattered in the heap would count as the build's. And before
    other inputs are dropped or made.
    """
    gc.collect()
    trim()
    memory.reset_peak()
    folder = Path(form.path).parent
    base, base_rss = memory.own_bytes(folder), memory.rss_bytes()
    loaded = sessions.load(form)
    peak = memory.peak_bytes() - base_rss  # before the run: its activations are no part of loading
    sessions.run(loaded, inputs, None)
    trim()
    resident = max(memory.own_bytes(folder) - base, 0)
    asleep, wake_ns = resident, 0
    if isinstance(sessions, OnnxSessions) and loaded.weights is not None:
        sessions.sleep(loaded)
        asleep = max(memory.own_bytes(folder) - base, 0)
        start_ns = _CLOCK.now_ns()
        sessions.wake(loaded)
        wake_ns = _CLOCK.now_ns() - start_ns
    sessions.unload(loaded)
    return resident, peak, asleep, wake_ns


def timed_load(sessions: InferenceSessions, form: PreparedForm, *, cold: bool) -> float:
    if cold:
        for file in Path(form.path).parent.iterdir() if form.optimised else [Path(form.path)]:
            _drop_cache(file)
    start = _CLOCK.now_ns()
    loaded = sessions.load(form)
    elapsed_ms = (_CLOCK.now_ns() - start) / NS_PER_MS
    sessions.unload(loaded)
    trim()
    return elapsed_ms


def latency(
    sessions: InferenceSessions,
    loaded: Any,
    batch: int,
    inputs: Mapping[str, np.ndarray],
    on_device: bool,
    runs: Runs = MANY,
    begun: Callable[[], Stopwatch] = Stopwatch,
) -> dict[str, Any]:
    """P50 and P99 (JF-04), without what other processes had of the processor: variants and kinds are compared by them,
    and were not measured in the same minute. The first run takes the page faults and is not counted. What computes
    `on_device` leaves the processor idle meanwhile, so that all counts that passes. `begun`: starts a stopwatch.
    """
    sessions.run(loaded, inputs, None)
    times_ms: list[float] = []
    all_runs = begun()
    while len(times_ms) < runs.least or (len(times_ms) < runs.most and all_runs.elapsed_ms() < 1000 * runs.seconds):
        watch = begun()
        sessions.run(loaded, inputs, None)
        times_ms.append(watch.elapsed_ms() if on_device else watch.ms())
    p50, p99 = np.percentile(times_ms, [50, 99])
    return {"batch": batch, "p50_ms": round(float(p50), 4), "p99_ms": round(float(p99), 4)}


def latency_at_once(
    sessions: InferenceSessions,
    loaded: Any,
    alone: Mapping[str, Any],
    inputs: Mapping[str, np.ndarray],
    count: int,
    on_device: bool,
    begun: Callable[[], Stopwatch] = Stopwatch,
    cores: int = 0,
) -> dict[str, Any] | None:
    """As `latency`, while `count` threads run the build over and over; at least what it takes alone. None: so many
    do not fit into the memory of a child. `cores`: that the threads may use; 0: as the system says.

    Threads of the runtime may compute for several runs, so that one run's processor time is not known: where they
    compute on cores, all times are scaled by the processor time that this process had, as a share of what so many
    threads have on so many cores of a quiet machine. Runs wait for other processes, and where they outnumber the cores
    for one another. Short runs do so seldom and for long: their mean stands for their median, and is no less than the
    cores need for all of them.
    """
    start = threading.Barrier(count, timeout=10)

    def work() -> list[float]:
        flush_subnormals()
        start.wait()
        times_ms: list[float] = []
        all_runs = begun()
        while len(times_ms) < _AT_ONCE_RUNS_MIN or (
            len(times_ms) < _AT_ONCE_RUNS_MAX and all_runs.elapsed_ms() < 1000 * _AT_ONCE_BUDGET_S
        ):
            one_run = begun()
            sessions.run(loaded, inputs, None)
            times_ms.append(one_run.elapsed_ms())
        return times_ms

    watch = begun()
    try:
        with ThreadPoolExecutor(count) as threads:
            futures = [threads.submit(work) for _ in range(count)]
            times_ms = [ms for future in futures for ms in future.result()]
    except (RunFailed, RuntimeError):  # also where no more threads can be made
        return None
    cores = cores or len(os.sched_getaffinity(0))
    share = 1.0 if on_device else min(1.0, watch.cpu_ms() / (watch.elapsed_ms() * min(count, cores)))
    p50, p99 = (share * float(ms) for ms in np.percentile(times_ms, [50, 99]))
    if not on_device:
        p50 = max(p50, share * float(np.mean(times_ms)), alone["p50_ms"] * count / cores)
    p50_ms = max(round(p50, 4), alone["p50_ms"])
    p99_ms = max(round(p99, 4), alone["p99_ms"], p50_ms)
    return {"batch": alone["batch"], "p50_ms": p50_ms, "p99_ms": p99_ms, "concurrency": count}


def _drop_cache(file: Path) -> None:
    """Ask the kernel to forget the file's pages, so that the next load reads the disk."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
