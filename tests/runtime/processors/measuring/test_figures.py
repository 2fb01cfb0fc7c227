"""Figures of a build, over a clock and a memory that the test moves."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.measuring.figures import (
    MANY,
    Memory,
    Runs,
    latency,
    latency_at_once,
    size,
)
from appliance.runtime.processors.measuring.stopwatch import Stopwatch
from tests.fakes.hand_clock import HandClock

FORM = PreparedForm("b", "/form/model.onnx", 100, optimised=True)
ROW = {"x": np.ones(1, np.float32)}


class Network:
    """A build whose runs pass time: `elapsed_ms` by the clock, `computed_ms` of the processor, each in turn."""

    def __init__(self, elapsed_ms: Sequence[float], computed_ms: Sequence[float] | None = None) -> None:
        self._elapsed_ms, self._computed_ms = elapsed_ms, computed_ms or elapsed_ms
        self._clock, self._computed_s = HandClock(), 0.0
        self._turn = threading.Lock()
        self.runs = 0

    def watch(self) -> Stopwatch:
        return Stopwatch(self._clock.now_ns, lambda: self._computed_s)

    def run(self, _loaded: Any, _inputs: Mapping[str, Any], _outputs: Sequence[str] | None) -> dict[str, Any]:
        with self._turn:
            at = self.runs % len(self._elapsed_ms)
            self.runs += 1
            self._clock.pass_s(self._elapsed_ms[at] / 1000)
            self._computed_s += self._computed_ms[at] / 1000
        return {}


class Together(Network):
    """Runs of two threads that begin and end together."""

    def __init__(self, elapsed_ms: Sequence[float], computed_ms: Sequence[float]) -> None:
        super().__init__(elapsed_ms, computed_ms)
        self._both = threading.Barrier(2, self._pass)

    def _pass(self) -> None:
        super().run(None, {}, None)

    def run(self, _loaded: Any, _inputs: Mapping[str, Any], _outputs: Sequence[str] | None) -> dict[str, Any]:
        self._both.wait()
        return {}


def timed(network: Any, *, on_device: bool = False, runs: Runs = MANY) -> dict[str, Any]:
    return latency(network, None, 4, ROW, on_device, runs, network.watch)


def test_latency_is_the_median_and_99th_percentile_of_the_runs() -> None:
    """The first run, which takes the page faults, is not among them."""
    found = timed(Network([900.0, 10.0, 20.0, 30.0, 40.0, 1000.0]))
    assert found == {"batch": 4, "p50_ms": 30.0, "p99_ms": 961.6}  # between the two slowest of five


@pytest.mark.parametrize(
    ("elapsed_ms", "computed_ms", "on_device", "p50_ms"),
    [(90.0, 10.0, False, 10.0), (10.0, 20.0, False, 10.0), (90.0, 1.0, True, 90.0)],
    ids=["other processes compute, too", "several threads compute", "the processor idles beside a device"],
)
def test_latency_is_processor_time_or_elapsed_time_on_threads_and_devices(
    elapsed_ms: float, computed_ms: float, on_device: bool, p50_ms: float
) -> None:
    found = timed(Network([elapsed_ms], [computed_ms]), on_device=on_device)
    assert found == {"batch": 4, "p50_ms": p50_ms, "p99_ms": p50_ms}


@pytest.mark.parametrize(
    ("run_ms", "count"), [(1.0, 200), (10.0, 100), (1000.0, 5)], ids=["most", "within the time", "least"]
)
def test_number_of_timed_runs_follows_the_time_of_a_run(run_ms: float, count: int) -> None:
    network = Network([run_ms])
    timed(network)
    assert network.runs == 1 + count


@pytest.mark.parametrize(("computed_ms", "p50_ms"), [(8.0, 4.0), (16.0, 8.0), (24.0, 8.0)])
def test_runs_at_once_count_by_their_share_of_the_processor(computed_ms: float, p50_ms: float) -> None:
    """Two threads that computed for 8 ms together, while 8 ms passed: each was kept waiting for half of them."""
    network: Any = Together([8.0], [computed_ms])
    row = latency_at_once(network, None, {"batch": 4, "p50_ms": 1.0, "p99_ms": 2.0}, ROW, 2, False, network.watch, 2)
    assert row == {"batch": 4, "p50_ms": p50_ms, "p99_ms": p50_ms, "concurrency": 2}


def test_runs_that_outnumber_the_cores_count_with_their_wait_for_one_another() -> None:
    """Two threads had the one core for all of 8 ms: a run of each takes as long on a quiet machine, too (SC-06)."""
    network: Any = Together([8.0], [8.0])
    row = latency_at_once(network, None, {"batch": 4, "p50_ms": 1.0, "p99_ms": 2.0}, ROW, 2, False, network.watch, 1)
    assert row == {"batch": 4, "p50_ms": 8.0, "p99_ms": 8.0, "concurrency": 2}


def test_short_runs_that_outnumber_the_cores_count_by_their_mean() -> None:
    """Of four runs three end before the system gives their core to the other thread, and one waits for it."""
    times_ms = [1.0, 1.0, 1.0, 5.0]
    network: Any = Together(times_ms, times_ms)
    row = latency_at_once(network, None, {"batch": 4, "p50_ms": 1.0, "p99_ms": 2.0}, ROW, 2, False, network.watch, 1)
    assert row == {"batch": 4, "p50_ms": 2.0, "p99_ms": 5.0, "concurrency": 2}


def test_short_runs_that_other_processes_keep_waiting_count_by_what_they_compute() -> None:
    """Two threads on two cores, of which other processes have half: of four runs of 2 ms one waits for as long as all
    compute. The median, halved, would say that they do not disturb one another.
    """
    network: Any = Together([2.0, 2.0, 2.0, 10.0], [4.0, 4.0, 4.0, 4.0])
    row = latency_at_once(network, None, {"batch": 4, "p50_ms": 1.0, "p99_ms": 2.0}, ROW, 2, False, network.watch, 2)
    assert row == {"batch": 4, "p50_ms": 2.0, "p99_ms": 5.0, "concurrency": 2}


def test_runs_that_outnumber_the_cores_take_no_less_than_the_cores_need_for_all() -> None:
    """Two runs of 3 ms on one core, though each was timed at 4 ms: the core was given before the stopwatch began."""
    network: Any = Together([4.0], [4.0])
    row = latency_at_once(network, None, {"batch": 4, "p50_ms": 3.0, "p99_ms": 3.0}, ROW, 2, False, network.watch, 1)
    assert row == {"batch": 4, "p50_ms": 6.0, "p99_ms": 6.0, "concurrency": 2}


def test_runs_at_once_are_no_shorter_than_a_run_alone() -> None:
    network: Any = Network([1.0])
    alone = {"batch": 4, "p50_ms": 30.0, "p99_ms": 40.0}
    row = latency_at_once(network, None, alone, ROW, 2, False, network.watch)
    assert row == {"batch": 4, "p50_ms": 30.0, "p99_ms": 40.0, "concurrency": 2}


class Weights:
    """What is loaded: mapped, so that it can sleep."""

    weights = object()


class Sessions(OnnxSessions):
    """Counts what a process has: the graph and the weights of a build, and what a run leaves behind."""

    def __init__(self, *, before: int, graph: int, weights: int, left: int, peak: int) -> None:
        self.own, self._graph, self._weights, self._left, self._peak = before, graph, weights, left, peak
        self.peak = 10**9  # of something before

    def memory(self) -> Memory:
        return Memory(self._own, lambda: self.own + 7, lambda: self.peak + 7, partial(setattr, self, "peak", 0))

    def _own(self, *folders: Path) -> int:
        assert folders == (Path("/form"),)
        return self.own

    def load(self, form: PreparedForm) -> Any:
        self.own += self._graph + self._weights
        self.peak = self.own + self._peak
        return Weights()

    def run(self, loaded: Any, inputs: Any, outputs: Any, stop: Any = None) -> dict[str, Any]:
        self.own += self._left
        self.peak *= 2  # activations are no part of loading
        return {}

    def sleep(self, loaded: Any) -> None:
        self.own -= self._weights

    def wake(self, loaded: Any) -> None:
        self.own += self._weights

    def unload(self, loaded: Any) -> None:
        self.own = 0


def test_size_is_what_a_load_and_a_run_leave_in_memory() -> None:
    """Above what was there before; the peak is the load's; asleep, the weights are gone."""
    sessions = Sessions(before=1000, graph=10, weights=200, left=5, peak=50)
    resident, peak, asleep, wake_ns = size(sessions, FORM, ROW, sessions.memory())
    assert (resident, peak, asleep) == (215, 260, 15)
    assert wake_ns >= 0
    assert sessions.own == 0, "it is unloaded"
