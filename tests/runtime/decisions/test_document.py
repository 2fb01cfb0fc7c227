"""A stored decision is a problem that `appliance plan` answers as the box did."""

import datetime
import json
from dataclasses import replace

import pytest

from appliance.domain.decisions import DecisionRecord
from appliance.lab.plan import plan_one
from appliance.policies.dispatch.base import DispatchInput, Job, Processor
from appliance.policies.dispatch.partition import uncut
from appliance.policies.dispatch.round_robin import RoundRobin
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.residency.base import ApplicationState, ResidencyProblem
from appliance.runtime.decisions.document import answer_json, dispatch_record, problem_json, residency_record
from tests.runtime.residency.residency_problems import NOW_NS, plan, problem


def sleeping(application: ApplicationState) -> ApplicationState:
    """The same, with variants that come by a wake."""
    return replace(
        application, options=tuple(replace(o, sleeps=True, load_ns=o.load_ns // 50) for o in application.options)
    )


PROBLEMS = {
    "serve": problem(),
    "of nobody": problem(None),
    "without shares": problem(tenants=False),
    "soon after start": replace(problem(), now_ns=NOW_NS),
    "no room at all": replace(problem(), memory_bytes=1_000_000_002, history_window_ns=3600 * 10**9),
    "procure": replace(problem(), intent="procure"),
    "of sleepers": replace(problem(), applications=tuple(sleeping(a) for a in problem().applications)),
}


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@pytest.mark.parametrize("asked", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_replayed_residency_decision_gives_the_same_answer(asked: ResidencyProblem, policy: str) -> None:
    """Through JSON and `appliance plan`, each policy says to each problem what it said in the box, the reason
    included.
    """
    decided = EVICTION_POLICIES[policy]().plan(asked)
    replayed = plan_one(json.loads(json.dumps(problem_json(asked, policy))))
    replayed.pop("elapsed_ms")
    assert replayed == answer_json(asked, decided)


def test_residency_record_keeps_exact_times_after_months() -> None:
    """The nanoseconds of every time survive, counted from the decision, and so do the bytes."""
    written = problem_json(problem(), "lru")["applications"][1]
    assert round(written["next_request_s"] * 1e9) == 60 * 10**9 + 7
    assert round(written["last_request_s"] * 1e9) == -10 * 10**9 - 1
    assert round(written["keep"][0]["until_s"] * 1e9) == 5 * 10**9 + 3
    assert round(written["variants"][0]["peak_mb"] * 1e6) == 612_345_678
    assert round(written["variants"][0]["load_ms"] * 1e6) == 900_000_123


def test_residency_record_names_the_applications_it_concerned() -> None:
    """The asker and the changed one, each with the tenant in its id; not applications that were only looked at."""
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    record = residency_record(at, problem(), plan(), "iws-bfe")
    assert isinstance(record, DecisionRecord)
    assert record.application == "harbour/face"
    assert record.concerned == (("harbour/face", "harbour"), ("harbour/text", "harbour"))
    assert record.reason == "harbour/text is not expected for 60 s"
    assert record.answer["free_mb"] == pytest.approx((1_200_000_007 - 500_000_001 * 2 - 140_000_003) / 1e6)


def test_application_name_without_a_tenant_belongs_to_its_models_tenant() -> None:
    """In a scenario names have no tenant before a slash."""
    plain = replace(problem(None), applications=(replace(problem().applications[0], name="face", tenant="museum"),))
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    record = residency_record(at, replace(plain, request="face"), replace(plan(), changes=()), "lru")
    assert record.concerned == (("face", "museum"),)


def test_dispatch_record_knows_how_long_each_job_was_queued() -> None:
    """In turns a job that came first, and is back in the queue, goes after one that came later; replayed, too."""
    network = uncut("run", {"one": 5.0})
    jobs = Job("01", network, -9.0, queued_ms=-1.0), Job("02", network, -3.0)
    asked = DispatchInput(0.0, (Processor("one"),), jobs)
    made = RoundRobin().plan(asked)
    assert made.decision is not None
    facts = {"problem": asked, "plan": made, "policy": "round-robin", "application": "t/app", "concerned": ()}
    record = dispatch_record(datetime.datetime(2026, 11, 24, tzinfo=datetime.UTC), facts)
    assert made.decision.job == "02"
    assert plan_one(dict(record.problem))["decision"] == record.answer["decision"]
