"""Port `Processor` over the blocking half of a kind whose builds do not sleep: threads for runs, loads and unloads."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.runtime.processors.cpu.heap import Trimmer
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.cpu.threads import WorkerThreads, stop_at
from appliance.runtime.processors.device_memory import DeviceMemory
from appliance.runtime.processors.rows import run_rows
from appliance.runtime.processors.sessions import Stoppable

T = TypeVar("T")
_LOAD_NICE = 5


class BlockingProcessor:
    """Nothing of the runtime is imported before the first load: it takes tens of megabytes."""

    def __init__(
        self,
        description: ProcessorDescription,
        sessions: Callable[[], Stoppable],
        loads_parallel_max: int,
        memory: DeviceMemory | None = None,
    ) -> None:
        """`sessions` is called with the first load. `memory`: of a device that has its own."""
        self.device_memory = memory
        self._make = sessions
        self._made: Stoppable | None = None
        self._description = description
        name, workers = description.name, description.workers
        self._runs = WorkerThreads(f"{name}-run", workers, begin=flush_subnormals)
        self._loads = WorkerThreads(f"{name}-load", loads_parallel_max, nice=_LOAD_NICE)
        self._unloads = WorkerThreads(f"{name}-unload", 1)
        self._ran = 0
        self._trimmer = Trimmer(runs=lambda: self._ran)

    def describe(self) -> ProcessorDescription:
        return self._description

    async def load(self, form: PreparedForm) -> Any:
        if self.device_memory is None:
            loaded = await self._loads.submit(self._load, form)
        else:
            loaded = await self.device_memory.load(form, lambda: self._loads.submit(self._load, form))
        self._trimmer.want()
        return loaded

    def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        return self._submit(self._sessions.run, handle, inputs, outputs, deadline_ns)

    def run_rows(
        self,
        handle: Any,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> asyncio.Future[list[dict[str, Any]]]:
        return self._submit(partial(run_rows, self._sessions.run, counts), handle, requests, outputs, deadline_ns)

    def _submit(
        self,
        run_on: Callable[..., T],
        handle: Any,
        inputs: Any,
        outputs: Sequence[str] | None,
        deadline_ns: int | None,
    ) -> asyncio.Future[T]:
        self._ran += 1
        if self.device_memory is not None:
            self.device_memory.used(handle)
        if deadline_ns is None:
            return self._runs.submit(run_on, handle, inputs, outputs)
        stop = self._sessions.stop()
        run = self._runs.submit(run_on, handle, inputs, outputs, stop)
        stop_at(deadline_ns, run, stop)
        return run

    def run_inline(self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        self._ran += 1
        return self._sessions.run(handle, inputs, outputs)

    async def unload(self, handle: Any) -> None:
        try:
            await self._unloads.submit(self._sessions.unload, handle)
        finally:
            if self.device_memory is not None:
                self.device_memory.left(handle)
        self._trimmer.want()

    def can_sleep(self, handle: Any) -> bool:
        return False

    async def sleep(self, handle: Any) -> int:
        raise AssertionError("only where it can")

    async def wake(self, handle: Any) -> None:
        """It never slept."""

    async def fetch(self, handle: Any) -> None:
        """Nothing of it is mapped."""

    async def read_ahead(self, handle: Any) -> None:
        """Nothing of it is mapped."""

    def wake_ns(self, handle: Any) -> int:
        return 0

    @property
    def _sessions(self) -> Stoppable:
        assert self._made is not None, "it has loaded the build"
        return self._made

    def _load(self, form: PreparedForm) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made.load(form)

    def close(self) -> None:
        self._runs.close()
        self._loads.close()
        self._unloads.close()
        self._trimmer.close()
