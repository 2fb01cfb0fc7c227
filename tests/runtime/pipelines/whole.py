"""Pipelines as a box runs them, in virtual time: frames through the registry, items on the engine, the serve loop over
both. Media takes no time, and a picture has as many objects as the test says.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import numpy as np
import orjson

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.pipeline import Ask, Crop, Pipeline, Stage
from appliance.domain.request import Request
from appliance.runtime.pipelines.accounts import Tariff
from appliance.runtime.pipelines.frame import FrameCall
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.runtime.pipelines.ports import ItemCall, StageAnswer
from appliance.runtime.ports import RunGroup
from appliance.tasks.base import Media
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.fakes.stages import FakeStages, Path
from tests.runtime.pipelines.bench import planning_of

T = TypeVar("T")
TARIFF = Tariff(lambda kind: None, {"cpu": 3600.0})


class EngineStages(FakeStages):
    """Networks are asked of the engine."""

    def __init__(self, box: EngineBench, say: Callable[[str, Path | str], Mapping[str, Any]]) -> None:
        super().__init__(box.clock, say)
        self.box = box

    async def ask(self, stage: Ask, prepared: Path | str, call: ItemCall) -> StageAnswer:
        request = Request(
            stage.application_id,
            call.tenant,
            {"x": np.ones(1, np.float32)},
            self.clock.now_ns(),
            variant=call.variant,
            deadline_ns=call.deadline_ns,
            priority=0 if call.is_of_planned else -100,
            is_item=True,
            beyond_plan=None if call.is_planned is None else not call.is_planned,
            meter=call.meter,
        )
        result = await self.box.engine.infer(request)
        return StageAnswer(self.say(stage.name, prepared), result.variant, "cpu", result.compute_ns)

    def is_busy(self) -> bool:
        return self.box.engine.free_workers() < self.box.engine.serving_workers()

    def expected_ns(self, stage: Ask, tenant: str) -> int:
        return self.box.engine.expected_ns(self.box.catalogue.entry(stage.application_id).application, None)


@dataclass(slots=True)
class Sent:
    """A frame, when it came and what became of it."""

    at_ms: float
    in_time: bool | None = None
    """None while the frame has no answer."""
    seconds: float = 0.0


@dataclass(slots=True)
class Camera:
    """Sends frames at an even rate; `objects` on each."""

    live: LivePipeline
    fps: float
    client: str = ""
    is_on: bool = True
    sent: list[Sent] = field(default_factory=list)


class WholeBox:
    """Pipelines that find objects and then look at each."""

    def __init__(self, find: Mapping[str, Cost], read: Mapping[str, Cost], *, workers: int = 2, **more: Any) -> None:
        self.box = EngineBench(1000, workers=workers, **more)
        self.box.add(find, name="find", task=TaskSpec(TaskKind.OBJECT_DETECTION))
        self.box.add(read, name="read", task=TaskSpec(TaskKind.IMAGE_CLASSIFICATION))
        self.objects = 0
        self.stages = EngineStages(self.box, self._says)
        numbers = count()
        alone = (RunGroup("p", workers, self.box.processor, {"cpu": ""}),)
        self.pipelines = Pipelines(
            clock=self.box.clock,
            catalogue=self.box.catalogue,
            engine=self.box.engine,
            stages=self.stages,
            new_id=lambda: f"c{next(numbers)}",
            tariff=TARIFF,
        )
        groups = self.box.group.groups() if self.box.twins else alone
        self.planning = planning_of(self.box, groups, _soon, TARIFF, self.pipelines.live)
        self._cameras: list[asyncio.Task[None]] = []
        self._frames: set[asyncio.Task[None]] = set()

    def add(
        self, name: str = "signs", *, slo_ms: float = 300.0, weight: float = 1.0, tenant: str = "t"
    ) -> LivePipeline:
        """Define a pipeline of find, crop and read, with networks of its tenant."""
        stages: Sequence[Stage] = (
            Ask(name="find", application_id=f"{tenant}/find"),
            Crop(name="crop", after=("find",), of="objects"),
            Ask(name="read", after=("crop",), application_id=f"{tenant}/read"),
        )
        return self.pipelines.put(Pipeline(f"{tenant}/{name}", tenant, name, slo_ms, tuple(stages), weight=weight))

    @asynccontextmanager
    async def working(self, *, is_planned: bool = True) -> AsyncIterator[None]:
        """Run the workers, and with `is_planned` the serve loop."""
        async with self.box.working(residency=True):
            task = None
            if is_planned:
                self.pipelines.plan_with(self.planning)
                task = asyncio.create_task(self.planning.run())
            try:
                yield
                for camera in self._cameras:
                    camera.cancel()
                await asyncio.gather(*self._cameras, return_exceptions=True)
                await asyncio.gather(*self._frames)
            finally:
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    def film(self, live: LivePipeline, fps: float, client: str = "") -> Camera:
        """Return a camera that sends frames from now on."""
        camera = Camera(live, fps, client)
        self._cameras.append(asyncio.create_task(self._film(camera)))
        return camera

    async def pause(self, seconds: float) -> None:
        await self.box.pause(1000.0 * seconds)

    async def _film(self, camera: Camera) -> None:
        while camera.is_on:
            task = asyncio.create_task(self._send(camera))
            self._frames.add(task)
            task.add_done_callback(self._frames.discard)
            await self.pause(1.0 / camera.fps)

    async def _send(self, camera: Camera) -> None:
        now_ns = self.box.clock.now_ns()
        sent = Sent(now_ns / NS_PER_MS)
        camera.sent.append(sent)
        call = FrameCall(
            camera.live.pipeline.tenant, f"{camera.live.pipeline.name}-{len(camera.sent)}", now_ns, client=camera.client
        )
        answer = orjson.loads(await self.pipelines.predict(camera.live.pipeline, Media(b""), call))
        assert sent.in_time is None, "a frame is answered once"
        sent.in_time, sent.seconds = answer["in_time"], answer["cost"]["seconds"]

    def _says(self, stage: str, about: Path | str) -> Mapping[str, Any]:
        if stage != "find":
            return {"labels": [{"label": "a", "index": 0, "score": 0.9}]}
        boxes = [{"label": str(at), "score": 0.9, "box": [0.0, 0.0, 10.0, 10.0]} for at in range(self.objects)]
        return {"objects": boxes, "width": 100, "height": 100}


async def _soon(compute: Callable[[], T]) -> T:
    """Compute the answer of a policy in 20 ms of virtual time."""
    await asyncio.sleep(0.02)  # noqa: TID251 - virtual time
    return compute()


def share(sent: Sequence[Sent]) -> float:
    """Return the share of frames that were in time."""
    return sum(one.in_time is True for one in sent) / len(sent)
