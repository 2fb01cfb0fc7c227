"""Units join where there would be too many; what they lose is what a join costs."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.dispatch.joining import joined
from appliance.policies.dispatch.partition import Operator, units_of


def chain(*processors: str) -> list[Operator]:
    """Operators one after the other: `cn` runs on c and on n."""
    return [
        Operator(str(index), frozenset(kinds), (str(index - 1),) if index else ())
        for index, kinds in enumerate(processors)
    ]


def told(units: Sequence[Sequence[Operator]]) -> list[tuple[str, str]]:
    """Operators and processors of each."""
    return [("".join(op.name for op in unit), "".join(sorted(unit[0].processors))) for unit in units]


def even(operators: Sequence[Operator]) -> dict[str, float]:
    return dict.fromkeys((op.name for op in operators), 1.0)


def test_units_without_joining_are_those_of_the_paper() -> None:
    """Fig. 10a: a unit for each change of support."""
    operators = chain("cgn", "cgn", "cn", "c")
    assert told(joined(operators, even(operators), 1, 0)) == [("01", "cgn"), ("2", "cn"), ("3", "c")]


def test_small_unit_joins_a_neighbour_that_keeps_its_processors() -> None:
    """Two operators on the accelerator between what it does not take are not worth two copies; an operator that it
    does not take stays a unit of its own, for it would take all the rest with it."""
    operators = chain("cn", "cn", "cn", "c", "cn", "cn", "c", "c", "c", "cn", "cn", "cn")
    work = even(operators) | {"4": 0.01, "5": 0.01}
    assert told(joined(operators, work, 3, 0)) == [("012", "cn"), ("345678", "c"), ("91011", "cn")]
    assert len(joined(operators, even(operators), 3, 0)) == 5, "what has work enough is worth its copies"


def test_unit_joined_first_may_make_the_next_large_enough() -> None:
    """The least work goes first: then the second is no island any more."""
    operators = [
        Operator("a", frozenset("c")),
        Operator("b", frozenset("cgn"), ("a",)),
        Operator("d", frozenset("cg"), ("b",)),
        Operator("e", frozenset("cg"), ("d",)),
        Operator("f", frozenset("c"), ("e",)),
    ]
    units = joined(operators, even(operators) | {"b": 0.01}, 3, 0)
    assert told(units) == [("a", "c"), ("bde", "cg"), ("f", "c")]


def test_units_join_down_to_the_maximum_and_the_heaviest_stay_apart() -> None:
    operators = chain("cn", "c", "cn", "c", "cn", "c", "cn")
    work = even(operators) | {"2": 50.0, "6": 70.0}
    assert told(joined(operators, work, 1, 4)) == [("01", "c"), ("2", "cn"), ("345", "c"), ("6", "cn")]
    assert told(joined(operators, work, 1, 1)) == [("0123456", "c")]


def test_units_without_a_common_processor_stay_apart() -> None:
    operators = chain("a", "b", "a")
    assert len(joined(operators, even(operators), 7, 1)) == 3


@st.composite
def graphs(draw: st.DrawFn) -> list[Operator]:
    kinds = st.frozensets(st.sampled_from("gn"))
    made: list[Operator] = []
    for index in range(draw(st.integers(1, 14))):
        near = draw(st.sets(st.sampled_from([op.name for op in made]), max_size=3)) if made else set()
        made.append(Operator(f"o{index}", draw(kinds) | {"c"}, tuple(sorted(near))))
    return made


@given(graphs(), st.integers(1, 5), st.integers(1, 4))
def test_graph_is_cut_into_few_units_in_a_runnable_order(
    operators: list[Operator], ops_min: int, units_max: int
) -> None:
    """Each operator once, on processors that it had, after what it needs; a connected graph as few as asked for."""
    units = joined(operators, even(operators), ops_min, units_max)
    known = {op.name: op for op in operators}
    assert sorted(op.name for unit in units for op in unit) == sorted(known)
    done: set[str] = set()
    for unit in units:
        for op in unit:
            assert op.processors == unit[0].processors <= known[op.name].processors
            assert set(op.inputs) <= done | {other.name for other in unit}
            assert set(op.inputs) <= done, "in an order in which they can run"
            done.add(op.name)
    assert len(units) <= max(units_max, _islands(operators))
    assert len(units) <= len(units_of(operators))


def _islands(operators: Sequence[Operator]) -> int:
    """Parts of the graph that nothing connects."""
    group = {op.name: {op.name} for op in operators}
    for op in operators:
        for needed in op.inputs:
            whole = group[op.name] | group[needed]
            for name in whole:
                group[name] = whole
    return len({frozenset(one) for one in group.values()})
