"""An accelerator that refuses some operators: real ONNX Runtime sessions, with the rules of a device of its own."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import onnx

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.runtime.processors.cpu.session import OnnxSessions


class RefusingProcessor:
    """Port `Processor`, as far as parts need it: one run at a time, or it complains."""

    def __init__(self, name: str, refused: frozenset[str]) -> None:
        self._description = ProcessorDescription(name, name, 1, 1, name, "fake accelerator")
        self._refused = refused
        self._sessions = OnnxSessions(1)
        self._thread = ThreadPoolExecutor(1)
        self._running = 0

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
        assert not self._running, "it takes one run at a time"
        self._running += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._sessions.run, handle, inputs, outputs)
        finally:
            self._running -= 1

    def close(self) -> None:
        self._thread.shutdown()
