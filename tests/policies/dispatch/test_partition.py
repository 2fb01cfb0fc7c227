"""Units and subgraphs: the paper's example, graphs that are no chain, graphs that are too wide."""

import pytest

from appliance.policies.dispatch.partition import CHOICES_MAX, SUBGRAPHS_MAX, Operator, Partition, Uncuttable, partition

ALL = frozenset({"CPU", "GPU", "NPU"})
SOME = frozenset({"CPU", "NPU"})
CPU = frozenset({"CPU"})
NPU = frozenset({"NPU"})


def cut(*operators: Operator) -> Partition:
    latency_ms = {processor: {op.name: 1.0 for op in operators} for processor in ALL}
    return partition("net", operators, latency_ms)


def test_partition_of_the_papers_example_has_its_units_and_subgraphs() -> None:
    """Figures 9 and 10: three units, and all six subgraphs with the processors of each (`oracles.json`, band)."""
    net = cut(Operator("1", ALL), Operator("2", ALL, ("1",)), Operator("3", SOME, ("2",)), Operator("4", CPU, ("3",)))

    assert net.units == (("1", "2"), ("3",), ("4",))
    assert {one.ops: set(one.latency_ms) for one in net.subgraphs} == {
        ("1", "2"): ALL,
        ("3",): SOME,
        ("4",): CPU,
        ("1", "2", "3"): SOME,
        ("3", "4"): CPU,
        ("1", "2", "3", "4"): CPU,
    }


def test_units_follow_data_flow_and_not_file_order() -> None:
    """Adjacent are operators that take results of one another: 2 and 3 stand side by side, and are no unit."""
    net = cut(
        Operator("4", SOME, ("2", "3")), Operator("2", ALL, ("1",)), Operator("3", ALL, ("0",)), Operator("1", CPU),
        Operator("0", SOME),
    )  # fmt: skip

    assert {frozenset(unit) for unit in net.units} == {
        frozenset({"0"}), frozenset({"1"}), frozenset({"2"}), frozenset({"3"}), frozenset({"4"}),
    }  # fmt: skip


def test_operators_linked_through_another_processor_set_are_no_unit() -> None:
    """1, 2 and 4 run on the same processors, but 4 needs 3, which needs 1: one of them has to stay outside."""
    net = cut(
        Operator("1", ALL), Operator("2", ALL, ("1",)), Operator("3", CPU, ("1",)), Operator("4", ALL, ("2", "3"))
    )

    assert {frozenset(unit) for unit in net.units} == {frozenset({"1", "2"}), frozenset({"3"}), frozenset({"4"})}
    assert ("1", "2", "4") not in {one.ops for one in net.subgraphs}


def test_branches_on_equal_processors_meet_in_one_unit() -> None:
    """Two ways to an operator of the same processors are one unit, though neither begins with the other."""
    net = cut(Operator("a", ALL), Operator("b", CPU), Operator("c", ALL, ("a", "b")))

    assert {frozenset(unit) for unit in net.units} == {frozenset({"a", "c"}), frozenset({"b"})}


def test_network_on_one_set_of_processors_is_not_cut() -> None:
    """However its operators branch."""
    net = cut(Operator("1", ALL), *(Operator(f"x{i}", ALL, ("1",)) for i in range(40)))

    assert len(net.units) == len(net.subgraphs) == 1


@pytest.mark.parametrize("branches", [30, 200])
def test_partition_of_a_wide_graph_stays_within_bounds(branches: int) -> None:
    """Each branch merges with the root, so any choice of branches would be a subgraph: they are run in one order
    then."""
    net = cut(Operator("root", ALL), *(Operator(f"x{i}", SOME if i % 2 else CPU, ("root",)) for i in range(branches)))

    assert len(net.units) == branches + 1
    assert len(net.subgraphs) <= SUBGRAPHS_MAX + 2 * branches
    assert sum(len(choices) for choices in net.next.values()) <= CHOICES_MAX
    assert net.whole in {after for choices in net.next.values() for after, _one in choices}


def test_partition_with_too_many_orders_runs_units_in_one_order() -> None:
    """Fifteen operators that do not need one another can be done in any order, which are 2 ** 15 states of 15 choices:
    too many. In one order, neighbours of the first eight are 8 · 9 / 2 subgraphs, and of the other seven, which run
    elsewhere, 7 · 8 / 2."""
    net = cut(*(Operator(f"{i:02}", CPU if i < 8 else NPU) for i in range(15)))

    assert CHOICES_MAX < 2**15 * 15
    assert set(net.next) == {2**count - 1 for count in range(15)}
    assert len(net.subgraphs) == 36 + 28
    assert {one.ops for one in net.subgraphs if "07" in one.ops and "08" in one.ops} == set()
    assert [one.ops for _after, one in net.next[2**13 - 1]] == [("13", "14"), ("13",)]


def test_cyclic_graph_cannot_be_cut() -> None:
    with pytest.raises(Uncuttable, match="'a' waits for itself"):
        cut(Operator("a", ALL, ("b",)), Operator("b", ALL, ("a",)))
