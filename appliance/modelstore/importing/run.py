"""One import from its upload to its last variant: what is done in which order.

A variant's row is written when the variant is finished (the original's earlier, so that the model serves at once), so
after a crash the run starts over from the upload and passes by whatever has a row. Children do all that touches the
uploaded file.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from appliance.domain.accuracy import CALIBRATION_SAMPLES_MIN
from appliance.domain.catalogue import Evidence, Model, Precision, TaskSpec, Variant
from appliance.domain.errors import ApplianceError, BadModel, StorageFull
from appliance.domain.jobs import ImportRequest
from appliance.domain.states import VariantState
from appliance.modelstore.importing.fair_slots import Slot
from appliance.modelstore.importing.metadata import settled_precisions, settled_task, stated_task
from appliance.modelstore.importing.profiling import reviewed_file
from appliance.modelstore.importing.progress import Progress
from appliance.modelstore.importing.tools import Tools
from appliance.modelstore.importing.variant_maker import Subject, VariantMaker
from appliance.modelstore.orders import (
    Inspection,
    InspectOrder,
    MadeVariant,
    Reviewed,
    ReviewOrder,
    Unpacked,
    UnpackOrder,
)

_UNVERIFIED = {
    Evidence.NOISE: "no samples came with it",
    Evidence.CALIBRATION: f"of fewer than {CALIBRATION_SAMPLES_MIN} calibration samples none is held out to verify it",
}


class ImportRun:
    """Carries out one job in its scratch folder. What `run` raises fails the job."""

    def __init__(self, tools: Tools, request: ImportRequest, source: Path, progress: Progress, slot: Slot) -> None:
        self._tools = tools
        self._store = tools.store
        self._request = request
        self._source = source
        self._folder = source.parent
        self._progress = progress
        self._slot = slot
        self._model_id = progress.job.model_id
        self._notes: list[str] = []

    async def run(self) -> tuple[str, str]:
        """Returns (summary, what single variants failed of).

        Raises: BadInput and its kin, StorageFull, QuotaExceeded.
        """
        unpacked = await self._unpack()
        if self._request.repairs:
            await self._repair(unpacked)
        elif self._request.variant is None:
            await self._whole_model(unpacked)
        else:
            await self._own_variant(unpacked, self._request.variant)
        model = await self._store.models.get(self._model_id)
        made = [one for one in model.variants if self._request.variant in (None, one.name)]
        if not any(one.servable for one in made):
            raise BadModel(reason=made[0].reason if made else "no variant could be made")
        failed = [f"{one.name}: {one.reason}" for one in model.variants if one.state is VariantState.FAILED]
        return self._summary(model), "; ".join(failed)

    def _summary(self, model: Model) -> str:
        names = {state: [one.name for one in model.variants if one.state is state] for state in VariantState}
        parts = [f"{state.value}: {', '.join(found)}" for state, found in names.items() if found]
        unused = next((one.accuracy.unused for one in model.variants if one.accuracy and one.accuracy.unused), "")
        doubtful = {
            evidence: ", ".join(
                one.name for one in model.variants if one.state is VariantState.READY and one.evidence is evidence
            )
            for evidence in _UNVERIFIED
        }
        whys = _UNVERIFIED | ({Evidence.NOISE: unused} if unused else {})
        told = [f"unverified, because {whys[evidence]}: {names}" for evidence, names in doubtful.items() if names]
        if unused and not doubtful[Evidence.NOISE]:
            told.append(unused)
        return ". ".join(["; ".join(parts), *told, *self._notes])

    # -- the two kinds of import ---------------------------------------------------------------------------------------

    async def _whole_model(self, unpacked: Unpacked) -> None:
        wanted = settled_precisions(self._request, unpacked)
        inspection = await self._inspect(unpacked, stated_task(self._request, unpacked))
        task = await asyncio.to_thread(settled_task, self._request, unpacked, inspection)
        await self._keep_task(task, unpacked)
        maker = self._maker(unpacked, inspection, task, inspection)
        await maker.put_original(inspection.original)
        await self._slot.give_way()  # from here on the model serves
        own = inspection.precision
        await self._progress.stage(own.value, 12, 16)
        original = await maker.make(own)
        rungs = original.variants
        if not rungs:
            raise BadModel(reason="the original cannot be served")
        await self._progress.stage(f"{own.value} accuracy and profile", 16, 30)
        await maker.measure_all(rungs, original.reviewed)
        precisions = [one for one in wanted if one is not own]
        share = 69 / max(1, len(precisions))
        for number, precision in enumerate(precisions):
            await self._slot.give_way()
            await self._progress.stage(precision.value, 30 + number * share, 30 + (number + 1) * share)
            await self._precision(maker, precision, rungs, original.reviewed)

    async def _repair(self, unpacked: Unpacked) -> None:
        """Bring back what the model lost to damage, and make anew what cannot be brought back; all else of it stays.

        Raises: BadModel when this is not the file that the model was made of.
        """
        inspection = await self._inspect(unpacked, stated_task(self._request, unpacked))
        model = await self._store.models.get(self._model_id)
        maker = self._maker(unpacked, inspection, model.task, inspection)
        own = inspection.precision
        await self._progress.stage(own.value, 12, 16)
        original = await maker.make(own)
        if not original.variants:
            raise BadModel(reason="the original cannot be served")
        digest = await maker.restore(original.variants[0])
        known = next((one for one in model.variants if one.is_original), None)
        if known is not None and not known.may_have_been(digest):
            raise BadModel(
                reason=f"model {model.name!r} is damaged, and this is not the file that it was made of: upload the "
                "same file with the same task and metadata, or delete the model first"
            )
        await self._put_assets(unpacked.assets)
        await maker.measure_all(original.variants, original.reviewed)
        lost = {one.precision for one in model.variants if one.is_damaged} - {own, Precision.OWN}
        for number, precision in enumerate(sorted(lost)):
            await self._slot.give_way()
            share = 69 / len(lost)
            await self._progress.stage(precision.value, 30 + number * share, 30 + (number + 1) * share)
            await self._precision(maker, precision, original.variants, original.reviewed)

    async def _precision(
        self, maker: VariantMaker, precision: Precision, originals: Sequence[MadeVariant], of_original: Reviewed
    ) -> None:
        """Make and measure one precision; a failure is that precision's alone, but for a full disk.

        Its child runs the graph before it reviews it, so what was found in the original holds for it, too.
        """
        finished = await maker.finished()
        if precision.value in finished and await self._is_over(precision, originals):
            return
        try:
            made = await maker.make(precision)
            if self._request.repairs and made.variants:
                await maker.restore(made.variants[0])
            await self._slot.give_way()
            await maker.measure_all(made.variants, of_original.joined(made.reviewed))
        except StorageFull:
            raise
        except ApplianceError as error:
            if precision.value not in await maker.finished(or_servable=True):
                await maker.put_failed(precision.value, precision, str(error))

    async def _is_over(self, precision: Precision, originals: Sequence[MadeVariant]) -> bool:
        """Whether a precision failed as a whole, or has every rung that the original has."""
        variants = {one.name: one for one in (await self._store.models.get(self._model_id)).variants}
        expected = {one.name.replace(one.precision.value, precision.value, 1) for one in originals}
        return variants[precision.value].state is VariantState.FAILED or expected <= variants.keys()

    async def _own_variant(self, unpacked: Unpacked, name: str) -> None:
        """A tenant's own variant: interchangeable with what is there, and measured like any other."""
        model = await self._store.models.get(self._model_id)
        original = next((one for one in model.variants if one.servable and one.content_sha256), None)
        inspection = reference = await self._inspect(unpacked, model.task)
        await self._slot.give_way()  # the model serves already
        if original is not None:
            _require_same_interface(inspection, original)
            files = await asyncio.to_thread(self._store.blobs.files, original.content_sha256)
            reference = replace(inspection, model=str(files[0]), files=tuple(map(str, files)))
        own = MadeVariant(
            name=name,
            precision=Precision.OWN,
            path=inspection.model,
            size_bytes=inspection.size_bytes,
            inputs=inspection.inputs,
            outputs=inspection.outputs,
            batch_max=inspection.batch_max,
        )
        maker = self._maker(unpacked, inspection, model.task, reference)
        await self._progress.stage(f"{name} accuracy and profile", 40, 99)
        review = ReviewOrder(own.path, own.inputs, inspection.axes, model.task, inspection.trial)
        await maker.measure_all([own], await reviewed_file(self._tools, review, self._folder))

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _unpack(self) -> Unpacked:
        await self._progress.stage("unpack", 0, 4)
        limits = self._tools.options.limits
        order = UnpackOrder(str(self._source), str(self._folder / "unpacked"), bytes_max=limits.file_bytes)
        return await self._tools.stages.run(
            order, limits=limits, on_progress=self._progress.within, scratch=self._folder
        )

    async def _inspect(self, unpacked: Unpacked, task: TaskSpec) -> Inspection:
        await self._progress.stage("inspect", 4, 12)
        options = self._tools.options
        order = InspectOrder(
            unpacked.model,
            str(self._folder / "inspected"),
            task,
            unpacked.calibration,
            unpacked.assets,
            options.ladder_max,
            options.batch_max,
        )
        limits = replace(options.limits, wall_s=options.inspect_wall_s)
        inspection = await self._tools.stages.run(
            order, limits=limits, on_progress=self._progress.within, scratch=self._folder
        )
        self._notes += inspection.notes
        return inspection

    async def _keep_task(self, task: TaskSpec, unpacked: Unpacked) -> None:
        """Store what serving needs besides the graph."""
        model = await self._store.models.get(self._model_id)
        if task != model.task:
            await self._store.models.update(self._model_id, task=task)
        await self._put_assets({name: path for name, path in unpacked.assets.items() if name not in model.assets})

    async def _put_assets(self, files: Mapping[str, str]) -> None:
        """Store files that serving needs beside the graph: name to path."""
        if files:
            stage = self._store.blobs.stage
            staged = {name: await asyncio.to_thread(stage, [Path(path)]) for name, path in files.items()}
            await self._store.models.put_assets(self._model_id, staged)

    def _maker(self, unpacked: Unpacked, inspection: Inspection, task: TaskSpec, reference: Inspection) -> VariantMaker:
        tenant, folder = self._request.tenant, self._folder
        subject = Subject(tenant, self._model_id, folder, unpacked, inspection, task, reference)
        return VariantMaker(self._tools, subject, self._progress, self._slot)


def _require_same_interface(inspection: Inspection, original: Variant) -> None:
    """Raises: BadModel unless requests made for `original` fit this file as well."""
    for what, mine, its in (
        ("inputs", inspection.inputs, original.inputs),
        ("outputs", inspection.outputs, original.outputs),
    ):
        if {one.name for one in mine} != {one.name for one in its}:
            names = ", ".join(sorted(one.name for one in its))
            raise BadModel(reason=f"a variant must have the same {what} as the model: {names}")
    types = {one.name: one.datatype for one in original.inputs}
    for tensor in inspection.inputs:
        if tensor.datatype != types[tensor.name]:
            raise BadModel(reason=f"input {tensor.name!r} is {tensor.datatype}; the model takes {types[tensor.name]}")
