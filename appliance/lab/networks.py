"""Networks of a scenario as the engine knows them: what a run takes on each processor, whole or in parts."""

from collections.abc import Mapping, Sequence

from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.lab.scenario import BoxProcessor, UnitGraph, VariantShape, latency_of, megabytes
from appliance.policies.dispatch.partition import Operator, units_of

INPUT, OUTPUT = "x", "y"
"""What every network takes, and what it gives."""

Table = Mapping[tuple[int, int], float]
"""(batch, concurrency) → ms."""


def kind_of(processor: BoxProcessor) -> str:
    """The name, where nothing is said."""
    return processor.kind or processor.name


def times_of(variant: VariantShape, processor: BoxProcessor) -> Table | None:
    """The whole network; None where the processor does not run all of it."""
    units = variant.units
    if not isinstance(units, UnitGraph):
        return latency_of(variant, processor)
    known = _written(units, processor)
    if not all(_runs(op.processors, processor) for op in units.ops):
        return None
    return {(1, 1): sum(known[op.name] for op in units.ops)}


def cut_of(variant: VariantShape, processors: Sequence[BoxProcessor]) -> Cut | None:
    """Into units, by the kinds of processors that run each operator, as written for the first of a kind; None where
    each kind runs all or nothing of it.
    """
    units = variant.units
    if not isinstance(units, UnitGraph):
        return None
    first, groups = _first_of_kind(processors), parts_of(units, processors)
    if len(groups) == 1:
        return None
    operators = [op for group in groups for op in group]
    place = {op.name: number for number, group in enumerate(groups) for op in group}
    read = {needed for op in operators for needed in op.inputs}
    parts = []
    for number, group in enumerate(groups):
        inputs = {needed for op in group for needed in op.inputs if place[needed] != number}
        if any(not op.inputs for op in group):
            inputs.add(INPUT)
        outputs = {
            op.name
            for op in group
            if any(op.name in other.inputs and place[other.name] != number for other in operators)
        }
        if any(op.name not in read for op in group):
            outputs.add(OUTPUT)
        share = len(group) / len(operators)
        size, peak = (megabytes(mb * share) for mb in (variant.size_mb, variant.peak_mb or variant.size_mb))
        asleep = None if variant.asleep_mb is None else megabytes(variant.asleep_mb * share)
        profiles = tuple(
            PartProfile(kind, (BatchTime(1, part_ms(units, group, one)),), True, size, peak, asleep)
            for kind, one in first.items()
            if kind in group[0].processors
        )
        parts.append(Part(len(group), {}, tuple(sorted(inputs)), tuple(sorted(outputs)), size, 0.0, 0, profiles))
    return Cut(dict.fromkeys(first, ""), tuple(parts))


def parts_of(units: UnitGraph, processors: Sequence[BoxProcessor]) -> list[list[Operator]]:
    """The units, in an order in which they can run."""
    first = _first_of_kind(processors)
    operators = [
        Operator(op.name, frozenset(kind for kind, one in first.items() if _runs(op.processors, one)), tuple(op.inputs))
        for op in units.ops
    ]
    return units_of(operators)


def part_ms(units: UnitGraph, part: Sequence[Operator], processor: BoxProcessor) -> float:
    """A run of some operators on a processor that has them all."""
    known = _written(units, processor)
    return sum(known[op.name] for op in part)


def _first_of_kind(processors: Sequence[BoxProcessor]) -> dict[str, BoxProcessor]:
    found: dict[str, BoxProcessor] = {}
    for one in processors:
        found.setdefault(kind_of(one), one)
    return found


def _written(units: UnitGraph, processor: BoxProcessor) -> Mapping[str, float]:
    return units.latency_ms.get(processor.name) or units.latency_ms.get(kind_of(processor)) or {}


def _runs(marks: Sequence[str], processor: BoxProcessor) -> bool:
    return processor.name in marks or kind_of(processor) in marks
