"""What a variant costs on this machine: its prepared forms, then its profile with the form that will serve.

A prepared form that does not load or run (it may even crash) is given up here, in the measuring child, before serving
could meet it.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

from appliance.domain.catalogue import Profile, TaskSpec, Variant
from appliance.domain.errors import ApplianceError, LoadFailed, RunFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.modelstore.importing.cases import Axes, case_lists
from appliance.modelstore.importing.tools import Tools
from appliance.modelstore.store.disk import file_size


async def profiled(tools: Tools, variant: Variant, axes: Axes, task: TaskSpec, source: Path) -> Profile:
    """Prepare for every kind of processor, profile on each; returns the profile of the first.

    `source` is the variant's content, wherever it lies now. Raises: LoadFailed, RunFailed, StorageFull.
    """
    profiles = [await _profiled_on(tools, processor, variant, axes, task, source) for processor in _by_kind(tools)]
    return profiles[0]


def _by_kind(tools: Tools) -> list[ProcessorDescription]:
    first: dict[str, ProcessorDescription] = {}
    for processor in tools.processors:
        first.setdefault(processor.kind, processor)
    return list(first.values())


async def _profiled_on(
    tools: Tools, processor: ProcessorDescription, variant: Variant, axes: Axes, task: TaskSpec, source: Path
) -> Profile:
    form = await tools.builds.prepare(tools.measure, variant.content_sha256, source, processor)
    try:
        profile = await _profile(tools, processor, variant, axes, task, form)
        await tools.builds.keep(form)
        return profile
    except (LoadFailed, RunFailed) as error:
        if not form.optimised:
            raise
        await tools.builds.reject(form, str(error))
    finally:
        await asyncio.shield(tools.builds.discard(form))
    plain = PreparedForm(form.build_id, str(source), await asyncio.to_thread(file_size, source), optimised=False)
    return await _profile(tools, processor, variant, axes, task, plain)


async def _profile(
    tools: Tools, processor: ProcessorDescription, variant: Variant, axes: Axes, task: TaskSpec, form: PreparedForm
) -> Profile:
    """Raises: LoadFailed; RunFailed when it runs at no length worth trying."""
    failure: ApplianceError = RunFailed(variant_id=variant.id, reason="there is nothing to run it with")
    lists = case_lists(variant, axes, task)
    while (cases := await asyncio.to_thread(next, lists, None)) is not None:
        try:
            return _plausible(await tools.measure.profile(form, processor.name, cases), variant)
        except RunFailed as error:
            failure = error
    raise failure


def _plausible(profile: Profile, variant: Variant) -> Profile:
    """A build takes at least the bytes of its weights, whatever a measurement on a busy machine has seen."""
    resident = max(profile.resident_bytes, variant.size_bytes)
    return replace(profile, resident_bytes=resident, peak_bytes=max(profile.peak_bytes, resident))
