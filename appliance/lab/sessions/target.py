"""What the frames of an emulated device go to: an application, asked with tensors, or a pipeline, asked with a picture
whose contents the scenario says.
"""

from dataclasses import dataclass
from typing import Protocol

from appliance.domain.request import Request, Tensors
from appliance.runtime.serving.engine import Engine
from appliance.runtime.sessions.frame import Frame, FrameCall, FrameResult
from appliance.tasks.base import Media


@dataclass(frozen=True, slots=True)
class Found:
    """An answer. `variant`: that gave it; None: several have, one for each stage of a pipeline."""

    variant: str | None
    is_warm: bool
    compute_ns: int


class Target(Protocol):
    """Of the frames of one device."""

    @property
    def name(self) -> str:
        """In the scenario."""
        ...

    async def run(self, frame: Frame) -> tuple[FrameResult, Found | None]:
        """A frame whose body is complete, to its end; with the answer where it has one."""
        ...


@dataclass(frozen=True, slots=True)
class ApplicationTarget:
    """Implements `Target`. Every frame brings the same tensors, and nothing is decoded."""

    name: str
    id: str
    tenant: str
    engine: Engine
    tensors: Tensors

    async def run(self, frame: Frame) -> tuple[FrameResult, Found | None]:
        found: list[Found] = []

        async def work(call: FrameCall) -> bytes:
            result = await self.engine.infer(self._request(call))
            found.append(Found(result.variant, result.warm, result.compute_ns))
            call.ran(result.variant)
            return b""

        result = await frame.run(work)
        return result, found[0] if found else None

    def _request(self, call: FrameCall) -> Request:
        return Request(
            self.id,
            self.tenant,
            self.tensors,
            call.arrival_ns,
            variant=call.variant,
            deadline_ns=call.deadline_ns,
            priority=call.priority,
            is_frame=True,
            slot=call.slot(),
        )


@dataclass(frozen=True, slots=True)
class PipelineTarget:
    """Implements `Target`. A frame is named by its device and number, by which its scene is drawn
    (`lab.pipelines.scenes`).
    """

    name: str
    id: str
    device: str

    async def run(self, frame: Frame) -> tuple[FrameResult, Found | None]:
        named = f"{self.device}/{frame.number}"
        result = await frame.answer(Media(named.encode(), self.id), named)
        return result, None if result.body is None else Found(None, True, 0)
