"""Whose turn it is: by weight, with no credit for idle time and no debt from it."""

from collections.abc import Mapping
from random import Random

import pytest

from appliance.runtime.engine.fairness import FairLine, Flow
from tests.harness.reach import reachable


def first_runs(line: FairLine[Flow], costs: Mapping[Flow, int], weights: Mapping[Flow, float]) -> Flow:
    """The flow whose turn it is has had its run."""
    flow = line.first()
    assert flow is not None
    line.begin(flow, costs[flow], weights[flow])
    line.end(flow, 0, weights[flow])
    return flow


def served(line: FairLine[Flow], weights: dict[Flow, float], costs: dict[Flow, int], total_ns: int) -> dict[Flow, int]:
    """What each flow gets of one server when all of them always wait."""
    got = dict.fromkeys(weights, 0)
    while sum(got.values()) < total_ns:
        flow = first_runs(line, costs, weights)
        got[flow] += costs[flow]
    return got


@pytest.mark.parametrize("seed", range(5))
def test_flows_share_time_by_weight(seed: int) -> None:
    """Whatever runs cost: shares of time are as the weights, but for about one run each (Goyal, Vin and Cheng, theorem
    1).
    """
    random = Random(seed)
    line: FairLine[Flow] = FairLine()
    weights = {Flow(): random.choice([0.5, 1.0, 3.0, 10.0]) for _ in range(6)}
    costs = {flow: random.randint(1, 1000) for flow in weights}
    for flow in weights:
        line.put(flow)
    got = served(line, weights, costs, 1_000_000)
    by_weight = {flow: got[flow] / weights[flow] for flow in weights}
    bound = 2 * max(costs[flow] / weights[flow] for flow in weights)
    assert max(by_weight.values()) - min(by_weight.values()) <= bound


def test_idle_flow_saves_up_no_time() -> None:
    """A flow that comes late begins where the others are: first by one run, then in turn."""
    line: FairLine[Flow] = FairLine()
    busy, late = Flow(), Flow()
    costs, weights = {busy: 10, late: 10}, {busy: 1.0, late: 1.0}
    line.put(busy)
    for _ in range(100):
        first_runs(line, costs, weights)
    line.put(late)
    assert [first_runs(line, costs, weights) for _ in range(6)].count(late) == 3


def test_flow_that_ran_alone_owes_no_time() -> None:
    """After a rest all flows are equal, however much one of them had before."""
    line: FairLine[Flow] = FairLine()
    one, other = Flow(), Flow()
    line.put(one)
    line.begin(one, 10_000, 1.0)
    line.drop(one)
    line.end(one, 0, 1.0)
    assert not line.is_busy
    line.put(one)
    line.put(other)
    assert line.start_of(one) == line.start_of(other)
    assert line.first() is one


def test_flow_is_charged_for_the_time_its_run_really_took() -> None:
    """A flow that says 1 and takes 100 is charged 100; a flow that is said to take 100 and takes 1 is charged 1."""
    line: FairLine[Flow] = FairLine()
    liar, honest = Flow(), Flow()
    for flow in (liar, honest):
        line.put(flow)
    line.begin(liar, 1, 1.0)
    line.begin(honest, 100, 1.0)
    line.end(liar, 99, 1.0)
    line.end(honest, -99, 1.0)
    assert (liar.tag, honest.tag) == (100, 1)
    assert line.first() is honest


def test_flow_is_charged_for_runs_beside_the_line() -> None:
    """A flow that runs without waiting moves back as one that waits would."""
    line: FairLine[Flow] = FairLine()
    quick, waits = Flow(), Flow()
    line.put(waits)
    line.ran(quick, 500, 2.0)
    assert line.start_of(quick) == 250
    assert line.first() is waits


def test_fair_line_does_not_grow_by_flows_that_left() -> None:
    """A flow that comes and goes leaves nothing behind; of many flows the line is as short as those that wait."""
    line: FairLine[Flow] = FairLine()
    flows = [Flow() for _ in range(10)]
    for _ in range(1000):
        for flow in flows:
            line.put(flow)
        for flow in flows[1:]:
            line.drop(flow)
    assert line.first() is flows[0]
    assert sum(isinstance(one, list) for one in reachable(line)) <= 2 * len(flows) + 66


def test_fair_line_finds_flows_that_start_near_the_first() -> None:
    """Flows in line whose runs start at most so much after the first one's; a flow that has left the line is none of
    them.
    """
    line: FairLine[Flow] = FairLine()
    assert list(line.near(5.0)) == []
    flows = [Flow() for _ in range(20)]
    for at, flow in enumerate(flows):
        line.put(flow)
        line.ran(flow, at, 1.0)
    line.drop(flows[3])
    near = list(line.near(5.0))
    first = line.first()
    assert first is not None
    limit = line.start_of(first) + 5.0
    assert {id(one) for one in near} == {id(one) for one in flows if one.entry is not None and one.tag <= limit}
    assert 1 < len(near) < len(flows)
