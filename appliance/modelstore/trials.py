"""Trials of unverified variants on requests, and the watch on verified ones, while the box is idle (`domain.trial`).

A few seconds after a request was kept, a child process runs another variant on this request and on later requests. It
compares the outputs with the answers that the callers got. The child is confined as children of imports are. It has the
lowest priority for the processors, and no way into the processes that serve. No request waits for a trial; a trial
waits for free memory and for its part of a core.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from appliance.clock import NS_PER_S
from appliance.confinement.limits import ChildLimits
from appliance.domain.accuracy import points
from appliance.domain.catalogue import Accuracy, Evidence, Model, Variant
from appliance.domain.errors import ApplianceError, LoadFailed, UnknownModel, UnknownVariant
from appliance.domain.events import EventSink
from appliance.domain.trial import Trial, TrialRules, Verdict
from appliance.log import get as get_log
from appliance.modelstore import arrays
from appliance.modelstore.importing.child import Stages
from appliance.modelstore.orders import PIXELS, Size, TrialOrder, TrialRequest, Tried
from appliance.modelstore.store.store import Store
from appliance.tasks.trial_sample import TensorsAsked, TrialSample

log = get_log("trials")
GATHER_NS = 5 * NS_PER_S
"""Nanoseconds from the first request that is kept to the run of all requests that came meanwhile. For several requests
loading the variant is worth its time.
"""
WALL_S = 60.0
FAILED_CPU_S = 3.0
"""Processor seconds that count for a trial that failed, by default the next trial begins a minute later."""
BASE_BYTES = 128 * 2**20
"""Bytes of the process that runs a variant, and of the process that it is forked from, together."""
_UNMEASURED_FACTOR = 4
"""Bytes assumed per byte of file until the variant is measured."""


class Samples(Protocol):
    """Requests that are kept for trials."""

    async def some(self) -> None:
        """Return when there is a sample."""
        ...

    def take(self) -> list[TrialSample]:
        """Return the samples of one trial, and keep them no longer; return none where all were too old."""
        ...


@dataclass(frozen=True, slots=True)
class TrialPorts:
    """Parts of the box that trials ask."""

    samples: Samples
    is_idle: Callable[[], bool]
    """Return whether a request that came now would wait for nothing."""
    free_bytes: Callable[[], int]
    events: EventSink


class Trials:
    """Trials of variants on kept requests; `run` goes on in the background. Event-loop thread only."""

    def __init__(self, store: Store, stages: Stages, ports: TrialPorts, limits: ChildLimits, core_share: float) -> None:
        """Take `core_share`: the processor time that trials may take, as a share of one core."""
        self._store = store
        self._clock = store.clock
        self._stages = stages
        self._ports = ports
        self._limits = replace(limits, nice=19, wall_s=WALL_S, cpu_s=int(WALL_S))
        self._core_share = core_share
        self._rules = TrialRules()

    async def run(self) -> None:
        """Try the requests that are kept, for ever."""
        while True:
            await self._ports.samples.some()
            await self._clock.sleep_until_ns(self._clock.now_ns() + GATHER_NS)
            samples = self._ports.samples.take()
            if not samples or not self._may_begin(samples[0].beside):
                continue
            start_ns = self._clock.now_ns()
            cpu_s = await self.carry_out(samples)
            await self._clock.sleep_until_ns(start_ns + int(cpu_s / self._core_share * NS_PER_S))

    def _may_begin(self, variant: Variant) -> bool:
        profile = variant.profile
        need = _UNMEASURED_FACTOR * variant.size_bytes if profile is None else profile.peak_bytes
        return self._ports.is_idle() and self._ports.free_bytes() >= need + BASE_BYTES

    async def carry_out(self, samples: Sequence[TrialSample]) -> float:
        """Run the samples and count their agreements; return the processor seconds that this took."""
        first = samples[0]
        before_s = self._stages.cpu_s
        try:
            model = await self._store.models.get(first.model_id)
            order = await asyncio.to_thread(self._order, model, samples)
        except (UnknownModel, LoadFailed):  # deleted meanwhile, or damaged
            return 0.0
        try:
            tried = await self._stages.run(order, limits=self._limits)
        except ApplianceError as error:  # it says nothing of the answers: the box may have run out of memory
            log.info("trial failed", variant_id=first.beside.id, reason=str(error))
            return FAILED_CPU_S
        with suppress(UnknownModel, UnknownVariant):
            await self._count(first.answered if first.beside.is_original else first.beside.id, tried)
        return tried.cpu_s + max(0.0, self._stages.cpu_s - before_s)

    def _order(self, model: Model, samples: Sequence[TrialSample]) -> TrialOrder:
        """Return the order for the child. This reads and packs, so it runs in a thread. Raises: LoadFailed."""
        variant = samples[0].beside
        files = tuple(map(str, self._store.blobs.files(variant.content_sha256)))
        return TrialOrder(
            model=files[0],
            files=files,
            inputs=variant.inputs,
            outputs=variant.outputs,
            size=Size(variant.height, variant.width) if variant.height and variant.width else None,
            task=model.task,
            requests=tuple(_request(sample) for sample in samples),
            assets={name: str(self._store.blobs.path(sha256)) for name, sha256 in model.assets.items()},
            shape_max=variant.shape_max or {},
            is_original=variant.is_original,
        )

    async def _count(self, variant_id: str, tried: Tried) -> None:
        """Store the standing of the trial after these agreements. Raises: UnknownVariant, UnknownModel."""
        variant = await self._store.models.variant(variant_id)
        before = variant.accuracy
        if before is None:
            return
        model = await self._store.models.get(variant.model_id)
        promised = model.promised(variant)
        begun = Trial() if promised is None else Trial(verdict=Verdict.PROMOTED, promised=promised)
        was = before.trial or begun
        trial = was
        for comparison in tried.comparisons:
            trial = trial.counting(comparison, self._rules)
            if trial.verdict is not was.verdict:
                break
        if trial == was:
            return
        accuracy = replace(before, trial=trial)
        if trial.verdict is not was.verdict or before.evidence in (Evidence.TRAFFIC, Evidence.DISAGREED):
            original = None if model.original is None else model.original.accuracy
            accuracy = _judged(before, trial, tried.metric, original)
        if trial.verdict is not was.verdict:
            self._tell(variant, trial, was)
        await self._store.models.set_accuracy(variant.id, accuracy)

    def _tell(self, variant: Variant, trial: Trial, was: Trial) -> None:
        tenant, _, model = variant.model_id.partition("/")
        shown = trial if trial.samples else was
        low, high = shown.interval
        facts = {
            "tenant": tenant,
            "model": model,
            "variant": variant.name,
            "samples": shown.samples,
            "agreement": round(shown.agreement, 4),
            "interval": [round(low, 4), round(high, 4)],
        }
        words = {
            Verdict.PROMOTED: "variant verified by requests",
            Verdict.DISMISSED: "variant dismissed by requests",
            Verdict.RUNNING: "variant drifted",
        }
        self._ports.events.emit(words[trial.verdict], **facts)


def _judged(before: Accuracy, trial: Trial, metric: str, original: Accuracy | None) -> Accuracy:
    """Return the accuracy of a variant that has a new verdict, or has lost its verdict: what its trial has found.

    Where the accuracy of the original was measured on labels, that of the variant is its agreement times this.
    """
    low, _ = trial.interval
    on_labels = original if original is not None and original.against == "labels" else None
    return Accuracy(
        points(round(trial.agreement * (1.0 if on_labels is None else on_labels.share), 6)),
        metric or before.metric if on_labels is None else on_labels.metric,
        "fp32" if on_labels is None else "labels",
        trial.samples,
        f"{trial.samples} requests, against the answers of the original",
        evidence=Evidence.TRAFFIC if trial.verdict is Verdict.PROMOTED else Evidence.DISAGREED,
        loss_points=points(round(1.0 - low, 6)),
        trial=trial,
    )


def _request(sample: TrialSample) -> TrialRequest:
    asked = sample.asked
    if isinstance(asked, TensorsAsked):
        return TrialRequest(inputs=_packed(asked.inputs), outputs=_packed(asked.outputs))
    pixels = asked.media.pixels
    return TrialRequest(
        body=base64.b64encode(asked.media.body).decode(),
        content_type=asked.media.content_type,
        pixels="" if pixels is None else _packed({PIXELS: pixels.array}),
        width=0 if pixels is None else pixels.width,
        height=0 if pixels is None else pixels.height,
        read=asked.body,
    )


def _packed(tensors: Mapping[str, np.ndarray]) -> str:
    return base64.b64encode(arrays.packed(tensors)).decode()
