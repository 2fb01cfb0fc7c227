"""What an instance takes of processors of other types, as a network in parts does: by hand."""

from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.lab.problems.base import Malformed
from appliance.policies.allocation.base import (
    AllocationInput,
    BatchWait,
    Draw,
    Existing,
    Module,
    Part,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import Demand, plan_several
from tests.checkers.pipeline import broken

IN_PARTS = {
    "worker": "X",
    "batch": 1,
    "concurrency": 1,
    "latency_ms": 10,
    "throughput_rps": 200,
    "power_w": 7,
    "draws": [{"worker": "Y", "share": 0.6}],
}
"""10 ms an item: 5 on X, 3 on Y, the rest on the way."""
WHOLE = {"worker": "X", "batch": 1, "concurrency": 2, "latency_ms": 40, "power_w": 5}
"""20 ms of X an item."""


def _problem(rate_rps: float, y_taken: float = 0.0, **more: Any) -> dict[str, Any]:
    return {
        "kind": "pipeline",
        "slo_ms": 100,
        "workers": [{"name": "X", "cost": 2, "available": 2}, {"name": "Y", "cost": 3, "available": 1}],
        "modules": [{"name": "look", "rate_rps": rate_rps, "profiles": [IN_PARTS, WHOLE]}],
        "existing": [{"worker": "Y", "index": 0, "parts": [{"module": "other", "share": y_taken}]}],
        "batch_wait": "rest",
        **more,
    }


def _taken(answer: dict[str, Any]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for worker in answer["placement"]:
        found.setdefault(worker["worker"], []).extend(round(part["share"], 6) for part in worker["parts"])
    return found


@pytest.mark.parametrize("policy", ["frontier", "scrooge"])
@pytest.mark.parametrize(("cost_by", "cost"), [("seconds", 0.5 * 1.6), ("price", 0.5 * (2 + 0.6 * 3)), ("energy", 3.5)])
def test_instance_in_parts_takes_and_pays_for_two_worker_types(policy: str, cost_by: str, cost: float) -> None:
    """100 items of 5 + 3 ms: half of X and 0.3 of Y; whole it would be two of X."""
    problem = _problem(100, policy=policy, cost_by=cost_by)
    answer = plan_one(problem)
    assert not broken(problem, answer)
    assert _taken(answer) == {"X": [0.5], "Y": [0.3]}
    assert answer["cost"] == pytest.approx(cost)
    assert answer["latency_ms"] == pytest.approx(10)


@pytest.mark.parametrize("policy", ["frontier", "scrooge"])
def test_plan_counts_other_pipelines_shares_of_the_drawn_worker_type(policy: str) -> None:
    """0.3 of Y where 0.2 is left: whole then; and where that is too slow, there is no plan."""
    problem = _problem(100, y_taken=0.8, policy=policy, cost_by="seconds")
    answer = plan_one(problem)
    assert not broken(problem, answer)
    assert _taken(answer).get("Y", [0.0])[0] <= 0.2
    assert not plan_one({**problem, "slo_ms": 15})["feasible"]
    gone = {**problem, "workers": [problem["workers"][0], {**problem["workers"][1], "available": 0}], "existing": []}
    assert _taken(plan_one(gone)).keys() == {"X"}


def test_full_instances_draw_separately() -> None:
    """Two whole instances and a half one take 2.5 workers of X and thrice a part of Y: 0.3, 0.3 and 0.15."""
    problem = _problem(500, slo_ms=15, cost_by="seconds")
    problem["workers"][0]["available"] = 3
    problem["modules"][0]["profiles"][0] = {**IN_PARTS, "draws": [{"worker": "Y", "share": 0.3}]}
    answer = plan_one(problem)
    assert not broken(problem, answer)
    taken = _taken(answer)
    assert sorted(taken["X"]) == [0.5, 1.0, 1.0]
    assert sorted(taken["Y"]) == [0.15, 0.3, 0.3]


@pytest.mark.parametrize("policy", ["frontier", "scrooge"])
def test_draw_of_an_instance_may_be_split_over_workers(policy: str) -> None:
    """Three whole instances draw 1.8 of two workers of Y: each worker has one of 0.6 and a piece of the third. And
    where others have 0.6 of each, one instance takes what is left of both.
    """
    problem = _problem(600, slo_ms=15, cost_by="seconds", existing=[], policy=policy)
    problem["workers"][0]["available"], problem["workers"][1]["available"] = 3, 2
    answer = plan_one(problem)
    assert answer["feasible"]
    assert not broken(problem, answer)
    assert sum(_taken(answer)["Y"]) == pytest.approx(1.8)
    others = [{"worker": "Y", "index": at, "parts": [{"module": "other", "share": 0.6}]} for at in range(2)]
    beside = {**problem, "modules": [{**problem["modules"][0], "rate_rps": 200}], "existing": others}
    answer = plan_one(beside)
    assert answer["feasible"]
    assert not broken(beside, answer)
    assert sorted(_taken(answer)["Y"]) == pytest.approx([0.2, 0.4])
    beside["modules"][0]["rate_rps"] = 300
    assert not plan_one(beside)["feasible"], "0.9 of Y, where 0.8 is left"


def test_reason_counts_worker_types_on_the_same_cores_as_one_worker() -> None:
    """Two kinds that share two cores: what fits onto one of these is on one worker, not on two."""
    profile = {"batch": 1, "concurrency": 1, "latency_ms": 10}
    workers = [{"name": name, "cost": 1, "available": 2, "group": "cores"} for name in ("X", "Y")]
    modules = [{"name": name, "rate_rps": 20, "profiles": [{**profile, "worker": name}]} for name in ("X", "Y")]
    problem = {"kind": "pipeline", "slo_ms": 100, "workers": workers, "modules": modules, "batch_wait": "rest"}
    answer: dict[str, Any] = plan_one(problem)
    assert [(one["worker"], one["index"]) for one in answer["placement"]] == [("X", 0), ("Y", 0)]
    assert answer["reason"].endswith(" on 1 worker, 1 of them new (frontier)")


def test_second_pipeline_is_planned_beside_the_draws_of_the_first() -> None:
    """Each draws 0.6 of the only Y: there is no room for both at full rate, however many X there are."""
    look = Module("look", 1.0, (Profile("X", 1, 1, 10.0, 200.0, None, (Draw("Y", 0.6),)),))
    workers = (WorkerType("X", 1.0, 4), WorkerType("Y", 1.0, 1))
    problem = AllocationInput(100.0, workers, (look,), batch_wait=BatchWait.REST)
    demands = [Demand(name, 200.0, (problem,)) for name in ("a", "b")]
    found = plan_several(demands, Frontier())
    drawn = [
        sum(part.share for place in one.plan.placement if place.worker == "Y" for part in place.parts)
        for one in found.served.values()
    ]
    assert sum(drawn) <= 1.0 + 1e-6
    assert sum(one.fps for one in found.served.values()) > 0.8 * 333, "Y does 333 frames a second"
    busy = (Existing("Y", 0, (Part("requests", 0.9),)),)
    (beside,) = plan_several(demands[:1], Frontier(), busy=busy).served.values()
    assert beside.fps <= 40, "a tenth of Y is left, which is 33 frames a second"


@pytest.mark.parametrize(
    ("draws", "key"),
    [
        ([{"worker": "Z", "share": 0.5}], "draws[0].worker"),
        ([{"worker": "X", "share": 0.5}], "draws[0].worker"),
        ([{"worker": "Y", "share": 0.5}, {"worker": "Y", "share": 0.1}], "draws[1].worker"),
        ([{"worker": "Y", "share": 1.5}], "draws[0].share"),
        ([{"worker": "Y", "share": 0}], "draws[0].share"),
    ],
)
def test_malformed_draws_name_their_key(draws: list[dict[str, Any]], key: str) -> None:
    problem = _problem(10)
    problem["modules"][0]["profiles"] = [{**IN_PARTS, "draws": draws}]
    with pytest.raises(Malformed) as caught:
        plan_one(problem)
    assert str(caught.value).startswith(f"modules[0].profiles[0].{key}: ")
