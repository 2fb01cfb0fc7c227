"""The way of a predict request: media → tensors → engine → answer, with one deadline over all of it.

Decoding and encoding run in the media threads, tokenizers in the guard of who uploaded them. Models with a state run
step by step; a sequence's requests follow one another, and its state is kept only when the whole request went well, so
a request that failed can be sent again. `ask` gives the answer as data, for a pipeline; `predict` as a caller gets it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import Application, Late, TaskKind, TaskSpec
from appliance.domain.errors import ApplianceError, DeadlineExceeded, LoadFailed, OutOfMemory, QueueFull, RunFailed
from appliance.domain.names import kind_of
from appliance.domain.notable import Spent
from appliance.domain.request import FrameStanding, Request, Result, RunMeter, Steps, Tensors
from appliance.domain.slots import NO_SLOT, Slot
from appliance.policies.limits.requests import is_too_late
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.ports import MediaRunner, TextReader
from appliance.runtime.servable import Servable
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.job import too_late
from appliance.runtime.serving.sequences import Sequences
from appliance.tasks import TASKS, pictures
from appliance.tasks.base import (
    Decoded,
    Media,
    OpenedMedia,
    OpensMedia,
    ReadsTokens,
    Target,
    Task,
    TokenOrder,
    next_state,
    step_inputs,
)
from appliance.tasks.large_json import write_json

T = TypeVar("T")
UNCOUNTED_BYTES = 64 * 1024
"""What may be made of a request's media before that is counted."""
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
    slot: Callable[[], Slot] | None = None
    """Asked when the media is decoded, before the first run: what a plan says about it."""
    is_item: bool = False
    """As of a `Request`."""
    beyond_plan: bool | None = None
    """As of a `Request`."""
    frame: FrameStanding | None = None
    """As of a `Request`."""
    behind_ns: int = 0
    """As of a `Request`."""
    meter: RunMeter | None = None
    """As of a `Request`."""
    ran: Callable[[str], None] | None = None
    """Called with the variant that answered when its last run is over, before its answer is written."""
    hold: Callable[[int], None] | None = None
    """Called with the bytes that are made of the media, before they are made where the task can tell. Raises: TooLarge,
    Busy. None: whoever made the call has counted them.
    """
    hold_outputs: Callable[[int], None] | None = None
    """Called with the bytes of the outputs, before they wait to be written. Raises: Busy. None: as of `hold`."""


@dataclass(slots=True)
class Timings:
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
class PreparedMedia:
    """Media on its way to a network: what of its decoding could be done before its turn."""

    media: Media
    decoded: Decoded | None = None
    """None: it is decoded when it is asked about."""
    servable: Servable | None = None
    """What it was decoded for."""
    error: ApplianceError | None = None
    """Why it cannot be."""
    decode_ns: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a network said, as data."""

    body: Mapping[str, Any]
    """The task's fields."""
    text: bytes
    """The same as a JSON object."""
    variant: str
    kind: str
    """Of the processor that it ran on last; empty: nothing had to run."""
    timings: Timings


@dataclass(frozen=True, slots=True)
class _Answer:
    """The task's fields, also as a JSON object or as the picture that they are, and what a sequence must remember: the
    task's part and the model's.
    """

    body: Mapping[str, Any]
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
    watch: Watch | None = None
    timings: Timings = field(default_factory=Timings)
    results: list[Result] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    """What was lost when the media was decoded."""

    @property
    def drop_ns(self) -> int | None:
        """When it is given up; None = never."""
        is_late_welcome = self.application.late is Late.RUN and not self.call.is_item
        return None if is_late_welcome else self.deadline_ns

    @property
    def spec(self) -> TaskSpec:
        return self.entry.model.task

    @property
    def variant(self) -> str:
        """That answered last, or would have where nothing had to run."""
        return self.results[-1].variant if self.results else self.servable.variant.name


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
        run = self._run(application, call, watch)
        return self._document(run, (await self._answered(run, PreparedMedia(media))).text)

    async def ask(
        self, application: Application, prepared: PreparedMedia, call: Call, watch: Watch | None = None
    ) -> Prediction:
        """The answer as data. Raises: as `predict`."""
        if prepared.error is not None:
            raise prepared.error
        run = self._run(application, call, watch)
        if prepared.servable is not None:
            run.servable = prepared.servable
        run.timings.decode += prepared.decode_ns
        answer = await self._answered(run, prepared)
        kind = kind_of(run.results[-1].build_id) if run.results else ""
        return Prediction(answer.body, answer.text, run.variant, kind, run.timings)

    async def prepare(self, application: Application, media: Sequence[Media], call: Call) -> list[PreparedMedia]:
        """Decode several for one network, in one turn of the media threads. What cannot be decoded has its error in
        place of the tensors; what is decoded in its sequence's turn, or by a tokenizer, is left for `ask`.

        Raises: ShuttingDown, UnknownVariant, ModelUnavailable.
        """
        run = self._run(application, call)
        task = TASKS[run.spec.kind]
        if call.sequence_id is not None or self._catalogue.servables.reader_of(run.entry.model) is not None:
            return [PreparedMedia(one, servable=run.servable) for one in media]

        def decode() -> list[Decoded | ApplianceError]:
            target = self._target(run)
            return [_decoded(task, one, run.spec, target) for one in media]

        try:
            found = await self._timed(run, "decode", decode)
        except (DeadlineExceeded, QueueFull) as error:
            for _ in media:
                self._engine.outcomes.failed(_request(run, {}), run.entry, error)
            return [PreparedMedia(one, error=error.with_traceback(None)) for one in media]
        decode_ns = run.timings.decode
        return [
            PreparedMedia(one, error=made)
            if isinstance(made, ApplianceError)
            else PreparedMedia(one, made, run.servable, decode_ns=decode_ns)
            for one, made in zip(media, found, strict=True)
        ]

    def drop_late(self, application: Application, call: Call) -> None:
        """Refuse what a run that began now would end too late, before it costs anything: the rule of the queue, and its
        counter (SC-25).

        Raises: DeadlineExceeded; ShuttingDown, UnknownVariant, ModelUnavailable.
        """
        expected_ns = self._engine.expected_ns(application, call.variant)
        deadline_ns, now_ns = self._deadline_ns(call, application), self._clock.now_ns()
        if not is_too_late(now_ns, expected_ns, deadline_ns):
            return
        run = self._run(application, call)
        request = _request(run, {})
        error = too_late(request, expected_ns, now_ns)
        self._engine.outcomes.failed(request, run.entry, error)
        raise error

    def target(self, application: Application, variant: str | None) -> tuple[TaskSpec, Callable[[], Target]]:
        """What would answer a request now takes; the second part may read files: for threads. Raises: as `prepare`."""
        entry = self._catalogue.entry(application.id)
        servable = self._engine.preferred(application, variant)
        return entry.model.task, lambda: self._target_of(entry, servable)

    def _run(self, application: Application, call: Call, watch: Watch | None = None) -> _Run:
        return _Run(
            call,
            application,
            self._catalogue.entry(application.id),
            self._engine.preferred(application, call.variant),
            self._deadline_ns(call, application),
            watch,
        )

    async def _answered(self, run: _Run, prepared: PreparedMedia) -> _Answer:
        """In the turn of its sequence, where it belongs to one."""
        call = run.call
        if call.sequence_id is None:
            return await self._answer(run, prepared, {}, {})
        key = (run.application.id, call.tenant, call.sequence_id)
        sequence = self._sequences.open(key, start=call.sequence_start)
        async with self._sequences.turn(sequence, run.drop_ns):
            answer = await self._answer(run, prepared, sequence.carry, sequence.tensors)
            sequence.carry, sequence.tensors = answer.carry, answer.state
        if call.sequence_end:
            self._sequences.close(key, sequence)
        return answer

    def _deadline_ns(self, call: Call, application: Application) -> int:
        """The caller's timeout, else what holds for requests that state none."""
        if call.timeout_ms is None:
            return self._engine.deadline_ns(application, call.arrival_ns)
        return call.arrival_ns + int(call.timeout_ms * NS_PER_MS)

    async def _answer(
        self, run: _Run, prepared: PreparedMedia, carry: Mapping[str, Any], state: Mapping[str, Any]
    ) -> _Answer:
        task, media = TASKS[run.spec.kind], prepared.media

        try:
            decoded = prepared.decoded or await self._decoded(run, task, media, carry)
        except (DeadlineExceeded, LoadFailed, QueueFull, RunFailed) as error:
            self._engine.outcomes.failed(_request(run, {}), run.entry, error)
            raise
        except asyncio.CancelledError:
            self._engine.outcomes.cancelled(_request(run, {}), run.entry)
            raise
        run.warnings = decoded.warnings
        outputs, state = await self._steps(run, decoded, state)
        if run.call.hold_outputs is not None:
            run.call.hold_outputs(sum(array.nbytes for step in outputs for array in step.values()))

        kind = pictures.wanted(media.accept) if media.accept and run.spec.kind is TaskKind.TENSOR else None

        def encode() -> _Answer:
            picture = None if kind is None or state else pictures.picture_of(outputs[0], kind)
            if picture is not None:
                return _Answer({}, picture, {}, state)
            answer = task.encode(outputs, decoded, run.spec)
            return _Answer(answer.body, write_json(answer.body), answer.carry, state)

        try:
            answer = await self._timed(run, "encode", encode)
        except DeadlineExceeded:
            late = DeadlineExceeded(
                waited_ms=(self._clock.now_ns() - run.call.arrival_ns) / NS_PER_MS,
                decoded_ms=run.timings.decode / NS_PER_MS,
                ran_ms=run.timings.compute / NS_PER_MS,
            )
            self._engine.outcomes.written(_request(run, {}), run.entry, run.variant, late)
            raise late from None
        self._engine.outcomes.written(_request(run, {}), run.entry, run.variant)
        if run.entry.trials and run.call.sequence_id is None:
            self._offer(run, media, answer.body)
        return answer

    def _offer(self, run: _Run, media: Media, body: Mapping[str, Any]) -> None:
        """Have the request kept for a trial, where one variant has answered all of it."""
        ids = {result.variant_id for result in run.results}
        if len(ids) == 1 and (id := ids.pop()) in run.entry.trials:
            answered = run.entry.servables[run.variant].variant
            if answered.id == id:
                self._engine.trials.offer_media(run.call.tenant, run.entry, answered, media, body)

    async def _decoded(self, run: _Run, task: Task, media: Media, carry: Mapping[str, Any]) -> Decoded:
        reader = self._catalogue.servables.reader_of(run.entry.model)
        if reader is None or not isinstance(task, ReadsTokens):
            return await self._decoded_and_held(run, task, media, carry)

        def ordered() -> tuple[Target, TokenOrder]:
            target = self._target(run)
            return target, task.token_order(media, run.spec, target)

        def charge(took_ns: int) -> None:
            self._engine.charge(run.application, run.call.tenant, took_ns)

        target, order = await self._timed(run, "decode", ordered)
        start_ns = self._clock.now_ns()
        build = self._catalogue.servables.build_of(run.servable.variant, reader)
        left_s = None if run.drop_ns is None else max(0.0, (run.drop_ns - start_ns) / NS_PER_S)
        try:
            async with asyncio.timeout(left_s):
                rows = await self._texts.tokenize(order, build, reader, charge)
        except OutOfMemory as refused:
            raise refused.as_seen_by(run.call.tenant) from None
        except TimeoutError:
            waited_ms = (self._clock.now_ns() - start_ns) / NS_PER_MS
            raise DeadlineExceeded(waited_ms=waited_ms, decoded_ms=waited_ms) from None
        run.timings.decode += self._clock.now_ns() - start_ns
        return await self._timed(run, "decode", lambda: task.decode_tokens(order, rows, run.spec, target))

    async def _decoded_and_held(self, run: _Run, task: Task, media: Media, carry: Mapping[str, Any]) -> Decoded:
        hold = run.call.hold
        if hold is None:
            return await self._timed(run, "decode", lambda: task.decode(media, run.spec, self._target(run), carry))

        def begin() -> Decoded | OpenedMedia:
            if not isinstance(task, OpensMedia):
                return task.decode(media, run.spec, self._target(run), carry)
            return _gone_on(task.open(media, run.spec, self._target(run)))

        decoded = await self._timed(run, "decode", begin)
        if isinstance(decoded, Decoded):
            made_bytes = sum(array.nbytes for step in decoded.steps for array in step.values())
            if made_bytes > UNCOUNTED_BYTES:
                hold(made_bytes)
            return decoded
        while isinstance(decoded, OpenedMedia):
            hold(decoded.bytes)
            decoded = await self._timed(run, "decode", partial(_next_step, decoded))
        return decoded

    async def _steps(
        self, run: _Run, decoded: Decoded, state: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
        """Every step through the engine, each with the state that the one before left."""
        outputs: list[dict[str, Any]] = []
        last, slot = len(decoded.steps) - 1, NO_SLOT
        for number, step in enumerate(decoded.steps):
            inputs = step_inputs(step, run.spec, state) if run.spec.state else step
            request = _request(run, inputs)
            if last:
                spent = Spent(0, *(getattr(run.timings, part) for part in ("queue", "load", "wake", "compute")))
                request.steps = Steps(number == last, all(one.warm for one in run.results), spent)
            if run.watch is not None and not run.results:
                run.watch(request)
            if run.call.slot is not None:
                slot = run.call.slot() if not run.results else Slot(is_planned=slot.is_planned)
                request.slot = slot
            result = await self._engine.infer(request)
            run.timings.add(result)
            run.results.append(result)
            outputs.append(result.outputs)
            if run.spec.state:
                state = next_state(result.outputs, run.spec)
        if run.call.ran is not None:
            run.call.ran(run.variant)
        return outputs, state

    def _target(self, run: _Run) -> Target:
        return self._target_of(run.entry, run.servable)

    def _target_of(self, entry: Entry, servable: Servable) -> Target:
        """May read (and, the first time, verify) files: for threads."""
        variant = servable.variant
        assets = {name: str(self._asset_path(sha256)) for name, sha256 in entry.model.assets.items()}
        largest = variant.shape_max or {}
        return Target(variant.inputs, variant.outputs, variant.height, variant.width, assets, largest)

    async def _timed(self, run: _Run, part: str, work: Callable[[], T]) -> T:
        """`work()` where media is worked on; the time until it is done counts as `part`."""
        start_ns = self._clock.now_ns()
        value = await self._media.run(run.application.id, run.call.tenant, run.drop_ns, work)
        setattr(run.timings, part, getattr(run.timings, part) + self._clock.now_ns() - start_ns)
        return value

    def _document(self, run: _Run, text: bytes) -> bytes:
        """The task's fields, who answered, and the timings; a picture as it is."""
        if pictures.kind_of(text) is not None:
            return text
        variant = run.variant
        answered = run.entry.servables[variant].variant if variant in run.entry.servables else None
        accuracy = None if answered is None else answered.accuracy
        parts = {name: getattr(run.timings, name) for name in Timings.__slots__}
        total_ns = self._clock.now_ns() - run.call.arrival_ns
        frame: dict[str, Any] = {
            "application": run.application.name,
            "model": run.entry.model.name,
            "variant": variant,
            "accuracy": accuracy.share if accuracy else None,
            "accuracy_metric": f"{accuracy.metric} against {accuracy.against}" if accuracy else None,
            "accuracy_meaning": run.entry.model.meaning_of(answered) if answered and accuracy else None,
            "evidence": None if answered is None else answered.evidence.value,
            "warnings": [*([answered.doubt] if answered is not None and answered.doubt else []), *run.warnings],
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


def _next_step(opened: OpenedMedia) -> Decoded | OpenedMedia:
    return _gone_on(opened.go_on())


def _gone_on(step: Decoded | OpenedMedia) -> Decoded | OpenedMedia:
    """As far as nothing is made that must be counted."""
    while isinstance(step, OpenedMedia) and step.bytes <= UNCOUNTED_BYTES:
        step = step.go_on()
    return step


def _decoded(task: Task, media: Media, spec: TaskSpec, target: Target) -> Decoded | ApplianceError:
    """One of several, of which each fails for itself."""
    try:
        return task.decode(media, spec, target, {})
    except ApplianceError as error:
        return error.with_traceback(None)  # it would hold what the others hold


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
        is_item=run.call.is_item,
        beyond_plan=run.call.beyond_plan,
        frame=run.call.frame,
        behind_ns=run.call.behind_ns,
        meter=run.call.meter,
        is_read=True,
    )
