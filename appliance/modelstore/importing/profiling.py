"""What a variant costs on this machine: its prepared forms, then its profile with the form that will serve; on the
first kind of processor before it serves, on the others afterwards.

A prepared form that does not load or run (it may even crash) is given up here, in the measuring child, before serving
could meet it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.domain.catalogue import Evidence, Precision, Profile, RunBound, Shapes, TaskSpec, Variant
from appliance.domain.errors import ApplianceError, BadMetadata, LoadFailed, RunFailed
from appliance.domain.hardware import Growth, PreparedForm, ProcessorDescription, Reference
from appliance.domain.names import build_id
from appliance.log import get as get_log
from appliance.modelstore.importing.cases import Axes, case_lists
from appliance.modelstore.importing.growth import allowed, growth
from appliance.modelstore.importing.tools import Tools
from appliance.modelstore.orders import Reviewed, ReviewOrder, Size
from appliance.modelstore.store.disk import file_size

log = get_log("profiling")
DIFFERENCE_MAX: Mapping[Precision, float] = {Precision.INT8: 0.1, Precision.FP16: 0.01}
"""Of the norm of its outputs: what kinds of processors may compute differently. A quantized network rounds to another
step here and there; how accurate it is was measured on the first kind.
"""
DIFFERENCE_MAX_OTHERS = 1e-3
ELSEWHERE_DIFFERENCE_MAX = 0.01
"""The same of a whole network on another kind, in its own number format or a smaller one: kernels that add up in
another order, or convolve by transforms, are some thousandths apart in networks of many layers.
"""
REDUCED_GAIN = 0.9
"""It serves where its runs take no more than this share of those in the network's own: less is measuring noise."""


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


async def reviewed_file(tools: Tools, order: ReviewOrder, scratch: Path) -> Reviewed:
    """Look for operators that must not run inside the service, and for rows that influence one another; a file that
    cannot be reviewed has a hazard.
    """
    try:
        return await tools.stages.run(order, limits=tools.options.limits, scratch=scratch)
    except ApplianceError as error:
        return Reviewed((f"it could not be reviewed: {error}",), dependence="it could not be reviewed")


async def profiled(tools: Tools, variant: Variant, axes: Axes, task: TaskSpec, content: Content) -> Variant:
    """Prepare for the first kind of processor, profile there; returns the variant with that profile.

    Raises: LoadFailed, RunFailed, StorageFull; BadMetadata where it does not run at the largest shapes asked for.
    """
    profile = await _profiled_on(tools, tools.processors[0], variant, axes, task, content)
    largest = allowed(profile.runs[-1].shapes, task)
    batch_max = _batch_of(variant, axes, largest)
    fitting = tuple(row for row in profile.latencies if batch_max is None or row.batch <= batch_max)
    rows_max = profile.shared_rows_max if batch_max is None else min(profile.shared_rows_max, batch_max)
    if content.reviewed.dependence:
        log.info("rows share no runs", variant_id=variant.id, reason=content.reviewed.dependence)
        rows_max = 1
    profile = replace(profile, latencies=fitting, shared_rows_max=rows_max)
    return replace(variant, profile=profile, shape_max=largest)


def _batch_of(variant: Variant, axes: Axes, largest: Shapes) -> int | None:
    """Items of the largest run; None where no axis counts them."""
    places = ((tensor.name, axes.get(tensor.name, ())) for tensor in variant.inputs)
    return min((largest[name][roles.index("batch")] for name, roles in places if "batch" in roles), default=None)


async def profiled_elsewhere(
    tools: Tools,
    processor: ProcessorDescription,
    measured: Sequence[tuple[Variant, TaskSpec, Axes]],
    source: Path,
    on_stage: Callable[[str], None],
    original_sha256: str | None = None,
) -> list[Variant]:
    """Prepare a content that was profiled for another kind of processor, and profile each of its variants there;
    `on_stage` is told `compiling`, which takes minutes for some, and then `measuring`. `original_sha256`: of what a
    quantized content was made of.

    Returns them with what was found: nothing of any where one cannot be run there, or computes something else; the
    form is given up then. Raises: StorageFull.
    """
    variants = [variant for variant, _task, _axes in measured]
    content = variants[0].content_sha256
    on_stage("compiling")
    form = await tools.builds.prepare(tools.measure, content, source, processor)
    try:
        if not form.optimised:  # it would be compiled at each load
            return [_elsewhere(variant, processor.kind, None) for variant in variants]
        on_stage("measuring")
        first = tools.processors[0].kind
        reference = Reference(await tools.builds.open_build(build_id(content, first)), DIFFERENCE_MAX_OTHERS)
        if original_sha256 is not None:
            original = await tools.builds.open_build(build_id(original_sha256, first))
            reference = replace(reference, original=original)
        found = await _all_elsewhere(tools, processor, measured, form, reference)
        on_samples = all(v.accuracy is not None and v.accuracy.evidence is Evidence.SAMPLES for v in variants)
        is_tried = bool(processor.reduced) and on_samples  # noise alone would not show what fewer bits lose
        quicker = await _reduced(tools, processor, measured, source, reference, found) if is_tried else None
        if quicker is None:
            await tools.builds.keep(form)
        else:
            found = quicker
    except (LoadFailed, RunFailed) as error:
        await tools.builds.reject(form, error.reason)
        return [_elsewhere(variant, processor.kind, None) for variant in variants]
    finally:
        await asyncio.shield(tools.builds.discard(form))
    return [_elsewhere(variant, processor.kind, profile) for variant, profile in zip(variants, found, strict=True)]


async def _all_elsewhere(
    tools: Tools,
    processor: ProcessorDescription,
    measured: Sequence[tuple[Variant, TaskSpec, Axes]],
    form: PreparedForm,
    reference: Reference,
) -> list[Profile]:
    """Raises: LoadFailed, RunFailed."""
    return [
        await _profile_elsewhere(tools, processor, variant, axes, task, form, reference)
        for variant, task, axes in measured
    ]


async def _reduced(
    tools: Tools,
    processor: ProcessorDescription,
    measured: Sequence[tuple[Variant, TaskSpec, Axes]],
    source: Path,
    reference: Reference,
    found: Sequence[Profile],
) -> list[Profile] | None:
    """Keep the form that computes in the processor's smaller number format, and return its profiles, where it is
    noticeably quicker than what was `found`, and computes nearly the same. Raises: StorageFull.
    """
    content = measured[0][0].content_sha256
    try:
        form = await tools.builds.prepare_reduced(tools.measure, content, source, processor)
    except LoadFailed as error:
        log.info("not computed in fewer bits", content=content, format=processor.reduced, reason=error.reason)
        return None
    if form is None:
        return None
    try:
        reduced = await _all_elsewhere(tools, processor, measured, form, reference)
        if _run_ms(reduced) > REDUCED_GAIN * _run_ms(found):
            return None
        await tools.builds.keep(form)
        return reduced
    except (LoadFailed, RunFailed) as error:
        log.info("not computed in fewer bits", build_id=form.build_id, format=processor.reduced, reason=str(error))
        return None
    finally:
        await asyncio.shield(tools.builds.discard(form))


def _run_ms(profiles: Sequence[Profile]) -> float:
    """Medians of runs of one item, of all variants together."""
    return sum(profile.p50_ms() for profile in profiles)


def _elsewhere(variant: Variant, kind: str, profile: Profile | None) -> Variant:
    others = tuple(one for one in variant.other_profiles if one.kind != kind)
    return replace(variant, other_profiles=others if profile is None else (*others, profile))


async def _profile_elsewhere(
    tools: Tools,
    processor: ProcessorDescription,
    variant: Variant,
    axes: Axes,
    task: TaskSpec,
    form: PreparedForm,
    reference: Reference,
) -> Profile:
    """Raises: LoadFailed, RunFailed."""
    assert variant.profile is not None, "it was measured on the first kind"
    difference_max = DIFFERENCE_MAX.get(variant.precision, ELSEWHERE_DIFFERENCE_MAX)
    same = replace(reference, difference_max=difference_max)
    batches = {row.batch for row in variant.profile.latencies}
    failure = RunFailed(variant_id=variant.id, reason="there is nothing to run it with")
    lists = case_lists(variant, axes, task)
    while (cases := await asyncio.to_thread(next, lists, None)) is not None:
        try:
            found = await tools.measure.profile(form, processor.name, cases, reference=same)
            latencies = tuple(row for row in found.latencies if row.batch in batches)
            rows_max = min(found.shared_rows_max, max(batches)) if variant.profile.shared_rows_max > 1 else 1
            found = replace(found, latencies=latencies, shared_rows_max=rows_max)
            return _plausible(replace(found, hazards=variant.profile.hazards), variant)
        except RunFailed as error:
            failure = error
    raise failure


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
