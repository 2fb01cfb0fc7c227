"""An accelerator that refuses some operators: real ONNX Runtime sessions, with the rules of a device of its own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import onnx

from appliance.domain.errors import LoadFailed, ProcessorLost
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.runtime.processors.cpu.session import OnnxSessions


class RefusingProcessor:
    """Port `Processor`, as far as parts need it: one run at a time, or it complains."""

    def __init__(
        self,
        name: str,
        refused: frozenset[str],
        *,
        kind: str = "npu",
        on_run: Callable[[], object] = lambda: None,
        runs_max: int | None = None,
    ) -> None:
        """`on_run`: called in its thread with each run; `runs_max`: runs after which it is lost."""
        self._description = ProcessorDescription(name, kind, 1, 1, kind, "fake accelerator")
        self._refused = refused
        self._sessions = OnnxSessions(1)
        self._thread = ThreadPoolExecutor(1)
        self._on_run = on_run
        self._left = runs_max
        self._lock = threading.Lock()
        self.running = 0
        self.began = asyncio.Event()
        """Set by its first run."""

    def describe(self) -> ProcessorDescription:
        return self._description

    async def load(self, form: PreparedForm) -> Any:
        graph = (await asyncio.to_thread(onnx.load, form.path, load_external_data=False)).graph
        if found := sorted(self._refused & {node.op_type for node in graph.node}):
            raise LoadFailed(build_id=form.build_id, reason=f"{self._description.kind} does not take {found[0]}")
        return await asyncio.to_thread(self._sessions.load, form)

    async def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> dict[str, Any]:
        if self._left is not None:
            if not self._left:
                raise ProcessorLost(processor=self._description.name)
            self._left -= 1
        assert not self.running, "it takes one run at a time"
        self.running += 1
        self.began.set()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, handle, inputs, outputs)
        finally:
            self.running -= 1

    def _run(self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        with self._lock:
            self._on_run()
            return self._sessions.run(handle, inputs, outputs)

    def close(self) -> None:
        self._thread.shutdown()
