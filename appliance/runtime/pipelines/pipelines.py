"""All pipelines, as the API asks about them: which there are, their frames and clients, and how they do.

Event-loop thread only.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

from appliance.clock import NS_PER_S, Clock
from appliance.domain.catalogue import Application
from appliance.domain.errors import (
    BadMedia,
    BadTensor,
    DeadlineExceeded,
    ModelUnavailable,
    UnknownClient,
    UnknownPipeline,
)
from appliance.domain.pipeline import Ask, Pipeline, PipelineClient, PipelinePlan
from appliance.domain.promised import PromiseEnd
from appliance.domain.session import RATE_MIN
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.pipelines.accounts import UNPRICED, Cost, Tariff
from appliance.runtime.pipelines.definition import runnable_kinds
from appliance.runtime.pipelines.document import document
from appliance.runtime.pipelines.figures import FrameFigures, FrameSecond
from appliance.runtime.pipelines.frame import FrameCall, FrameRun
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.planning import Planning
from appliance.runtime.pipelines.planning_figures import PlanningFigures
from appliance.runtime.pipelines.ports import StageRunner
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.spending import SpendingByTenant
from appliance.tasks.base import Media


@dataclass(frozen=True, slots=True)
class StageStatus:
    """What a stage did since the start."""

    items: int
    items_per_frame: float | None
    """None: no frame has come yet."""
    dropped: int
    errors: int
    no_condition: int
    outdone: int
    """Of these: the condition held, but others were better."""
    p50_ms: float | None
    """Of an item of late, from when it could begin to its answer."""
    variant: str | None
    """The last that answered."""
    ballooning: float | None = None
    """What runs take over what was measured before; None: nobody knows."""


@dataclass(frozen=True, slots=True)
class PipelineCost:
    """What a pipeline costs."""

    per_frame: Cost
    """Of late; before that is known, of the frames since the start that are over."""
    per_second: Cost
    """Of late."""
    energy_by: str | None
    """How the watts are known: `measured` or `declared`; None: they are not."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """How a pipeline does."""

    pipeline: Pipeline
    plan: PipelinePlan | None
    clients: Sequence[PipelineClient]
    rate_fps: float
    frames: FrameFigures
    finish_rate: Sequence[FrameSecond]
    stages: Mapping[str, StageStatus]
    cost: PipelineCost


@dataclass(frozen=True, slots=True)
class FrameAnswer:
    """The answer of a frame, and how it counts."""

    body: bytes
    """JSON."""
    is_in_time: bool
    has_failed: bool
    """A stage failed that must not."""
    is_turned_away: bool
    """Nothing of it was run: the plan did not count on it."""


class Pipelines:
    """The registry of a box."""

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        engine: Engine,
        stages: StageRunner,
        new_id: Callable[[], str],
        tariff: Tariff = UNPRICED,
    ) -> None:
        self.tariff = tariff
        self._planning: Planning | None = None
        self._clock = clock
        self._catalogue = catalogue
        self._engine = engine
        self._stages = stages
        self._new_id = new_id
        self.live: dict[str, LivePipeline] = {}
        """By id; to be read only."""
        self.spending = SpendingByTenant()
        """Processor time of the frames of all, of those that are no more, too."""

    def plan_with(self, planning: Planning) -> None:
        """From now on clients are let in, and pipelines planned, by this."""
        self._planning = planning

    @property
    def figures(self) -> PlanningFigures | None:
        """Of the planning; None: nobody plans."""
        return None if self._planning is None else self._planning.figures

    # -- which there are -----------------------------------------------------------------------------------------------

    def fill(self, pipelines: Iterable[Pipeline]) -> None:
        """Take over what there is at the start; after the catalogue."""
        for pipeline in pipelines:
            self.put(pipeline)

    def put(self, pipeline: Pipeline) -> LivePipeline:
        """A new one, or one that was changed: its frames under way go on as it was. One that is what it was stays."""
        kinds = runnable_kinds(self._catalogue, pipeline)
        live = LivePipeline(pipeline, kinds, self._stages, self._clock, self.tariff, self.spending.of(pipeline.tenant))
        before = self.live.get(pipeline.id)
        if before is not None and (before.pipeline, before.graph) == (pipeline, live.graph):
            return before
        if before is not None:
            live.succeed(before)
        self.live[pipeline.id] = live
        self.look_again()
        return live

    def remove(self, pipeline_id: str) -> None:
        """Frames under way go on; nobody finds it any more."""
        self.live.pop(pipeline_id, None)
        self.look_again()

    def get(self, pipeline_id: str) -> LivePipeline:
        """Raises: UnknownPipeline."""
        found = self.live.get(pipeline_id)
        if found is None:
            raise UnknownPipeline(name=pipeline_id.partition("/")[2])
        return found

    def of_tenant(self, tenant: str) -> list[LivePipeline]:
        """By name."""
        mine = (live for live in self.live.values() if live.pipeline.tenant == tenant)
        return sorted(mine, key=lambda live: live.pipeline.name)

    def all(self) -> list[LivePipeline]:
        """By id."""
        return [self.live[id] for id in sorted(self.live)]

    def look_again(self) -> None:
        """Something has changed that plans go by: they are looked at now, and not at the next turn."""
        if self._planning is not None:
            self._planning.wake()

    # -- frames --------------------------------------------------------------------------------------------------------

    @contextmanager
    def admitted(self, pipeline: Pipeline, tenant: str) -> Iterator[None]:
        """Let a frame in, as one request of its tenant, before its body is read; then its call `is_admitted`. What it
        will ask begins to wake meanwhile, where it sleeps.

        Raises: QuotaExceeded, QueueFull, ModelUnavailable, ShuttingDown.
        """
        live = self.get(pipeline.id)
        with self._engine.admitted(self._first_application(live), tenant):
            for stage in live.stages.values():
                if isinstance(stage, Ask):
                    with suppress(ModelUnavailable):  # its items will say so
                        application = self._entry(live, stage).application
                        self._engine.wake_ahead(application, stage.variant)
            yield

    async def predict(self, pipeline: Pipeline, media: Media, call: FrameCall) -> bytes:
        """The frame's answer as JSON bytes. Raises: as `answer`."""
        return (await self.answer(pipeline, media, call)).body

    async def answer(self, pipeline: Pipeline, media: Media, call: FrameCall) -> FrameAnswer:
        """The frame's answer, with how it counts.

        Raises: UnknownPipeline, BadMedia, BadTensor, Busy, DeadlineExceeded where not even its input could be read in
        time; unless it `is_admitted`, what `admitted` raises.
        """
        live = self.get(pipeline.id)
        with nullcontext() if call.is_admitted else self.admitted(pipeline, call.tenant):
            return await self._run(live, media, call)

    def _entry(self, live: LivePipeline, stage: Ask) -> Entry:
        """Raises: ModelUnavailable."""
        return self._catalogue.entry_for(live.pipeline.tenant, stage.application_id)

    def _first_application(self, live: LivePipeline) -> Application:
        """Of those that a frame begins with one that is there. Raises: ModelUnavailable: none is."""
        for stage in (live.stages[name] for name in live.first):
            if isinstance(stage, Ask):
                with suppress(ModelUnavailable):
                    return self._entry(live, stage).application
        return self._entry(live, live.first_ask).application

    async def _run(self, live: LivePipeline, media: Media, call: FrameCall) -> FrameAnswer:
        frames, slo_ns = live.frames, int(live.pipeline.latency_slo_ms * 1e6)
        now_ns = self._clock.now_ns()
        is_joined = live.clients.begins(call.client, now_ns)
        second = frames.begins(now_ns, is_joined=is_joined)
        frame = FrameRun(live, call, self._stages, self._clock)
        is_answered = False
        broken: PromiseEnd | None = PromiseEnd.FAILED
        try:
            await frame.run(media)
            is_answered = True
        except (BadMedia, BadTensor, asyncio.CancelledError):  # the caller's doing
            broken = None
            raise
        except DeadlineExceeded:
            broken = PromiseEnd.LATE
            raise
        finally:
            if is_joined:
                live.clients.ends(call.client, self._clock.now_ns())
            second.spent_ns += frame.spending.total_ns
            is_in_time = frames.ends(
                second,
                is_answered=is_answered and not frame.has_failed,
                is_late=self._clock.now_ns() - call.arrival_ns > slo_ns,
                is_dropped=frame.has_dropped,
                has_errors=frame.has_errors,
                broken=PromiseEnd.REFUSED if frame.is_turned_away else broken,
            )
        found = self.tariff.of({kind: ns / NS_PER_S for kind, ns in frame.spending.by_kind.items()})
        cost = {"seconds": round(found.seconds, 9), "joules": _rounded(found.joules), "price": _rounded(found.price)}
        body = document(frame, cost=cost, is_in_time=is_in_time)
        return FrameAnswer(body, is_in_time, frame.has_failed, frame.is_turned_away)

    # -- clients -------------------------------------------------------------------------------------------------------

    async def join(
        self, pipeline_id: str, fps: float, tenant: str, session: str | None = None, within_ms: float | None = None
    ) -> PipelineClient:
        """One more client; `session`: the id of that of a device. `within_ms`: what its frames may take in the box,
        where that is less than the pipeline's SLO. Raises: UnknownPipeline, PipelineNotPossible, TooManySessions.
        """
        live = self.get(pipeline_id)
        live.clients.require_room(live.pipeline)
        client = PipelineClient(session or self._new_id(), pipeline_id, fps, session is not None, within_ms)
        if self._planning is None:
            live.clients.join(client, self._clock.now_ns())
        else:
            await self._planning.admission.admit(live, client)
        return client

    def keep(self, pipeline_id: str, fps: float, session: str, within_ms: float | None = None) -> None:
        """A session that was let in before the box was started again is planned with. Raises: UnknownPipeline."""
        client = PipelineClient(session, pipeline_id, fps, True, within_ms)
        self.get(pipeline_id).clients.join(client, self._clock.now_ns())
        self.look_again()

    async def change(self, pipeline_id: str, client_id: str, fps: float, within_ms: float | None = None) -> None:
        """Another rate, or time. More frames, or sooner ones, are let in as those of one more client would be, which
        then has gone.

        Raises: as `join`; UnknownClient.
        """
        live = self.get(pipeline_id)
        before = live.clients.get(client_id)
        if before is None:
            raise UnknownClient(name=client_id)
        if fps > before.fps or (within_ms is not None and within_ms < (before.within_ms or math.inf)):
            more_fps = max(fps - before.fps, RATE_MIN)
            more = await self.join(pipeline_id, more_fps, live.pipeline.tenant, self._new_id(), within_ms)
            live = self.get(pipeline_id)
            live.clients.leave(more.id)
        live.clients.change(client_id, fps, within_ms)
        self.look_again()

    def leave(self, pipeline_id: str, client_id: str, *, as_session: bool = False) -> None:
        """Only who speaks for a session ends its part. Raises: UnknownPipeline, UnknownClient."""
        live = self.get(pipeline_id)
        found = live.clients.get(client_id)
        if found is None or found.is_session is not as_session:
            raise UnknownClient(name=client_id)
        live.clients.leave(client_id)
        if self._planning is not None:
            self._planning.admission.left(live, found, "it said so")

    # -- how they do ---------------------------------------------------------------------------------------------------

    def status(self, pipeline_id: str) -> PipelineStatus:
        """Raises: UnknownPipeline."""
        live, now_ns = self.get(pipeline_id), self._clock.now_ns()
        frames = live.frames
        ballooning = self.ballooning(pipeline_id)
        seconds = frames.recent(now_ns)
        ended = frames.answered + frames.failed
        account = live.account
        live.look()
        return PipelineStatus(
            live.pipeline,
            live.plan,
            tuple(live.clients),
            frames.rate_fps(now_ns),
            frames,
            seconds,
            {name: self._stage_status(live, name, ballooning.get(name)) for name in live.stages},
            PipelineCost(
                account.per_frame or account.total.times(1.0 / ended if ended else 0.0),
                account.per_second,
                account.energy_by,
            ),
        )

    def ballooning(self, pipeline_id: str) -> Mapping[str, float]:
        """Stage that asks → what runs take over what was measured, as the last plan saw it; absent: nobody knows."""
        return {} if self._planning is None else self._planning.ballooning(pipeline_id)

    @staticmethod
    def _stage_status(live: LivePipeline, name: str, ballooning: float | None) -> StageStatus:
        one = live.figures[name]
        frames = live.frames.sent - one.frames_before
        return StageStatus(
            one.items,
            one.items / frames if frames else None,
            one.dropped,
            one.errors,
            one.no_condition,
            one.outdone,
            one.p50_ms,
            one.variant or None,
            ballooning,
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)
