"""Fewer units than operator support alone gives: islands join a neighbour, and then the cheapest pairs join.

A unit for each change of support would be a hundred in a quantised network, and each is a run with its copies. What is
joined runs only where all of it does, so a join takes work away from processors; that work is what it costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.policies.dispatch.partition import Operator, units_of

ISLAND_SHARE_MAX = 0.02
"""Of the network's work: a larger unit is worth its copies, however few operators it has."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """`operator`: the unit as one operator; `ops`: those in it, in an order in which they can run."""

    operator: Operator
    ops: tuple[Operator, ...]
    work: float

    @property
    def processors(self) -> frozenset[str]:
        return self.operator.processors


def joined(
    operators: Sequence[Operator], work: Mapping[str, float], ops_min: int, units_max: int
) -> list[tuple[Operator, ...]]:
    """Units in an order in which they can run; the operators in them have the processors that the unit has.

    `work`: of each operator, in any measure. Islands are units of fewer than `ops_min` operators (BA-07; 1: there are
    none) and of next to no work, with a neighbour whose processors are some of theirs: they join it, those of least
    work first, which costs only what they are. Then, while there are more than `units_max` (0: no bound), the pair
    joins that loses least work. Ties go to the smaller work, then to the order.

    Raises: Uncuttable, for a cycle.
    """
    units = _united([_Unit(op, (op,), work[op.name]) for op in operators])
    work_max = ISLAND_SHARE_MAX * sum(work[op.name] for op in operators)
    while True:
        pair = _island(units, ops_min, work_max)
        if pair is None and units_max and len(units) > units_max:
            pair = _cheapest(units)
        if pair is None:
            return [unit.ops for unit in units]
        shared = units[pair[0]].processors & units[pair[1]].processors
        units = _united([_on(unit, shared) if index in pair else unit for index, unit in enumerate(units)])


def _on(unit: _Unit, processors: frozenset[str]) -> _Unit:
    ops = tuple(replace(op, processors=processors) for op in unit.ops)
    return replace(unit, operator=replace(unit.operator, processors=processors), ops=ops)


def _united(units: Sequence[_Unit]) -> list[_Unit]:
    """The units that these come to, each taken for one operator: so what has joined never parts again."""
    known = {unit.operator.name: unit for unit in units}
    groups = units_of([unit.operator for unit in units])
    place = {one.name: str(index) for index, group in enumerate(groups) for one in group}
    united = []
    for index, group in enumerate(groups):
        near = {place[name] for one in group for name in one.inputs if name in place} - {str(index)}
        operator = Operator(str(index), group[0].processors, tuple(sorted(near, key=int)))
        members = [known[one.name] for one in group]
        ops = tuple(op for member in members for op in member.ops)
        united.append(_Unit(operator, ops, sum(member.work for member in members)))
    return united


def _island(units: Sequence[_Unit], ops_min: int, work_max: float) -> tuple[int, int] | None:
    """The island of least work, and the neighbour that leaves it most processors, then the one of most work."""
    islands = sorted(
        (unit.work, index) for index, unit in enumerate(units) if len(unit.ops) < ops_min and unit.work <= work_max
    )
    for _work, index in islands:
        near = [
            (len(units[other].processors), units[other].work, -other, pair)
            for pair in _pairs(units)
            if index in pair
            for other in pair
            if other != index and units[other].processors and units[other].processors < units[index].processors
        ]
        if near:
            return max(near)[-1]
    return None


def _cheapest(units: Sequence[_Unit]) -> tuple[int, int] | None:
    costs = [
        (_loss(units[first], units[second]), units[first].work + units[second].work, (first, second))
        for first, second in _pairs(units)
        if units[first].processors & units[second].processors
    ]
    return min(costs)[-1] if costs else None


def _loss(one: _Unit, other: _Unit) -> float:
    """Work that processors lose when the two become one: of each processor, what it had and does not have then."""
    only_one, only_other = one.processors - other.processors, other.processors - one.processors
    return len(only_one) * one.work + len(only_other) * other.work


def _pairs(units: Sequence[_Unit]) -> list[tuple[int, int]]:
    """Adjacent units, the earlier one first, between which no way leads through a third."""
    before = [{int(name) for name in unit.operator.inputs} for unit in units]
    above: list[set[int]] = []
    for needed in before:  # every unit stands after those that it needs
        above.append(needed.union(*(above[other] for other in needed)))
    return [
        (first, second)
        for second, needed in enumerate(before)
        for first in sorted(needed)
        if not any(first in above[other] for other in needed - {first})
    ]
