"""Port `StageRunner` in the box: networks by the predictor, media in its threads.

A picture that several stages look at, or that items are cut from, is decoded once. It is counted among the bodies that
are in memory until all that was cut from it has gone; what is looked at by one network alone is decoded for that, as
small as it may be.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.catalogue import Application, TaskSpec
from appliance.domain.errors import (
    ApplianceError,
    BadMedia,
    Busy,
    ModelUnavailable,
    UnknownVariant,
    VariantQuarantined,
)
from appliance.domain.pipeline import Ask, Region, Stage
from appliance.domain.pipeline_graph import GIVES, TAKES, Data
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.engine.portions import Portions
from appliance.runtime.pipelines.accounts import HOST
from appliance.runtime.pipelines.ports import ItemCall, StageAnswer
from appliance.runtime.ports import MediaRunner
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.predict import Call, Predictor
from appliance.runtime.serving.sequences import Sequences
from appliance.tasks.base import Media, Pixels, Target
from appliance.tasks.image import read_picture
from appliance.tasks.regions import CUT_PIXELS_MAX, copied, cut

T = TypeVar("T")
_TURN_PIXELS = 1 << 20
"""So many are copied in one turn of the media threads, unless a single region has more: nobody waits behind all of a
frame's, and none begins after its deadline."""
_BEYOND_PLAN = -100
"""Priority of frames beyond the plan, among the tenant's own: those that it counts on go first. Of these the items
beyond the plan have no less: behind the items of newer frames they would make late what is nearly done. In virtual
time, where frames show eight items from one moment on, a quarter fewer are late so.
"""

_NUMBERS = (Data.VECTOR, Data.TENSOR)
"""Answers that no stage reads, and that may be millions of numbers: they are kept as they are written."""


@dataclass(slots=True, eq=False)
class _Picture:
    """A decoded picture, for as long as something of it is needed."""

    pixels: Pixels
    tenant: str
    held_bytes: int
    uses: int = 1
    copied: int = 0
    """Pixels of all that was cut out as copies."""


@dataclass(slots=True, eq=False)
class _Cutout:
    """A region of a picture."""

    pixels: Pixels
    picture: _Picture
    held_bytes: int
    """Of its own; 0 of a view."""


class BoxStages:
    """Stages of all pipelines of a box. Event-loop thread only."""

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        engine: Engine,
        predictor: Predictor,
        sequences: Sequences,
        media: MediaRunner,
        held: Portions,
    ) -> None:
        """`held`: bytes of bodies in memory, of all tenants together."""
        self._clock = clock
        self._catalogue = catalogue
        self._engine = engine
        self._predictor = predictor
        self._sequences = sequences
        self._media = media
        self._held = held

    async def read(self, media: Media, asks: Sequence[Ask], call: ItemCall, *, is_cut: bool) -> Any:
        targets = None
        if not is_cut:
            targets = self._targets(asks, call.tenant)
            if targets is None:
                return media
        about = asks[0].application_id if asks else ""
        pixels = await self._run(call, lambda: _read(media, targets), about)
        held_bytes = pixels.array.nbytes
        if not self._held.take(call.tenant, held_bytes):
            raise Busy()
        return _Picture(pixels, call.tenant, held_bytes)

    async def cut(
        self, stage: Stage, subject: Any, regions: Sequence[Region], call: ItemCall
    ) -> Sequence[_Cutout | None]:
        picture: _Picture = subject.picture if isinstance(subject, _Cutout) else subject
        pixels = picture.pixels
        a_pixel = pixels.array.nbytes // (pixels.array.shape[0] * pixels.array.shape[1])
        left = CUT_PIXELS_MAX * pixels.width * pixels.height - picture.copied
        sizes: list[int | None] = []
        """Pixels to copy of each region; None: more than a frame may have."""
        for region in regions:
            size = copied(region)
            sizes.append(size if size <= left else None)
            left -= sizes[-1] or 0
        wanted = sum(size or 0 for size in sizes)
        if wanted and not self._held.take(call.tenant, wanted * a_pixel):
            raise Busy()
        picture.copied += wanted
        made: list[_Cutout | None] = []
        try:
            for turn in _turns(sizes):
                some = [
                    None if size is None else region for region, size in zip(regions[turn], sizes[turn], strict=True)
                ]
                found = await self._run(call, partial(_cut_all, pixels, some))
                made += [
                    None if one is None else _Cutout(one, picture, (size or 0) * a_pixel)
                    for one, size in zip(found, sizes[turn], strict=True)
                ]
        except BaseException:
            if wanted:
                self._held.give(picture.tenant, wanted * a_pixel)
            raise
        spare = wanted * a_pixel - sum(one.held_bytes for one in made if one is not None)
        if spare:
            self._held.give(picture.tenant, spare)
        picture.uses += sum(one is not None for one in made)
        return made

    def release(self, subject: Any) -> None:
        picture = subject.picture if isinstance(subject, _Cutout) else subject
        if not isinstance(picture, _Picture):
            return
        given = subject.held_bytes if isinstance(subject, _Cutout) else 0
        picture.uses -= 1
        if not picture.uses:
            given += picture.held_bytes
        if given:
            self._held.give(picture.tenant, given)

    def is_busy(self) -> bool:
        return self._engine.free_workers() < self._engine.serving_workers()

    def workers(self) -> int:
        return self._engine.serving_workers()

    def check(self, stage: Ask, call: ItemCall) -> None:
        self._predictor.drop_late(self._application(stage, call.tenant), self.call_of(stage, call))

    async def prepare(self, stage: Ask, subjects: Sequence[Any], call: ItemCall) -> Sequence[Any]:
        media = [_media_of(subject) for subject in subjects]
        return await self._predictor.prepare(self._application(stage, call.tenant), media, self.call_of(stage, call))

    async def ask(self, stage: Ask, prepared: Any, call: ItemCall) -> StageAnswer:
        application = self._application(stage, call.tenant)
        found = await self._predictor.ask(application, prepared, self.call_of(stage, call), call.watch)
        is_read = GIVES[self._catalogue.entry(application.id).model.task.kind] not in _NUMBERS
        body = found.body if is_read else {}
        return StageAnswer(body, found.variant, found.kind, found.timings.compute, found.text)

    async def compute(self, stage: Stage, call: ItemCall, work: Callable[[], T]) -> T:
        return await self._run(call, work)

    def expected_ns(self, stage: Ask, tenant: str) -> int:
        try:
            application = self._application(stage, tenant)
            return self._engine.expected_ns(application, self._variant(application, stage, None))
        except ApplianceError:  # it has gone, or is not in service: asking will say so
            return 0

    def keep(self, tenant: str, count: int) -> None:
        if not self._held.take(tenant, count):
            raise Busy()

    def give_back(self, tenant: str, count: int) -> None:
        self._held.give(tenant, count)

    def take_slot(self, tenant: str) -> bool:
        return self._engine.take_slot(tenant)

    def give_slot(self, tenant: str) -> None:
        self._engine.give_slot(tenant)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _application(self, stage: Ask, tenant: str) -> Application:
        return self._catalogue.entry_for(tenant, stage.application_id).application

    def _targets(self, asks: Sequence[Ask], tenant: str) -> list[tuple[TaskSpec, Callable[[], Target]]] | None:
        """What networks make of a picture that is decoded once for all of them. None: there are no two of them, or one
        takes none, or cannot be asked: its item will say so, and all others go on.
        """
        if len(asks) < 2:
            return None
        try:
            applications = [self._application(ask, tenant) for ask in asks]
            found = [self._predictor.target(one, ask.variant) for one, ask in zip(applications, asks, strict=True)]
        except (ModelUnavailable, UnknownVariant, VariantQuarantined):
            return None
        return found if all(TAKES[spec.kind] is Data.PICTURE for spec, _ in found) else None

    def _variant(self, application: Application, stage: Ask, named: str | None) -> str | None:
        """The one that the stage wants, or the plan, unless that has gone since; else the most wanted one that is as
        accurate as the stage asks.
        """
        entry = self._catalogue.entry(application.id)
        planned = entry.servables.get(named or "")
        may_answer = planned is not None and application.may_choose(planned.variant)
        found = stage.variant or (named if may_answer else None)
        if found is not None or stage.accuracy_min is None:
            return found
        wanted = entry.most_wanted(stage.accuracy_min)
        return None if wanted is None or wanted is entry.order[0] else wanted.name

    def call_of(self, stage: Ask, call: ItemCall) -> Call:
        """What the engine is asked for an item of a stage."""
        entry = self._catalogue.entry_for(call.tenant, stage.application_id)
        sequence_id = call.sequence_id if entry.model.task.state else None
        key = (stage.application_id, call.tenant, sequence_id or "")
        return Call(
            call.tenant,
            call.request_id,
            call.arrival_ns,
            self._variant(entry.application, stage, call.variant),
            timeout_ms=(call.deadline_ns - call.arrival_ns) / NS_PER_MS,
            priority=0 if call.is_of_planned else _BEYOND_PLAN,
            sequence_id=sequence_id,
            sequence_start=sequence_id is not None and not self._sequences.has(key),
            is_item=True,
            beyond_plan=None if call.is_planned is None else not call.is_planned,
            frame=call.frame,
            behind_ns=call.behind_ns,
            meter=call.meter,
        )

    async def _run(self, call: ItemCall, work: Callable[[], T], about: str = "") -> T:
        """`work()`; what it takes of a media thread is metered as `host`, the wait for one is not."""
        took_ns: list[int] = []

        def timed() -> T:
            begun_ns = self._clock.now_ns()
            try:
                return work()
            finally:
                took_ns.append(self._clock.now_ns() - begun_ns)

        try:
            return await self._media.run(about, call.tenant, call.deadline_ns, timed)
        finally:
            if call.meter is not None and took_ns:
                call.meter.ran(HOST, took_ns[0])


def _read(media: Media, targets: Sequence[tuple[TaskSpec, Callable[[], Target]]] | None) -> Pixels:
    wanted = None if targets is None else [(spec, target()) for spec, target in targets]
    return read_picture(media.body, wanted)


def _turns(sizes: Sequence[int | None]) -> Iterator[slice]:
    """Regions that are cut in one turn, by the pixels of each."""
    begin, pixels = 0, 0
    for at, size in enumerate(sizes):
        if at > begin and pixels + (size or 0) > _TURN_PIXELS:
            yield slice(begin, at)
            begin, pixels = at, 0
        pixels += size or 0
    yield slice(begin, len(sizes))


def _cut_all(picture: Pixels, regions: Sequence[Region | None]) -> list[Pixels | None]:
    return [None if region is None else _cut(picture, region) for region in regions]


def _cut(picture: Pixels, region: Region) -> Pixels | None:
    try:
        return cut(picture, region)
    except BadMedia:
        return None


def _media_of(subject: Any) -> Media:
    """What a task decodes."""
    if isinstance(subject, _Picture | _Cutout):
        return Media(b"", pixels=subject.pixels)
    if isinstance(subject, str):
        return Media(orjson.dumps({"text": subject}), "application/json")
    assert isinstance(subject, Media)
    return subject
