"""A network into parts, by children of an import: taken apart, asked about, cut. Knows no processors: which kinds run
an operator says who asks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.domain.catalogue import TaskSpec, Variant
from appliance.domain.errors import BadModel
from appliance.domain.hardware import MeasureCase
from appliance.modelstore import arrays
from appliance.modelstore.importing.cases import Axes, case_lists
from appliance.modelstore.importing.child import Stages
from appliance.modelstore.importing.tools import ImportOptions
from appliance.modelstore.orders import CutMade, CutOrder, Dissected, DissectOrder

KindsOf = Callable[[Dissected], Awaitable[tuple[tuple[str, ...], ...]]]
"""The kinds of processors that run each operator."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A network that is to be cut."""

    variant: Variant
    task: TaskSpec
    axes: Axes
    source: Path
    """Its file, as an import has made it."""


async def in_parts(
    whole: Whole,
    folder: Path,
    kinds_of: KindsOf,
    stages: Stages,
    options: ImportOptions,
    tables: Sequence[str] = (),
) -> tuple[CutMade, list[int]]:
    """The parts, as files in an empty folder, and the batches that they were run with. `tables`: kinds whose vendors'
    limits are looked up.

    Raises: BadModel where no inputs could be found that it runs with.
    """
    failure = BadModel(reason="there is nothing to run it with")
    lists = case_lists(whole.variant, whole.axes, whole.task)
    while (cases := await asyncio.to_thread(next, lists, None)) is not None:
        try:
            made = await _with_inputs(whole, folder, kinds_of, stages, options, tables, cases)
            return made, [case.batch for case in cases]
        except BadModel as error:  # perhaps it was not made for this length
            failure = error
    raise failure


async def _with_inputs(
    whole: Whole,
    folder: Path,
    kinds_of: KindsOf,
    stages: Stages,
    options: ImportOptions,
    tables: Sequence[str],
    cases: Sequence[MeasureCase],
) -> CutMade:
    if any(np.asarray(array).dtype.kind not in "biuf" for array in cases[0].inputs.values()):
        raise BadModel(reason="its inputs are texts")
    limits, scratch = options.limits, folder.parent
    feeds = [
        await asyncio.to_thread(arrays.save, folder / f"inputs{place}.npz", case.inputs)
        for place, case in enumerate(cases)
    ]
    order = DissectOrder(str(whole.source), str(folder), feeds[0], tuple(tables))
    found = await stages.run(order, limits=limits, scratch=scratch)
    cut = CutOrder(
        model=found.model,
        target=str(folder),
        operators=found.operators,
        kinds=await kinds_of(found),
        feeds=tuple(feeds),
        ops_min=options.part_ops_min,
        units_max=options.parts_max,
    )
    return await stages.run(cut, limits=limits, scratch=scratch)
