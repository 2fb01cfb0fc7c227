"""Decisions: each is told once, with what was known, and says what it was decided by."""

import asyncio
from typing import Any

import pytest

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import CeilingReached, DeadlineExceeded, OutOfMemory, QuotaExceeded
from appliance.lab.plan import plan_one
from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem, Wish
from appliance.runtime.decisions.document import residency_record
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine

of_the_box = pytest.mark.parametrize("eviction", ["expected-utility", "iws-bfe"])


def plans(bench: EngineBench) -> list[ResidencyPlan]:
    """What the policy said, as recorded."""
    return [plan for _, d in bench.decisions.told if isinstance(plan := d.get("plan"), ResidencyPlan)]


def rules(bench: EngineBench) -> list[str]:
    """By what the arbiter itself decided, as recorded."""
    problems: list[Any] = [d["problem"] for _, d in bench.decisions.told]
    return [p["rule"] for p in problems if isinstance(p, dict) and "rule" in p]


@of_the_box
@story
async def test_cold_request_is_recorded_as_one_decision(eviction: str) -> None:
    """The policy is asked which variant, and again for room for it: that is one record, of the whole question."""
    async with at_work(engine({"large": Cost(60), "small": Cost(20)}, 100, eviction=eviction)) as bench:
        bench.add({"large": Cost(60), "small": Cost(20)}, name="other")
        await bench.infer()
        assert len(bench.decisions.told) == 1
        await bench.pause(60_000)
        await bench.infer(application="t/other")
    assert [kind for kind, _ in bench.decisions.told] == ["residency"] * 2
    problem = bench.decisions.told[-1][1]["problem"]
    assert isinstance(problem, ResidencyProblem)
    assert len(problem.by_name["t/other"].options) == 2


@of_the_box
@story
async def test_decision_record_leaves_out_wishes_for_unusable_variants(eviction: str) -> None:
    """The policy does not see a variant that is not worth keeping, or cannot be loaded now, and so the decision can be
    made again.
    """
    async with at_work(engine({"large": Cost(60), "small": Cost(20)}, 100, eviction=eviction)) as bench:
        bench.core.residency.wish("t/app", (Wish("small", 10**12, 1), Wish("needless", 10**12, 2)))
        await bench.infer()
    facts = bench.decisions.told[-1][1]
    problem, plan = facts["problem"], facts["plan"]
    assert isinstance(problem, ResidencyProblem)
    assert isinstance(plan, ResidencyPlan)
    assert [wish.variant for wish in problem.by_name["t/app"].wishes] == ["small"]
    record = residency_record(bench.clock.wall_now(), problem, plan, eviction)
    assert plan_one(dict(record.problem))["actions"] == record.answer["actions"]


@of_the_box
@story
async def test_window_load_is_recorded_as_one_decision(eviction: str) -> None:
    """Planned when the window opens, asked again for its room at the same moment: one record of it."""
    async with at_work(engine({"v": Cost(60), "w": Cost(20)}, 100, eviction=eviction), residency=True) as bench:
        for _ in range(4):
            await bench.infer()
            await bench.pause(9_000)
            await bench.memory.unload(bench.build("v"))
            await bench.pause(1_000)
    told = [(d["problem"], d["plan"]) for _, d in bench.decisions.told]
    made = [
        (p.now_ns, plan.changes)
        for p, plan in told
        if isinstance(p, ResidencyProblem) and isinstance(plan, ResidencyPlan)
    ]
    assert len(set(made)) == len(made) > 0
    assert bench.memory.loads >= 4


@story
async def test_refused_request_is_recorded_once_however_often_load_is_planned() -> None:
    """A load that waits for room is planned anew at every change: its request is refused once."""
    async with at_work(EngineBench(20, workers=3, wait_ms_max=500)) as bench:
        bench.add({"v": Cost(20, load_ms=0, run_ms=300)}, name="own")
        bench.add({"v": Cost(10)})
        running = [asyncio.create_task(bench.infer(application="t/own", within_ms=60_000)) for _ in range(3)]
        await bench.pause(1)
        before = len(bench.decisions.told)
        asked = asyncio.create_task(bench.infer(within_ms=60_000))
        await bench.pause(250)
        assert len(bench.decisions.told) == before + 1
        assert plans(bench)[-1].outcome == "failed"
        await asyncio.gather(asked, *running)


@pytest.mark.parametrize("costs", [{"v": Cost(30)}, {"v": Cost(40), "w": Cost(30)}])
@story
async def test_request_that_can_never_fit_is_recorded_as_one_refusal(costs: dict[str, Cost]) -> None:
    """To wait is of no use, so the request is refused at once; it is recorded like any other refusal."""
    async with at_work(engine(costs, 20)) as bench:
        bench.add({"v": Cost(5, load_ms=300)}, name="other")
        other = asyncio.create_task(bench.infer(application="t/other", within_ms=60_000))  # memory changes soon
        await bench.pause(1)
        before, start_ns = len(bench.decisions.told), bench.clock.now_ns()
        with pytest.raises(OutOfMemory):
            await bench.infer(within_ms=60_000)
        assert bench.clock.now_ns() == start_ns
        assert len(bench.decisions.told) == before + 1
        assert plans(bench)[-1].outcome == "failed"
        assert "too large" in plans(bench)[-1].reason
        await other


@story
async def test_variant_that_policy_does_not_know_adds_no_second_refusal() -> None:
    """`dear` is larger and no more accurate, so it is tried last, and the policy has no say in it."""
    async with at_work(EngineBench(100)) as bench:
        bench.add({"v": Cost(30), "dear": Cost(60)}, quota=Quota(memory_ceiling_bytes=10))
        with pytest.raises(CeilingReached):
            await bench.infer()
    assert [plan.outcome for plan in plans(bench)] == ["failed"]
    assert len(bench.decisions.told) == 1


@story
async def test_eviction_for_lowered_ceiling_is_recorded() -> None:
    """No request asked for room, and no policy was asked."""
    async with at_work(engine(Cost(30), 100), residency=True) as bench:
        await bench.infer()
        bench.catalogue.put_tenant(Tenant("t", Quota(memory_ceiling_bytes=10)))
        bench.core.residency.look_again()
        await bench.pause(100)
        assert not bench.memory.is_resident(bench.build("v"))
    told = [d for _, d in bench.decisions.told if isinstance(p := d["problem"], dict) and p.get("rule") == "ceiling"]
    assert len(told) == 1
    assert told[0]["answer"] == {
        "outcome": "shrunk",
        "actions": [{"application": "t/app", "from": "v", "to": None}],
        "reason": "a tenant has more than its ceiling",
    }


@story
async def test_patience_and_last_resort_are_recorded_as_decisions() -> None:
    """A request waits for a window to close, and then the expected one gets a smaller variant: both are told, and plan
    says that no policy made them.
    """
    async with at_work(EngineBench(20, patience_ms=50), residency=True) as bench:
        bench.add({"v": Cost(20, load_ms=300), "w": Cost(10)}, name="other")
        bench.add({"v": Cost(5)})
        for pause_ms in (3_000, 5_000, 3_000, 5_000, 2_000):
            await bench.infer(application="t/other")
            await bench.pause(pause_ms)
        while list(bench.core.residency.rows())[1]["set"] != "maximalist":
            await bench.pause(50)
        await bench.pause(350)
        await bench.infer()
    assert rules(bench)[-2:] == ["patience", "last resort"]
    last: Any = bench.decisions.told[-1][1]
    assert last["answer"]["actions"] == [{"application": "t/other", "from": "v", "to": "w"}]
    answer = plan_one(last["problem"])
    assert answer["plan"] is None
    assert answer["reason"]


@of_the_box
@pytest.mark.parametrize(
    ("cause", "words"),
    [("too large", "it is too large"), ("pinned", "t/other is pinned"), ("guaranteed", "u/other is guaranteed")],
)
@story
async def test_refusal_records_own_reason_for_each_cause_of_no_room(eviction: str, cause: str, words: str) -> None:
    async with at_work(EngineBench(20, eviction=eviction, patience_ms=None, wait_ms_max=50)) as bench:
        tenant = "u" if cause == "guaranteed" else "t"
        quota = Quota(memory_guarantee_bytes=20) if cause == "guaranteed" else None
        bench.add({"v": Cost(20)}, name="other", tenant=tenant, quota=quota)
        bench.add({"large": Cost(40 if cause == "too large" else 10), "small": Cost(30 if cause == "too large" else 5)})
        await bench.infer(application=f"{tenant}/other", tenant=tenant)
        held = bench.memory.pin_resident(bench.build("v", f"{tenant}/other")) if cause == "pinned" else None
        with pytest.raises(OutOfMemory):
            await bench.infer()
        if held is not None:
            bench.memory.unpin(held)
    assert words in plans(bench)[-1].reason


@story
async def test_refused_and_dropped_requests_are_recorded() -> None:
    """With the quota, the deadline and what was expected; `appliance plan` decides the same again."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost(run_ms=30)}, quota=Quota(requests_per_s=1))
        await bench.infer()
        with pytest.raises(QuotaExceeded):
            await bench.infer()
        await bench.pause(2_000)
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=20)
    (_, refused), (_, dropped) = [(kind, d) for kind, d in bench.decisions.told if kind in ("admission", "drop")]
    problem, drop = refused["problem"], dropped["problem"]
    assert isinstance(problem, dict)
    assert isinstance(drop, dict)
    assert (problem["quota"], problem["quotas"]["requests_per_s"]) == ("requests per second", 1)
    assert (drop["deadline_ms"], drop["expected_ms"]) == (20, 30)
    assert plan_one(problem)["outcome"] == "refused"
    assert plan_one({**problem, "tokens": 1.0})["outcome"] == "admitted"
    assert plan_one(drop)["outcome"] == "dropped"
    assert plan_one({**drop, "deadline_ms": drop["waited_ms"] + 30})["outcome"] == "kept"


@story
async def test_load_for_request_counts_as_reload() -> None:
    """Two applications that push each other out are seen to thrash, though the loop itself has loaded nothing."""
    bench = EngineBench(20)
    for name in ("app", "other"):
        bench.add({"v": Cost(20, load_ms=1, run_ms=1)}, name=name)
    async with at_work(bench):
        for _ in range(5):
            await bench.infer()
            await bench.infer(application="t/other")
    rows = bench.core.residency.rows()
    assert [row["reloads_per_min"] for row in rows] == [5, 5]
