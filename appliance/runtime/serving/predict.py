"""The way of a predict request: media → tensors → engine → answer, with one deadline over all of it.

Decoding and encoding run in the media threads, tokenizers in the guard of who uploaded them. Models with a state run
step by step; a sequence's requests follow one another, and its state is kept only when the whole request went well, so
a request that failed can be sent again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import Application, Late, TaskKind, TaskSpec
from appliance.domain.errors import DeadlineExceeded, LoadFailed, QueueFull, RunFailed
from appliance.domain.request import Request, Result, Tensors
from appliance.runtime.catalogue import Catalogue, Entry, Servable
from appliance.runtime.ports import MediaRunner, TextReader
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.sequences import Sequences
from appliance.tasks import TASKS, pictures
from appliance.tasks.base import Decoded, Media, ReadsTokens, Target, Task, TokenOrder, next_state, step_inputs
from appliance.tasks.large_json import write_json

T = TypeVar("T")
Watch = Callable[[Request], None]
"""Is shown the first request that a call makes to the engine, before the engine is."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the caller asked for beside the media."""

    tenant: str
    """Who asks."""
    request_id: str
    arrival_ns: int
    variant: str | None = None
    timeout_ms: float | None = None
    priority: int = 0
    sequence_id: str | None = None
    sequence_start: bool = False
    sequence_end: bool = False
    began_cold: bool = False
    """As of a `Request`."""
    is_frame: bool = False
    """As of a `Request`."""
    is_planned: bool = False
    """As of a `Request`."""
    gate: Callable[[], Awaitable[int]] | None = None
    """Awaited when the media is decoded, before the first run: until the batch begins that it is planned for, whose
    number it returns.
    """


@dataclass(slots=True)
class _Timings:
    """Nanoseconds by part."""

    decode: int = 0
    queue: int = 0
    load: int = 0
    wake: int = 0
    compute: int = 0
    encode: int = 0

    def add(self, result: Result) -> None:
        self.queue += result.queue_ns
        self.load += result.load_ns
        self.wake += result.wake_ns
        self.compute += result.compute_ns


@dataclass(frozen=True, slots=True)
class _Answer:
    """The task's fields as a JSON object, and what a sequence must remember: the task's part and the model's."""

    text: bytes
    carry: Mapping[str, Any]
    state: Mapping[str, Any]


@dataclass(slots=True)
class _Run:
    """One request under way."""

    call: Call
    application: Application
    entry: Entry
    servable: Servable
    deadline_ns: int
    watch: Watch | None
    timings: _Timings = field(default_factory=_Timings)
    results: list[Result] = field(default_factory=list)

    @property
    def drop_ns(self) -> int | None:
        """When it is given up; None = never."""
        return None if self.application.late is Late.RUN else self.deadline_ns

    @property
    def spec(self) -> TaskSpec:
        return self.entry.model.task


class Predictor:
    """Answers requests that bring media. Event-loop thread only; decoding and encoding run where `media` runs them."""

    def __init__(
        self,
        *,
        clock: Clock,
        catalogue: Catalogue,
        engine: Engine,
        sequences: Sequences,
        media: MediaRunner,
        texts: TextReader,
        asset_path: Callable[[str], Path],
        processor: str = "",
    ) -> None:
        """`asset_path`: SHA-256 of what was uploaded beside a graph → its file; may read it: for threads. `processor`:
        its kind, where answers are to name it.
        """
        self._clock = clock
        self._catalogue = catalogue
        self._engine = engine
        self._sequences = sequences
        self._media = media
        self._texts = texts
        self._asset_path = asset_path
        self._processor = processor

    async def predict(self, application: Application, media: Media, call: Call, watch: Watch | None = None) -> bytes:
        """The answer as JSON bytes, or as the picture that it is where the media asks for one, to a call that has been
        let in (`Engine.admitted`).

        Raises: ModelUnavailable, UnknownVariant, BadMedia, BadTensor, QueueFull, DeadlineExceeded, and what the engine
        raises.
        """
        run = _Run(
            call,
            application,
            self._catalogue.entry(application.id),
            self._engine.preferred(application, call.variant),
            self._deadline_ns(call, application),
            watch,
        )
        if call.sequence_id is None:
            return self._whole(run, (await self._answer(run, media, {}, {})).text)
        key = (application.id, call.tenant, call.sequence_id)
        sequence = self._sequences.open(key, start=call.sequence_start)
        async with self._sequences.turn(sequence, run.drop_ns):
            answer = await self._answer(run, media, sequence.carry, sequence.tensors)
            sequence.carry, sequence.tensors = answer.carry, answer.state
        if call.sequence_end:
            self._sequences.close(key, sequence)
        return self._whole(run, answer.text)

    def _deadline_ns(self, call: Call, application: Application) -> int:
        """The caller's timeout, else what holds for requests that state none."""
        if call.timeout_ms is None:
            return self._engine.deadline_ns(application, call.arrival_ns)
        return call.arrival_ns + int(call.timeout_ms * NS_PER_MS)

    async def _answer(self, run: _Run, media: Media, carry: Mapping[str, Any], state: Mapping[str, Any]) -> _Answer:
        task = TASKS[run.spec.kind]

        try:
            decoded = await self._decoded(run, task, media, carry)
        except (DeadlineExceeded, LoadFailed, QueueFull, RunFailed) as error:
            self._engine.count_failure(_request(run, {}), run.entry, error)
            raise
        outputs, state = await self._steps(run, decoded, state)

        kind = pictures.wanted(media.accept) if media.accept and run.spec.kind is TaskKind.TENSOR else None

        def encode() -> _Answer:
            picture = None if kind is None or state else pictures.picture_of(outputs[0], kind)
            if picture is not None:
                return _Answer(picture, {}, state)
            answer = task.encode(outputs, decoded, run.spec)
            return _Answer(write_json(answer.body), answer.carry, state)

        return await self._timed(run, "encode", encode)

    async def _decoded(self, run: _Run, task: Task, media: Media, carry: Mapping[str, Any]) -> Decoded:
        reader = self._catalogue.reader_of(run.entry.model)
        if reader is None or not isinstance(task, ReadsTokens):
            return await self._timed(run, "decode", lambda: task.decode(media, run.spec, self._target(run), carry))

        def ordered() -> tuple[Target, TokenOrder]:
            target = self._target(run)
            return target, task.token_order(media, run.spec, target)

        def charge(took_ns: int) -> None:
            self._engine.charge(run.application, run.call.tenant, took_ns)

        target, order = await self._timed(run, "decode", ordered)
        start_ns = self._clock.now_ns()
        build = self._catalogue.build_of(run.servable.variant, reader)
        left_s = None if run.drop_ns is None else max(0.0, (run.drop_ns - start_ns) / NS_PER_S)
        try:
            async with asyncio.timeout(left_s):
                rows = await self._texts.tokenize(order, build, reader, charge)
        except TimeoutError:
            waited_ms = (self._clock.now_ns() - start_ns) / NS_PER_MS
            raise DeadlineExceeded(waited_ms=waited_ms, decoded_ms=waited_ms) from None
        run.timings.decode += self._clock.now_ns() - start_ns
        return await self._timed(run, "decode", lambda: task.decode_tokens(order, rows, run.spec, target))

    async def _steps(
        self, run: _Run, decoded: Decoded, state: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
        """Every step through the engine, each with the state that the one before left."""
        outputs: list[dict[str, Any]] = []
        for step in decoded.steps:
            inputs = step_inputs(step, run.spec, state) if run.spec.state else step
            request = _request(run, inputs)
            if run.watch is not None and not run.results:
                run.watch(request)
            if run.call.gate is not None and not run.results:
                request.batch = await run.call.gate()
            result = await self._engine.infer(request)
            run.timings.add(result)
            run.results.append(result)
            outputs.append(result.outputs)
            if run.spec.state:
                state = next_state(result.outputs, run.spec)
        return outputs, state

    def _target(self, run: _Run) -> Target:
        """May read (and, the first time, verify) files: for threads."""
        variant = run.servable.variant
        assets = {name: str(self._asset_path(sha256)) for name, sha256 in run.entry.model.assets.items()}
        largest = variant.shape_max or {}
        return Target(variant.inputs, variant.outputs, variant.height, variant.width, assets, largest)

    async def _timed(self, run: _Run, part: str, work: Callable[[], T]) -> T:
        """`work()` where media is worked on; the time until it is done counts as `part`."""
        start_ns = self._clock.now_ns()
        value = await self._media.run(run.application.id, run.call.tenant, run.drop_ns, work)
        setattr(run.timings, part, getattr(run.timings, part) + self._clock.now_ns() - start_ns)
        return value

    def _whole(self, run: _Run, text: bytes) -> bytes:
        """The task's fields, who answered, and the timings; a picture as it is."""
        if pictures.kind_of(text) is not None:
            return text
        variant = run.results[-1].variant if run.results else run.servable.variant.name
        accuracy = run.entry.servables[variant].variant.accuracy if variant in run.entry.servables else None
        parts = {name: getattr(run.timings, name) for name in _Timings.__slots__}
        total_ns = self._clock.now_ns() - run.call.arrival_ns
        frame: dict[str, Any] = {
            "application": run.application.name,
            "model": run.entry.model.name,
            "variant": variant,
            "accuracy": accuracy.share if accuracy else None,
            "accuracy_metric": f"{accuracy.metric} against {accuracy.against}" if accuracy else None,
            "warm": run.results[0].warm if run.results else True,
            "timings_ms": {name: round(ns / NS_PER_MS, 3) for name, ns in (parts | {"total": total_ns}).items()},
            "request_id": run.call.request_id,
        }
        if self._processor:
            frame["processor"] = self._processor
        if parts_ran := [part for result in run.results for part in result.parts]:
            frame["parts"] = [
                {"part": one.number, "group": one.group, "kind": one.kind, "ms": round(one.took_ns / NS_PER_MS, 3)}
                for one in parts_ran
            ]
        return text[:-1] + (b"," if len(text) > 2 else b"") + write_json(frame)[1:]


def _request(run: _Run, inputs: Tensors) -> Request:
    """The run's next request to the engine."""
    return Request(
        run.application.id,
        run.call.tenant,
        inputs,
        run.call.arrival_ns,
        id=run.call.request_id,
        variant=run.call.variant,
        deadline_ns=run.deadline_ns,
        priority=run.call.priority,
        began_cold=run.call.began_cold and not run.results,
        is_admitted=True,
        is_frame=run.call.is_frame,
        is_planned=run.call.is_planned,
        is_read=True,
    )
