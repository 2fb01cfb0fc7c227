"""Several pipelines on one machine: beside one another while they fit, by weight and degraded when they do not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.pipeline import CostBy
from appliance.lab.plan import plan_one
from appliance.policies.allocation.base import (
    AllocationInput,
    AllocationPlan,
    BatchWait,
    Existing,
    Module,
    Part,
    Placed,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import Demand, Several, existing_of, plan_several
from appliance.runtime.decisions.pipelines import pipeline_answer_json, pipeline_problem_json
from tests.checkers.pipeline import broken
from tests.harness.lanes import examples

CORES = (
    WorkerType("cpu", 1.0, 2, "cores"),
    WorkerType("openvino", 1.0, 2, "cores"),
    WorkerType("host", 1.0, 2, "cores"),
)


def _problem(*takes_ms: float, slo_ms: float = 400.0, items: float = 2.0) -> AllocationInput:
    """A chain of a detector, a crop and a reader, for one frame a second on two cores; `takes_ms` of both networks."""
    find_ms, read_ms = takes_ms
    modules = (
        Module("find", 1.0, (Profile("cpu", 1, 1, find_ms), Profile("openvino", 1, 1, 0.9 * find_ms))),
        Module("lines", items, (Profile("host", 1, 1, 0.5),)),
        Module("read", items, (Profile("cpu", 1, 1, read_ms), Profile("cpu", 4, 1, 3.0 * read_ms))),
    )
    edges = (("find", "lines"), ("lines", "read"))
    return AllocationInput(slo_ms, CORES, modules, edges, cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST)


LEVELS = (_problem(20, 8), _problem(10, 4))


def _demand(name: str, fps: float, weight: float = 1.0, **more: Any) -> Demand:
    """About 31 ms of a core for a frame; 16 with the cheaper variants."""
    return Demand(name, fps, LEVELS, weight, **more)


def _check(found: Several, levels: Sequence[AllocationInput] | None = None) -> None:
    """Every plan keeps its SLO and its rates, and no core is taken more than once, by the independent checker."""
    taken: dict[int, float] = {}
    for one in found.served.values():
        asked = one.problem(levels or LEVELS)
        problem, answer = pipeline_problem_json(asked), pipeline_answer_json(one.plan, asked.cost_by)
        assert plan_one({**problem, "policy": "frontier"})["cost"] == one.plan.cost
        if one.plan.feasible and one.fps:
            assert not broken(problem, answer)
        for placed in one.plan.placement:
            taken[placed.index] = taken.get(placed.index, 0.0) + sum(part.share for part in placed.parts)
    assert all(share <= 1.0 + 1e-6 for share in taken.values()), taken


def test_new_pipeline_is_planned_beside_standing_plans() -> None:
    """The pipeline that comes is planned beside the others, which keep their places and are not planned anew."""
    first = plan_several([_demand("a", 10), _demand("b", 10)], Frontier())
    kept = {name: one.plan.placement for name, one in first.served.items()}
    found = plan_several([_demand("a", 10), _demand("b", 10), _demand("c", 5)], Frontier(), kept)
    assert (sorted(found.served), found.is_anew, found.solved) == (["c"], False, 1)
    parts = [part for one in found.served["c"].existing for part in one.parts]
    assert {part.module for part in parts} == {"a", "b"}
    _check(Several({**first.served, **found.served}, False, 0))


def _two_variants(items: float = 1.0) -> AllocationInput:
    """Of one frame a second on two cores: a small variant takes 10 ms, a large one 40 ms for eight items at once."""
    module = Module("look", items, (Profile("cpu", 1, 1, 10.0), Profile("cpu", 8, 1, 40.0)))
    return AllocationInput(10_000.0, CORES, (module,), cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST)


def _batches(fps: float, items: float = 1.0, cost_by: CostBy = CostBy.SECONDS) -> tuple[set[int], Any]:
    """The batches that are planned, and their cost."""
    problem = replace(_two_variants(items), cost_by=cost_by)
    found = plan_several([Demand("a", fps, (problem,))], Frontier())
    _check(found, (problem,))
    plan = found.served["a"].plan
    return {one.batch for one in plan.allocations}, plan.cost


def test_plan_at_low_load_counts_on_no_batches() -> None:
    """At two frames a second no item waits on two idle cores: frames run alone, for 0.02 cores. Batches of eight would
    cost 0.01, but are never formed, and an item of the large variant by itself takes far more than the small one."""
    assert _batches(2.0) == ({1}, pytest.approx(0.02))


def test_plan_at_high_load_counts_on_batches() -> None:
    """With items run singly, 120 frames a second take 1.2 of two cores, more than half; in batches of eight 0.6."""
    assert _batches(120.0) == ({8}, pytest.approx(0.6))


def test_plan_counts_on_batches_of_the_items_of_one_frame() -> None:
    """Items of a frame come together, without waiting: 16 items a second for 5 ms each."""
    assert _batches(2.0, items=8.0) == ({8}, pytest.approx(0.08))


def test_pipelines_that_fit_only_in_batches_are_planned_with_batches() -> None:
    """With items run singly, the first takes 0.8 of two cores, less than half, beside which there is no room for the
    second: in batches of eight 0.4 and 1.5."""
    problem = _two_variants()
    found = plan_several([Demand("a", 80.0, (problem,), 2.0), Demand("b", 300.0, (problem,))], Frontier())
    assert all(one.plan.feasible for one in found.served.values())
    assert [one.fps for one in found.served.values()] == [80.0, 300.0]
    _check(found, (problem,))


def test_plan_by_price_counts_on_batches_at_any_load() -> None:
    """A worker costs what it is taken for, idle or not: items wait for a batch."""
    assert _batches(2.0, cost_by=CostBy.PRICE)[0] == {8}


def test_pipelines_are_planned_anew_when_a_new_pipeline_does_not_fit() -> None:
    """Two thirds of either core are free, and the new pipeline needs four fifths of one: the others move together."""

    module = Module("find", 1.0, (Profile("cpu", 1, 1, 10.0),))
    problem = AllocationInput(400.0, CORES, (module,), cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST)

    def demand(name: str, share: float) -> Demand:
        return Demand(name, 100.0 * share, (problem,))

    kept = {name: (Placed("cpu", index, (Part("find", 0.3),), False),) for index, name in enumerate("ab")}
    found = plan_several([demand("a", 0.3), demand("b", 0.3), demand("c", 0.8)], Frontier(), kept)
    assert found.is_anew
    assert {name: one.plan.placement[0].index for name, one in found.served.items()} == {"a": 0, "b": 0, "c": 1}
    _check(found, (problem,))


def test_pipelines_take_cheaper_variants_before_fewer_frames() -> None:
    """Three pipelines that want 2.2 cores of two: cheaper variants serve as many as need be, and every frame."""
    found = plan_several([_demand("a", 24, 2.0), _demand("b", 24), _demand("c", 24)], Frontier())
    assert all(one.plan.feasible for one in found.served.values())
    assert [one.fps for one in found.served.values()] == [24, 24, 24]
    assert found.served["a"].level == 0
    assert {found.served["b"].level, found.served["c"].level} >= {1}
    _check(found)


def test_overloaded_pipelines_share_frames_by_weight() -> None:
    """Twice what the cheapest variants leave room for: frames are fewer, by weight, and all of them have a plan."""
    found = plan_several([_demand("a", 100, 2.0), _demand("b", 100), _demand("c", 100)], Frontier())
    served = found.served
    assert all(one.plan.feasible for one in served.values())
    total = sum(one.fps for one in served.values())
    for name, weight in (("a", 0.5), ("b", 0.25), ("c", 0.25)):
        assert served[name].fps / total >= 0.7 * weight
    assert total * 16.0 / 1000.0 >= 0.7 * 2
    _check(found)


def test_small_pipeline_keeps_all_its_frames_beside_a_greedy_pipeline() -> None:
    """A pipeline asks for five times the box, single calls take half of it: another pipeline that asks for a tenth has
    all its frames, whole, whichever of both comes first by name."""
    busy = [Existing("cpu", 1, (Part("requests", 1.0),))]
    for little, much in (("a", "b"), ("b", "a")):
        for fps in (30.0, 60.0, 300.0):
            found = plan_several([_demand(little, 6.0), _demand(much, fps)], Frontier(), None, busy)
            _check(found)
            served = found.served[little]
            assert (served.level, served.fps, served.plan.feasible) == (0, 6.0, True)
            assert 0.0 < found.served[much].fps <= fps


def _one_network(*workers: WorkerType) -> AllocationInput:
    """10 ms of the first type for each frame, and 1 ms of each other one."""
    modules = tuple(
        Module(f"on-{worker.name}", 1.0, (Profile(worker.name, 1, 1, 1.0 if at else 10.0),))
        for at, worker in enumerate(workers)
    )
    return AllocationInput(400.0, workers, modules, cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST)


def test_pipelines_on_different_workers_are_not_counted_together() -> None:
    """Each asks for 0.9 of the one worker that it knows, which is none of the other's."""
    demands = [
        Demand(name, 90.0, (_one_network(WorkerType(worker, 1.0, 1)),))
        for name, worker in (("a", "cpu"), ("b", "cuda"))
    ]
    found = plan_several(demands, Frontier())
    assert (found.is_anew, found.solved) == (False, 2)
    assert {name: one.plan.placement[0].worker for name, one in found.served.items()} == {"a": "cpu", "b": "cuda"}
    assert [one.fps for one in found.served.values()] == [90.0, 90.0]


def test_pipelines_on_unlimited_workers_are_never_degraded() -> None:
    """3.5 workers of a type of which there are as many as wanted."""
    found = plan_several([Demand("a", 350.0, (_one_network(WorkerType("cloud", 1.0)),))], Frontier())
    assert (found.is_anew, found.solved, found.served["a"].fps) == (False, 1, 350.0)
    assert len(found.served["a"].plan.placement) == 4


def test_limited_workers_are_shared_beside_unlimited_ones() -> None:
    """Two pipelines that ask for twice the one worker: 0.95 of it is divided between them, 47.5 frames each, whatever
    they and others take of a type that never runs out."""
    problem = _one_network(WorkerType("cpu", 1.0, 1), WorkerType("cloud", 1.0))
    busy = (Existing("cloud", 0, (Part("requests", 0.5),)),)
    found = plan_several([Demand(name, 100.0, (problem,)) for name in "ab"], Frontier(), busy=busy)
    assert [one.fps for one in found.served.values()] == pytest.approx([47.5, 47.5])
    assert all(one.plan.feasible for one in found.served.values())
    assert {placed.worker for one in found.served.values() for placed in one.plan.placement} == {"cpu", "cloud"}


def test_pipeline_without_room_gets_no_plan_when_degrading_is_off() -> None:
    found = plan_several([_demand("a", 40), _demand("b", 40)], Frontier(), may_degrade=False)
    assert [one.plan.feasible for _, one in sorted(found.served.items())] == [True, False]


def test_pipeline_with_impossible_slo_takes_no_worker() -> None:
    """An SLO below what the networks take has no plan, at any level; others are planned as without it."""
    impossible = replace(_demand("a", 5), levels=(_problem(20, 8, slo_ms=15.0),))
    found = plan_several([impossible, _demand("b", 10)], Frontier())
    assert not found.served["a"].plan.feasible
    assert found.served["b"].plan.feasible
    assert (found.served["b"].level, found.served["b"].fps) == (0, 10)


@examples(gate=25)
@given(
    st.lists(st.tuples(st.just(0.0) | st.floats(0.05, 60), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=5)
)
def test_plans_of_several_pipelines_keep_slo_and_capacity_in_any_order(wanted: list[tuple[float, float]]) -> None:
    """Whatever is asked: SLO and capacity hold by the independent checker, together, too; equal questions have equal
    answers in any order.
    """
    demands = [_demand(f"p{at}", fps, weight) for at, (fps, weight) in enumerate(wanted)]
    found = plan_several(demands, Frontier())
    _check(found)
    again = plan_several(demands[::-1], Frontier())
    assert {name: one.plan for name, one in again.served.items()} == {
        name: one.plan for name, one in found.served.items()
    }


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_plan_leaves_out_the_share_that_single_calls_take(share: float) -> None:
    busy = (Existing("cpu", 1, (Part("requests", share),)),) if share else ()
    found = plan_several([_demand("a", 80)], Frontier(), busy=busy)
    assert found.served["a"].fps * 15.0 / 1000.0 <= 2.0 - share + 1e-6
    assert found.served["a"].plan.feasible


@pytest.mark.parametrize("fps", [22.0, 25.0, 29.0, 37.0])
def test_pipeline_too_large_for_one_of_two_equal_processors_uses_both(fps: float) -> None:
    """What is too much for one group of cores goes to both, though nothing is cheaper on either."""
    workers = (WorkerType("first", 1.0, 1, "cores"), WorkerType("host", 1.0, 1, "cores"), WorkerType("second", 1.0, 1))
    modules = tuple(
        Module(name, rate, (Profile("first", 1, 1, ms), Profile("second", 1, 1, ms)))
        for name, rate, ms in (("find", 1.0, 20.0), ("read", 4.0, 8.0))
    )
    crop = Module("lines", 1.0, (Profile("host", 1, 1, 0.001),))
    edges = (("find", "lines"), ("lines", "read"))
    problem = AllocationInput(
        290.0, workers, (*modules, crop), edges, cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST
    )
    found = plan_several([Demand("one", fps, (problem,))], Frontier()).served["one"]
    assert (found.plan.feasible, found.fps) == (True, fps)
    assert {placed.worker for placed in found.plan.placement} == {"first", "host", "second"}
    assert found.plan.cost == pytest.approx(0.052 * fps, rel=1e-3)
    asked = found.problem((problem,))
    assert not broken(pipeline_problem_json(asked), pipeline_answer_json(found.plan, asked.cost_by))


def test_overloaded_pipelines_use_every_worker_type() -> None:
    """Three pipelines that want four times what there is of the cheapest type, and twice what there is of both: rates
    are divided as both types allow, and each plan keeps its SLO beside the others, by the independent checker."""
    workers = (
        WorkerType("cpu", 1.0, 2, "cores"),
        WorkerType("host", 1.0, 2, "cores"),
        WorkerType("cuda", 3.0, 1),
    )
    modules = tuple(
        Module(name, rate, (Profile("cpu", 1, 1, ms), Profile("cuda", 1, 1, 0.5 * ms)))
        for name, rate, ms in (("find", 1.0, 20.0), ("read", 2.0, 8.0))
    )
    crop = Module("lines", 1.0, (Profile("host", 1, 1, 0.5),))
    edges = (("find", "lines"), ("lines", "read"))
    problem = AllocationInput(290.0, workers, (*modules, crop), edges, cost_by=CostBy.PRICE, batch_wait=BatchWait.REST)
    alone = 2 * 1000.0 / 36.5
    found = plan_several([Demand(name, 4 / 3 * alone, (problem,)) for name in "abc"], Frontier())
    assert all(one.plan.feasible for one in found.served.values())
    taken: dict[str, float] = {}
    for one in found.served.values():
        asked = one.problem((problem,))
        assert not broken(pipeline_problem_json(asked), pipeline_answer_json(one.plan, asked.cost_by))
        for placed in one.plan.placement:
            taken[placed.worker] = taken.get(placed.worker, 0.0) + sum(part.share for part in placed.parts)
    assert taken["cuda"] >= 0.8
    assert taken["cpu"] + taken["host"] >= 0.8 * 2
    assert sum(one.fps for one in found.served.values()) >= 0.85 * 2 * alone
    least, *_, most = sorted(one.fps for one in found.served.values())
    assert least >= 0.7 * most


@pytest.mark.parametrize(
    ("slo_ms", "fps", "of_eight_ms", "batches", "cost"),
    [
        (400, 150, 48, {8}, 0.9),  # 48 ms and 7 items' wait of 47 ms leave time for two runs
        (100, 150, 48, {2}, 1.8),  # runs of two: 24 + 12 + 2 x 24 = 84 ms; of four 32 + 24 + 2 x 32 = 120
        (100, 150, 36, {2}, 1.8),  # those of four are hardly shorter than those of eight, and are not tried
        (60, 150, 48, {1}, 3.0),  # of two 24 + 2 x 24 = 72 ms
        (60, 240, 48, {4}, 1.92),  # more than the workers can do alone
    ],
)
def test_plan_counts_on_no_batch_that_there_is_no_time_to_wait_for(
    slo_ms: float, fps: float, of_eight_ms: float, batches: set[int], cost: float
) -> None:
    """Runs of 1, 2 and 4 items take 20, 24 and 32 ms, of 8 items mostly 48 ms. When a wait is over, two of the longest
    runs go first: by the cheapest plan for 100 ms runs of eight took 0.9 of four workers, and what formed took 3.2.
    """
    runs = ((1, 20.0), (2, 24.0), (4, 32.0), (8, of_eight_ms))
    profiles = tuple(Profile("gpu", batch, 1, ms) for batch, ms in runs)
    level = AllocationInput(
        slo_ms,
        (WorkerType("gpu", 1.0, 4),),
        (Module("read", 1.0, profiles),),
        cost_by=CostBy.SECONDS,
        batch_wait=BatchWait.REST,
    )
    (served,) = plan_several([Demand("p", fps, (level,))], Frontier()).served.values()
    assert {one.batch for one in served.plan.allocations} == batches
    assert served.plan.cost == pytest.approx(cost)
    assert Frontier().plan(served.problem([level])) == served.plan


def test_existing_pipeline_appears_as_one_share_of_a_worker() -> None:
    """Another pipeline appears by its share of a worker, and not by each of its stages: many of those would crowd out
    all else."""
    workers = (WorkerType("cpu", 1.0, 2),)
    placed = {"other": (Placed("cpu", 0, (Part("find", 0.25), Part("read", 0.5)), is_new=False),)}
    busy = (Existing("cpu", 0, (Part("requests", 0.125),)),)
    assert existing_of(placed, busy, workers, ("m",)) == (
        Existing("cpu", 0, (Part("requests", 0.125), Part("other", 0.75)), ("m",)),
    )


def test_pipelines_beyond_all_workers_are_never_planned_at_full_rate() -> None:
    """More than all workers by throughput alone: no pipeline is planned at its full rate first, and the plans are those
    that the search for them ends with."""
    asked: list[float] = []

    class Noted(Frontier):
        def plan(self, problem: AllocationInput) -> AllocationPlan:
            if any(one.available for one in problem.workers):  # not one without limits
                asked.append(problem.modules[0].rate_rps)
            return super().plan(problem)

    found = plan_several([_demand(name, 200.0) for name in "abc"], Noted())
    assert max(asked) < 200.0
    assert all(one.plan.feasible for one in found.served.values())
    asked.clear()
    plan_several([_demand(name, 10.0) for name in "abc"], Noted())
    assert asked == [10.0] * 3
