"""Port `Processor` over OpenVINO on the CPU."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.runtime.processors.cpu.heap import Trimmer
from appliance.runtime.processors.cpu.session import machine
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.cpu.threads import WorkerThreads
from appliance.runtime.processors.rows import run_rows

if TYPE_CHECKING:  # it takes 50 MB, so it is imported with the first build
    from appliance.runtime.processors.openvino.session import Compiled, OpenVinoSessions

T = TypeVar("T")
KIND = "openvino"
_CLOCK = SystemClock()
_WRITTEN = 1
"""Counts the ways in which forms were written, so that those of an earlier one are made anew."""
_LOAD_NICE = 5


class OpenVinoProcessor:
    """Worker threads for runs, others for loads and unloads. What it compiled lies in its heap, so nothing sleeps."""

    def __init__(self, name: str, workers: int, threads_per_run: int, loads_parallel_max: int) -> None:
        self._sessions: OpenVinoSessions | None = None
        self._description = ProcessorDescription(
            name, KIND, workers, threads_per_run, "host", fingerprint(workers, threads_per_run)
        )
        self._runs = WorkerThreads(f"{name}-run", workers, begin=flush_subnormals)
        self._loads = WorkerThreads(f"{name}-load", loads_parallel_max, nice=_LOAD_NICE)
        self._unloads = WorkerThreads(f"{name}-unload", 1)
        self._ran = 0
        self._trimmer = Trimmer(runs=lambda: self._ran)

    def describe(self) -> ProcessorDescription:
        return self._description

    async def load(self, form: PreparedForm) -> "Compiled":
        compiled: Compiled = await self._loads.submit(self._load, form)
        self._trimmer.want()
        return compiled

    def run(
        self, handle: "Compiled", inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        assert self._sessions is not None, "it has loaded the build"
        return self._submit(self._sessions.run, handle, inputs, outputs, deadline_ns)

    def run_rows(
        self,
        handle: "Compiled",
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> asyncio.Future[list[dict[str, Any]]]:
        assert self._sessions is not None, "it has loaded the build"
        return self._submit(partial(run_rows, self._sessions.run, counts), handle, requests, outputs, deadline_ns)

    def _submit(
        self,
        run_on: Callable[..., T],
        handle: "Compiled",
        inputs: Any,
        outputs: Sequence[str] | None,
        deadline_ns: int | None,
    ) -> asyncio.Future[T]:
        self._ran += 1
        assert self._sessions is not None, "it has loaded the build"
        if deadline_ns is None:
            return self._runs.submit(run_on, handle, inputs, outputs)
        stop = self._sessions.stop()
        run = self._runs.submit(run_on, handle, inputs, outputs, stop)
        left_s = max(0.0, (deadline_ns - _CLOCK.now_ns()) / NS_PER_S)
        timer = asyncio.get_running_loop().call_later(left_s, setattr, stop, "terminate", True)
        run.add_done_callback(lambda _: timer.cancel())
        return run

    def run_inline(self, handle: "Compiled", inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        self._ran += 1
        assert self._sessions is not None, "it has loaded the build"
        return self._sessions.run(handle, inputs, outputs)

    async def unload(self, handle: "Compiled") -> None:
        assert self._sessions is not None, "it has loaded the build"
        await self._unloads.submit(self._sessions.unload, handle)
        self._trimmer.want()

    def can_sleep(self, handle: "Compiled") -> bool:
        return False

    async def sleep(self, handle: "Compiled") -> int:
        raise AssertionError("only where it can")

    async def wake(self, handle: "Compiled") -> None:
        """It never slept."""

    async def fetch(self, handle: "Compiled") -> None:
        """Nothing of it is mapped."""

    async def read_ahead(self, handle: "Compiled") -> None:
        """Nothing of it is mapped."""

    def wake_ns(self, handle: "Compiled") -> int:
        return 0

    def _load(self, form: PreparedForm) -> "Compiled":
        if self._sessions is None:
            from appliance.runtime.processors.openvino.session import OpenVinoSessions

            described = self._description
            self._sessions = OpenVinoSessions(described.workers, described.threads_per_run)
        return self._sessions.load(form)

    def close(self) -> None:
        self._runs.close()
        self._loads.close()
        self._unloads.close()
        self._trimmer.close()


def fingerprint(workers: int, threads_per_run: int) -> str:
    """What a prepared form depends on: how it is written, version, processor, streams and threads."""
    text = f"{_WRITTEN}|{version(KIND)}|{machine()}|{workers}|{threads_per_run}"
    return f"{KIND}-{version(KIND)}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
