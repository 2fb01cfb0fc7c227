"""Makes the variants of one model: content into the blobs, accuracy, prepared form, profile, judgement, row.

Belongs to one import; knows what is finished from the store, so that an import that starts again passes by what it has.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.domain.accuracy import CALIBRATION_SAMPLES_MIN
from appliance.domain.catalogue import Accuracy, Evidence, Precision, Profile, TaskSpec, Variant
from appliance.domain.errors import LoadFailed, RunFailed
from appliance.domain.names import variant_id
from appliance.domain.states import VariantState
from appliance.log import get as get_log
from appliance.modelstore.importing.dominance import dominance
from appliance.modelstore.importing.fair_slots import Slot
from appliance.modelstore.importing.profiling import Content, profiled
from appliance.modelstore.importing.progress import Progress
from appliance.modelstore.importing.tools import Tools
from appliance.modelstore.orders import (
    Evaluated,
    EvaluateOrder,
    Inspection,
    Made,
    MadeVariant,
    MakeOrder,
    Reviewed,
    Unpacked,
)
from appliance.modelstore.store.blobs import Staged

log = get_log("importer")
FIDELITY = Accuracy(100.0, "fidelity", "fp32", 0, "it is the original")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is being imported.

    Accuracy is measured against `reference`, which is the inspected file itself but for own variants.
    """

    tenant: str
    model_id: str
    folder: Path
    """Scratch folder of the import."""
    unpacked: Unpacked
    inspection: Inspection
    task: TaskSpec
    reference: Inspection

    @property
    def is_first(self) -> bool:
        """Whether nothing else of the model serves, so that the file itself is what others are compared with."""
        return self.reference is self.inspection

    @property
    def held_out(self) -> tuple[str, ...]:
        """Calibration samples that verify what was calibrated with the others: every fourth, four at least.

        None where there are too few, and where labelled samples verify it.
        """
        paths = self.unpacked.calibration
        if self.unpacked.evaluation or len(paths) < CALIBRATION_SAMPLES_MIN:
            return ()
        count = max(CALIBRATION_SAMPLES_MIN // 2, len(paths) // 4)
        return tuple(paths[number * len(paths) // count] for number in range(count))

    @property
    def calibrating(self) -> tuple[str, ...]:
        """Calibration samples but those that are held out."""
        held_out = set(self.held_out)
        return tuple(path for path in self.unpacked.calibration if path not in held_out)


@dataclass(slots=True)
class _Content:
    """A made file on its way into the store; rungs of one precision share it."""

    sha256: str
    source: Path
    staged: Staged | None


class VariantMaker:
    """`make` a precision, then `measure_all` of its rungs; `put_original` in between for the very first."""

    def __init__(self, tools: Tools, subject: Subject, progress: Progress, slot: Slot) -> None:
        self._slot = slot
        self._tools = tools
        self._store = tools.store
        self._subject = subject
        self._progress = progress

    async def make(self, precision: Precision) -> Made:
        """The rungs of a precision as files in the scratch folder; none when it cannot be made, which is put on
        record.
        """
        subject, options = self._subject, self._tools.options
        order = MakeOrder(
            inspection=subject.inspection,
            task=subject.task,
            precision=precision,
            target=str(subject.folder / "made" / precision.value),
            calibration=subject.calibrating,
            assets=subject.unpacked.assets,
            calibration_samples_max=options.calibration_samples_max,
        )
        within = self._progress.part(0.0, 0.4)
        made = await self._tools.stages.run(order, limits=options.limits, on_progress=within, scratch=subject.folder)
        if not made.variants:
            await self.put_failed(precision.value, precision, made.reason or "it could not be made")
        return made

    async def put_original(self, made: MadeVariant) -> None:
        """Put the original into the store unmeasured: from here on the model serves.

        Raises: StorageFull, QuotaExceeded.
        """
        if made.name in await self.finished(or_servable=True):
            return
        async with self._content(made) as content:
            accuracy = None if self._subject.unpacked.evaluation else FIDELITY
            await self._put(self._variant(made, content.sha256, accuracy, None), content)

    async def measure_all(self, rungs: Sequence[MadeVariant], reviewed: Reviewed) -> None:
        """Measure accuracy, prepared form and profile of each rung that has no finished row. Before each rung, other
        imports may have the slot.

        What serves already shows its accuracy before its profile, which waits for the processors to be idle.

        Raises: StorageFull, QuotaExceeded.
        """
        finished = await self.finished()
        rungs = [rung for rung in rungs if rung.name not in finished]
        if not rungs:
            return
        evaluated = await self._evaluate(rungs)
        async with self._content(rungs[0]) as content:
            full = next(iter(self._subject.inspection.ladder), None)
            known = Content(content.source, reviewed, full)
            if content.staged is None and (variant := self._evaluated(rungs[0], content, evaluated, 0)) is not None:
                await self._put(variant, content)
            for number, rung in enumerate(rungs):
                await self._slot.give_way()
                self._progress.part(0.6, 1.0)(number / len(rungs), f"profile {rung.name}")
                profile = await self._measure(rung, content, known, evaluated, number)
                known = replace(known, grown=known.grown or profile)

    async def restore(self, made: MadeVariant) -> str:
        """Bring the file back to the variants of any model that lost it to damage; returns its digest.

        Raises: StorageFull.
        """
        staged = await asyncio.to_thread(self._store.blobs.stage, await self._files_of(made))
        try:
            await self._restored(staged.sha256, staged)
        finally:
            await asyncio.shield(asyncio.to_thread(self._store.blobs.discard, staged))
        return staged.sha256

    async def put_failed(self, name: str, precision: Precision, reason: str) -> None:
        """Keep on record what could not be made, and why."""
        id = variant_id(self._subject.model_id, name)
        model_id = self._subject.model_id
        variant = Variant(id, model_id, name, precision, "", 0, (), (), VariantState.FAILED, reason=reason)
        await self._store.models.put_variant(variant)

    async def finished(self, *, or_servable: bool = False) -> Collection[str]:
        """Names of variants that need no more work: failed for good, or profiled (or at least servable)."""
        model = await self._store.models.get(self._subject.model_id)
        return {
            one.name
            for one in model.variants
            if (one.state is VariantState.FAILED and not one.is_damaged)
            or (one.servable and (one.profile is not None or or_servable))
        }

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _evaluate(self, rungs: Sequence[MadeVariant]) -> Evaluated:
        subject, options = self._subject, self._tools.options
        order = EvaluateOrder(
            inspection=subject.reference,
            task=subject.task,
            variants=tuple(rungs),
            evaluation=subject.unpacked.evaluation,
            calibration=subject.unpacked.calibration,
            held_out=subject.held_out,
            assets=subject.unpacked.assets,
            samples_max=options.eval_samples_max,
        )
        within = self._progress.part(0.4, 0.6)
        return await self._tools.stages.run(order, limits=options.limits, on_progress=within, scratch=subject.folder)

    async def _measure(
        self, rung: MadeVariant, content: _Content, known: Content, evaluated: Evaluated, number: int
    ) -> Profile | None:
        """Finish one rung; returns its profile. What goes wrong with it alone is its own failure.

        Raises: BadMetadata.
        """
        variant = self._evaluated(rung, content, evaluated, number)
        if variant is None:
            await self.put_failed(rung.name, rung.precision, evaluated.reasons[number])
            return None
        try:
            subject = self._subject
            variant = await profiled(self._tools, variant, subject.inspection.axes, subject.task, known)
        except (LoadFailed, RunFailed) as error:
            variant = replace(variant, state=VariantState.FAILED, reason=str(error))
        await self._put(variant, content)
        return variant.profile

    def _evaluated(self, rung: MadeVariant, content: _Content, evaluated: Evaluated, number: int) -> Variant | None:
        """The rung as it was evaluated, without a profile; None where it has no accuracy that it could serve with."""
        accuracy = evaluated.accuracies[number]
        if accuracy is None and not rung.is_original:
            return None
        if accuracy is not None and (unused := self._subject.unpacked.unused):
            accuracy = replace(accuracy, unused="; ".join(filter(None, (unused, accuracy.unused))))
        if accuracy is not None and self._subject.is_first and rung.precision is Precision.OWN:
            accuracy = replace(accuracy, evidence=Evidence.ORIGINAL)
        variant = self._variant(rung, content.sha256, accuracy or FIDELITY, None)
        return replace(variant, padding=evaluated.paddings[number])

    @asynccontextmanager
    async def _content(self, made: MadeVariant) -> AsyncIterator[_Content]:
        """Bring a made file into the blobs, unpublished until its first row. Raises: StorageFull, QuotaExceeded."""
        model = await self._store.models.get(self._subject.model_id)
        stored = next((one for one in model.variants if one.name == made.name and one.servable), None)
        if stored is not None:  # the original, which was put in early
            yield _Content(stored.content_sha256, Path(made.path), None)
            return
        await self._store.stored_bytes.require(self._subject.tenant, made.size_bytes)
        staged = await asyncio.to_thread(self._store.blobs.stage, await self._files_of(made))
        try:
            yield _Content(staged.sha256, Path(made.path), staged)
        finally:
            await asyncio.shield(asyncio.to_thread(self._store.blobs.discard, staged))

    async def _files_of(self, made: MadeVariant) -> list[Path]:
        inspection = self._subject.inspection
        if made.path == inspection.model:
            return [Path(one) for one in inspection.files]
        return await asyncio.to_thread(_files, made.path)

    async def _restored(self, sha256: str, staged: Staged | None = None) -> None:
        """Variants that had lost this content serve again, and are judged anew."""
        restored = await self._store.models.restore(sha256, staged)
        for variant in restored:
            self._tools.builds.put(variant)
        for id in sorted({variant.model_id for variant in restored}):
            log.info("content restored", sha256=sha256, model_id=id)
            variants = (await self._store.models.get(id)).variants
            judged = dominance(variants, self._tools.options.accuracy_floor)
            for one in variants:
                found = judged.get(one.id)
                if found and (found.state, found.reason) != (one.state, one.reason):
                    await self._store.models.set_variant_state(one.id, found.state, found.reason)

    async def _put(self, variant: Variant, content: _Content) -> None:
        """Write a variant with its judgement, and the judgements that it changes for others."""
        model = await self._store.models.get(self._subject.model_id)
        others = [one for one in model.variants if one.id != variant.id]
        judged = dominance([*others, variant], self._tools.options.accuracy_floor)
        if mine := judged.get(variant.id):
            variant = replace(variant, state=mine.state, reason=mine.reason)
        staged, content.staged = content.staged, None
        await self._store.models.put_variant(variant, staged, self._subject.inspection.axes)
        self._tools.builds.put(variant)
        await self._restored(content.sha256)
        for other in others:
            found = judged.get(other.id)
            if found and (found.state, found.reason) != (other.state, other.reason):
                await self._store.models.set_variant_state(other.id, found.state, found.reason)

    def _variant(self, made: MadeVariant, sha256: str, accuracy: Accuracy | None, profile: Profile | None) -> Variant:
        model_id = self._subject.model_id
        return Variant(
            id=variant_id(model_id, made.name),
            model_id=model_id,
            name=made.name,
            precision=made.precision,
            content_sha256=sha256,
            size_bytes=made.size_bytes,
            inputs=made.inputs,
            outputs=made.outputs,
            height=made.height,
            width=made.width,
            accuracy=accuracy,
            profile=profile,
            batch_max=made.batch_max,
            is_original=made.is_original,
            inspected_ms=self._subject.inspection.run_ms if made.is_original else None,
        )


def _files(path: str) -> list[Path]:
    """A made model and its external data, which lies alone with it in a folder."""
    model = Path(path)
    return [model, *sorted(other for other in model.parent.iterdir() if other != model and other.is_file())]
