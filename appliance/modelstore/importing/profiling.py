"""What a variant costs on this machine: its prepared forms, then its profile with the form that will serve.

A prepared form that does not load or run (it may even crash) is given up here, in the measuring child, before serving
could meet it.
"""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.domain.catalogue import Profile, RunBound, Shapes, TaskSpec, Variant
from appliance.domain.errors import ApplianceError, BadMetadata, LoadFailed, RunFailed
from appliance.domain.hardware import Growth, PreparedForm, ProcessorDescription
from appliance.modelstore.importing.cases import Axes, case_lists
from appliance.modelstore.importing.child import run_order
from appliance.modelstore.importing.growth import allowed, growth
from appliance.modelstore.importing.tools import Tools
from appliance.modelstore.orders import Reviewed, ReviewOrder, Size
from appliance.modelstore.store.disk import file_size


@dataclass(frozen=True, slots=True)
class Content:
    """A file whose variants are to be profiled."""

    source: Path
    """Where it lies now."""
    reviewed: Reviewed
    full: Size | None
    """The largest of its rungs; None where it has no ladder."""
    grown: Profile | None = None
    """Of a rung of the same model whose largest shapes were measured; they are those of all its rungs."""


async def reviewed_file(tools: Tools, source: Path, scratch: Path) -> Reviewed:
    """Look for operators that must not run inside the service; a file that cannot be reviewed has a hazard."""
    try:
        return await run_order(ReviewOrder(str(source)), limits=tools.options.limits, scratch=scratch)
    except ApplianceError as error:
        return Reviewed((f"it could not be reviewed: {error}",))


async def profiled(tools: Tools, variant: Variant, axes: Axes, task: TaskSpec, content: Content) -> Variant:
    """Prepare for every kind of processor, profile on each; returns the variant with the profile of the first.

    Raises: LoadFailed, RunFailed, StorageFull; BadMetadata where it does not run at the largest shapes asked for.
    """
    profiles = [await _profiled_on(tools, processor, variant, axes, task, content) for processor in _by_kind(tools)]
    profile = profiles[0]
    largest = allowed(profile.runs[-1].shapes, task)
    batch_max = _batch_of(variant, axes, largest)
    fitting = tuple(row for row in profile.latencies if batch_max is None or row.batch <= batch_max)
    return replace(variant, profile=replace(profile, latencies=fitting), shape_max=largest)


def _batch_of(variant: Variant, axes: Axes, largest: Shapes) -> int | None:
    """Items of the largest run; None where no axis counts them."""
    places = ((tensor.name, axes.get(tensor.name, ())) for tensor in variant.inputs)
    return min((largest[name][roles.index("batch")] for name, roles in places if "batch" in roles), default=None)


def _by_kind(tools: Tools) -> list[ProcessorDescription]:
    first: dict[str, ProcessorDescription] = {}
    for processor in tools.processors:
        first.setdefault(processor.kind, processor)
    return list(first.values())


async def _profiled_on(
    tools: Tools, processor: ProcessorDescription, variant: Variant, axes: Axes, task: TaskSpec, content: Content
) -> Profile:
    source = content.source
    form = await tools.builds.prepare(tools.measure, variant.content_sha256, source, processor)
    try:
        profile = await _profile(tools, processor, variant, axes, task, content, form)
        await tools.builds.keep(form)
        return profile
    except (LoadFailed, RunFailed) as error:
        if not form.optimised:
            raise
        await tools.builds.reject(form, str(error))
    finally:
        await asyncio.shield(tools.builds.discard(form))
    plain = PreparedForm(form.build_id, str(source), await asyncio.to_thread(file_size, source), optimised=False)
    return await _profile(tools, processor, variant, axes, task, content, plain)


async def _profile(
    tools: Tools,
    processor: ProcessorDescription,
    variant: Variant,
    axes: Axes,
    task: TaskSpec,
    content: Content,
    form: PreparedForm,
) -> Profile:
    """Raises: LoadFailed; RunFailed when it runs at no length worth trying; BadMetadata."""
    failure = RunFailed(variant_id=variant.id, reason="there is nothing to run it with")
    lists = case_lists(variant, axes, task)
    while (cases := await asyncio.to_thread(next, lists, None)) is not None:
        base = {name: array.shape for name, array in cases[0].inputs.items()}
        grown = content.grown
        try:
            if grown is not None and grown.processor == processor.name:
                plan = Growth(hazards=grown.hazards or ())
                found = await tools.measure.profile(form, processor.name, cases, plan)
                found = replace(found, runs=(*found.runs, *(run for run in grown.runs if _holds(run, base))))
            else:
                plan = growth(base, variant, axes, task, content.full, content.reviewed)
                found = await tools.measure.profile(form, processor.name, cases, plan)
            # The child has run the graph: what it leaves out of the review's findings is not forgotten.
            hazards = tuple(dict.fromkeys((*plan.hazards, *(found.hazards or ()))))
            return _plausible(replace(found, hazards=hazards), variant)
        except RunFailed as error:
            failure = error
    if task.shape_max:
        raise BadMetadata(reason=f"'shape_max' cannot be measured: {failure.reason}; ask for less")
    raise failure


def _holds(run: RunBound, base: Shapes) -> bool:
    """Whether the shapes of `base` lie within those of a run."""
    return all(size <= most for name, shape in base.items() for size, most in zip(shape, run.shapes[name], strict=True))


def _plausible(profile: Profile, variant: Variant) -> Profile:
    """A build takes at least the bytes of its weights, whatever a measurement on a busy machine has seen."""
    resident = max(profile.resident_bytes, variant.size_bytes)
    return replace(profile, resident_bytes=resident, peak_bytes=max(profile.peak_bytes, resident))
