"""Port `StageRunner` in virtual time: networks by the engine on emulated processors, as in the box; CPU stages take the
time that the scenario says, in so many threads as the box has for media.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from appliance.clock import NS_PER_MS
from appliance.domain.pipeline import Ask, Region, Stage
from appliance.lab.composition import TENSORS, LabBox
from appliance.lab.loop import VirtualClock
from appliance.lab.pipelines.scenes import Scenes, Sight
from appliance.runtime.engine.portions import Portions
from appliance.runtime.pipelines.ports import ItemCall, StageAnswer
from appliance.runtime.pipelines.runner import BoxStages
from appliance.runtime.serving.predict import Predictor, PreparedMedia
from appliance.tasks.base import Decoded, Media

T = TypeVar("T")
_ENDLESS = 1 << 60
"""Pictures are not there, and take no memory."""


class HostThreads:
    """Port `MediaRunner`: decoding and encoding take no time, CPU stages what they are said to."""

    def __init__(self, clock: VirtualClock, threads: int) -> None:
        self._clock = clock
        self._free = asyncio.Semaphore(threads)

    async def run(self, application_id: str, tenant: str, deadline_ns: int | None, work: Callable[[], T]) -> T:
        return work()

    async def spend(self, ms: float) -> None:
        """So much of one thread, once there is one."""
        if ms > 0:
            async with self._free:
                await self._clock.sleep_until_ns(self._clock.now_ns() + round(ms * NS_PER_MS))


@dataclass(frozen=True, slots=True)
class _Looked:
    """An item on its way to a network."""

    prepared: PreparedMedia
    sight: Sight


class LabStages(BoxStages):
    """What a network sees is what the scenario shows; frames come as `sender/number` of the pipeline that is named by
    their content type.
    """

    def __init__(self, box: LabBox, host: HostThreads, scenes: Mapping[str, Scenes]) -> None:
        core = box.core
        predictor = Predictor(
            clock=box.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            sequences=core.sequences,
            media=host,
            texts=_Nobody(),
            asset_path=_no_file,
        )
        super().__init__(
            clock=box.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            predictor=predictor,
            sequences=core.sequences,
            media=host,
            held=Portions(_ENDLESS),
        )
        self._host, self._scenes = host, scenes
        # By the stage itself: another pipeline may have one that says the same, and takes another time.
        self._takes_ms = {key: ms for one in scenes.values() for key, ms in one.computes_ms().items()}

    async def read(self, media: Media, asks: Sequence[Ask], call: ItemCall, *, is_cut: bool) -> Sight:
        sender, _, number = media.body.decode().rpartition("/")
        return Sight(self._scenes[media.content_type], sender, int(number))

    async def cut(self, stage: Stage, subject: Sight, regions: Sequence[Region], call: ItemCall) -> Sequence[Any]:
        await self._host.spend(subject.scenes.cpu_ms.get(stage.name, 0.0) * len(regions))
        return [replace(subject, region=region) for region in regions]

    def release(self, subject: Sight) -> None:
        """Nothing is held."""

    async def prepare(self, stage: Ask, subjects: Sequence[Sight], call: ItemCall) -> Sequence[Any]:
        decoded = Decoded([dict(TENSORS)])
        return [_Looked(PreparedMedia(Media(b""), decoded), sight) for sight in subjects]

    async def ask(self, stage: Ask, prepared: _Looked, call: ItemCall) -> StageAnswer:
        answer = await super().ask(stage, prepared.prepared, call)
        return replace(answer, body=prepared.sight.body(stage.name), text=b"")

    async def compute(self, stage: Stage, call: ItemCall, work: Callable[[], T]) -> T:
        await self._host.spend(self._takes_ms.get(id(stage), 0.0))
        return work()


class _Nobody:
    """No network of a scenario reads texts."""

    async def tokenize(self, *order: object, **facts: object) -> NoReturn:
        raise NotImplementedError


def _no_file(sha256: str) -> NoReturn:
    raise NotImplementedError
