"""How pipelines were served, as it is kept: replayable, and without the names of others."""

import datetime
from dataclasses import replace

from appliance.domain.pipeline import CostBy
from appliance.lab.plan import plan_one
from appliance.policies.allocation.base import AllocationInput, BatchWait, Existing, Module, Part, Profile, WorkerType
from appliance.policies.allocation.frontier import Frontier
from appliance.runtime.decisions import pipelines
from appliance.runtime.decisions.document import record_of

AT = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
WORKERS = (WorkerType("cpu", 0.0, 2, "cpu-cores"), WorkerType("host", 0.0, 2, "cpu-cores"))
PROBLEM = AllocationInput(
    120.0,
    WORKERS,
    (
        Module("find", 10.0, (Profile("cpu", 1, 1, 20.0, power_w=4.0), Profile("cpu", 2, 1, 31.0, 70.0, 5.0)), 1.25),
        Module("lines", 40.0, (Profile("host", 1, 1, 0.4, power_w=1.0),)),
    ),
    (("find", "lines"),),
    (Existing("cpu", 1, (Part("harbour/secret", 0.4),), ("find",)),),
    CostBy.ENERGY,
    BatchWait.REST,
)


def test_pipeline_record_is_replayable() -> None:
    """`appliance plan` answers the record's problem with the record's answer, but for what the box adds."""
    plan = Frontier().plan(PROBLEM)
    facts = pipelines.pipeline("t/signs", "t", ["t/b", "t/a"], PROBLEM, plan, "frontier", "planned", "it has no plan")
    record = record_of(AT, "pipeline", facts)
    assert (record.kind, record.application, record.concerned) == ("pipeline", None, (("t/a", "t"), ("t/b", "t")))
    assert record.reason == plan.reason
    answer = plan_one(record.problem)
    own = {"outcome": "planned", "pipeline": "t/signs", "because": "it has no plan", "actions": []}
    assert {**record.answer} == {**own, **{key: value for key, value in answer.items() if key != "elapsed_ms"}}
    assert answer["feasible"]


def test_pipeline_record_is_replayable_where_workers_are_overcommitted() -> None:
    """Single calls take a tenth of a worker, of which a pipeline that was planned before has all but a twentieth."""
    taken = (
        Existing("cpu", 0, (Part("requests", 0.1), Part("harbour/secret", 0.5))),
        Existing("host", 0, (Part("harbour/secret", 0.45),)),
    )
    problem = replace(PROBLEM, existing=taken)
    plan = Frontier().plan(problem)
    facts = pipelines.pipeline("t/signs", "t", [], problem, plan, "frontier", "planned", "it has no plan")
    record = record_of(AT, "pipeline", facts)
    answer = plan_one(record.problem)
    assert {key: record.answer[key] for key in ("feasible", "allocations", "placement", "reason")} == {
        key: answer[key] for key in ("feasible", "allocations", "placement", "reason")
    }
    assert answer["feasible"]


def test_pipeline_record_hides_the_names_of_other_pipelines() -> None:
    """What other pipelines take is there, and not whose it is; a type without a group is written as before."""
    written = pipelines.pipeline_problem_json(PROBLEM)
    assert "secret" not in str(written)
    assert written["existing"][0]["parts"] == [{"module": "other", "share": 0.4}]
    assert [one.get("kind") for one in written["workers"]] == [None, "cpu"]
    plain = pipelines.pipeline_problem_json(replace(PROBLEM, workers=(WorkerType("gpu", 2.0),)))
    assert plain["workers"] == [{"name": "gpu", "cost": 2.0, "available": None}]
