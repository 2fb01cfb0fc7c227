"""The residency loop: what is expected is brought before it is asked for, and nobody takes what is about to change."""

import asyncio
from collections.abc import Mapping

import pytest

from appliance.domain.errors import LoadFailed, OutOfMemory
from appliance.policies.residency.base import Change, ResidencyPlan, ResidencyProblem, Wish
from appliance.policies.residency.steps import in_steps
from appliance.runtime.residency.enacting import PlanEnactor
from appliance.runtime.residency.loop import pause_ns
from appliance.runtime.residency.reloads import Reloads
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.policies import listen
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine

of_the_box = pytest.mark.parametrize("eviction", ["expected-utility", "iws-bfe"])


def residents(bench: EngineBench) -> Mapping[str, str | None]:
    """Application → its best variant in memory or on the way."""
    return {row["application"]: row["resident"] for row in bench.core.residency.rows()}


@of_the_box
@story
async def test_variant_of_expected_application_is_loaded_before_request(eviction: str) -> None:
    """Asked every 10 s, unloaded in between: the variant is back when the next request comes, which is warm."""
    async with at_work(engine({"large": Cost(60), "small": Cost(20)}, 100, eviction=eviction), residency=True) as bench:
        for _ in range(4):
            await bench.infer()
            await bench.pause(9_000)
            await bench.memory.unload(bench.build("large"))
            await bench.pause(1_000 - 110)
        assert residents(bench)["t/app"] is not None
        assert (await bench.infer()).warm


@of_the_box
@story
async def test_smaller_variant_leaves_when_better_variant_is_loaded(eviction: str) -> None:
    """The small one served while there was no room; when the large one is brought in its window, the small one goes."""
    async with at_work(EngineBench(100, eviction=eviction), residency=True) as bench:
        app = bench.add({"large": Cost(60), "small": Cost(20)})
        await bench.availability.load(app, "small")
        for _ in range(4):
            await bench.infer()
            await bench.pause(1_000)
        await bench.pause(1_000)
        assert bench.memory.resident_set() == [bench.build("large")]
        assert bench.memory.used_bytes == 60


@pytest.mark.parametrize("eviction", ["expected-utility", "iws-bfe", "lru"])
@story
async def test_larger_variant_is_loaded_when_windows_follow_without_pause(eviction: str) -> None:
    """Asked more often than the large variant takes to load, so that a window follows at once on the one before, the
    application is brought that variant when there is room for it; also by policies that move nothing by themselves.
    """
    async with at_work(
        engine({"large": Cost(60, load_ms=400), "small": Cost(20)}, 100, eviction=eviction), residency=True
    ) as bench:
        bench.add({"v": Cost(70)}, name="other")
        other = bench.build("v", "t/other")
        held = await bench.memory.pin(other, 70, 70, None)
        for _ in range(40):
            await bench.infer()
            await bench.pause(50)
        assert not bench.memory.is_resident(bench.build("large"))
        bench.memory.unpin(held)
        bench.core.residency.leave_out("t/other")
        await bench.memory.unload(other)
        for _ in range(60):
            await bench.infer()
            await bench.pause(50)
        assert bench.memory.is_resident(bench.build("large"))


@story
async def test_residency_change_is_not_ended_by_end_of_previous_change() -> None:
    """A change that begins in the very turn in which the first one ends is under way until it is over itself: no
    third joins it.
    """
    bench = engine({name: Cost(size) for name, size in (("large", 40), ("mid", 20), ("small", 10))}, 100)
    woken = asyncio.Event()
    core, clock = bench.core, bench.clock
    reloads = Reloads(clock, bench.telemetry, 30)
    enactor = PlanEnactor(
        groups=core.groups, arbiter=core.arbiter, memory=core.memory, reloads=reloads, on_brought=woken.set
    )
    bench.memory.watch(lambda _: woken.set(), lambda _: None, lambda _: None)
    group = core.groups.of_application("t/app")
    assert group is not None
    enactor.bring(group, "small")
    for _ in range(2):  # woken by the load's end, and by that of the change, as the loop itself is
        woken.clear()
        await woken.wait()
    enactor.bring(group, "mid")
    await settle()
    enactor.bring(group, "large")
    await settle()
    assert bench.memory.is_loading(bench.build("mid"))
    assert not bench.memory.is_loading(bench.build("large"))
    await bench.pause(1_000)
    assert bench.memory.resident_set() == [bench.build("mid")]


@story
async def test_residency_change_without_room_ends() -> None:
    """What was to be loaded does not fit any more: the application may be changed again, and gives way to others."""
    async with at_work(engine(Cost(20), 30), residency=True) as bench:
        bench.add({"w": Cost(20)}, name="other")
        held = await bench.memory.pin(bench.build("w", "t/other"), 20, 20, None)
        for _ in range(3):
            with pytest.raises(OutOfMemory):
                await bench.infer()
            await bench.pause(500)
        bench.memory.unpin(held)
        await bench.pause(2_000)
        assert (await bench.infer()).outputs["y"].tolist() == [2]
        await settle()


@story
async def test_loads_of_one_plan_fit_into_memory_together() -> None:
    """Each of two fits into what is free, both do not: one is loaded, and the other is no load that fails at once."""
    bench = EngineBench(30)
    changes = []
    for name in "ab":
        bench.add({"v": Cost(20)}, name=name)
        changes.append(Change(f"t/{name}", None, "v"))
    await bench.core.residency.enactor.enact(ResidencyPlan("cold", None, tuple(changes), "both"))
    await bench.pause(1_000)
    assert bench.memory.resident_set() == [bench.build("v", "t/a")]
    assert bench.memory.loads_skipped == 0


@story
async def test_change_that_a_request_has_overtaken_is_not_enacted() -> None:
    """Nothing was in memory when the plan was made; a request has brought the large variant meanwhile, and it stays."""
    bench = EngineBench(100)
    bench.add({"large": Cost(60), "small": Cost(20)})
    async with at_work(bench):
        await bench.infer()
        plan = ResidencyPlan("cold", None, (Change("t/app", None, "small"),), "it was cold")
        assert not await bench.core.residency.enactor.enact(plan)
        await bench.pause(1_000)
        assert bench.memory.resident_set() == [bench.build("large")]


@story
async def test_load_that_always_fails_is_retried_ever_less_often() -> None:
    """A variant that can be loaded comes in its place; a request tries the load all the same, and once the variant has
    been loaded all is as before.
    """
    failures: list[Exception] = [LoadFailed(build_id="large", reason="bad file") for _ in range(1000)]
    async with at_work(engine({"large": Cost(60, failures=failures), "small": Cost(20)}, 100), residency=True) as bench:
        bench.add({"only": Cost(10, failures=failures)}, name="other")
        await bench.pause(60_000)
        assert residents(bench) == {"t/app": "small", "t/other": None}
        assert bench.memory.load_failures == 2 * 6  # after 0, 1, 3, 7, 15 and 31 seconds
        with pytest.raises(LoadFailed):
            await bench.infer(application="t/other")
        failures.clear()
        assert (await bench.infer(application="t/other")).outputs["y"].tolist() == [2]
        await bench.pause(300_000)
        assert residents(bench) == {"t/app": "large", "t/other": "only"}


@story
async def test_residency_loop_looks_seldom_at_many_idle_applications() -> None:
    """A look takes longer the more applications there are, so looks come more seldom: 200 applications of which memory
    holds half, and one is expected.
    """
    bench = EngineBench(200)
    for index in range(200):
        bench.add({"v": Cost(2)}, name=f"app{index:03}")
    looks = set[int]()
    listen(
        bench.policies.eviction, lambda problem: looks.add(problem.now_ns) if problem.intent == "rebalance" else None
    )
    async with at_work(bench, residency=True):
        for _ in range(6):
            await bench.pause(20_000)
            await bench.infer(application="t/app000")
        looks.clear()
        await bench.pause(10_000)
    assert 10 <= len(looks) <= 16


@story
async def test_residency_loop_loads_no_variant_beside_load_of_request() -> None:
    """A request's load has no memory yet when the loop looks at what is left: it brings no other variant beside it."""
    async with at_work(engine({"v": Cost(12, load_ms=300), "w": Cost(3, load_ms=10)}, 100), residency=True) as bench:
        await bench.infer(within_ms=60_000)
        await bench.pause(5_000)
        assert bench.memory.loads == 1
        assert residents(bench) == {"t/app": "v"}


@story
async def test_residency_plan_drops_changes_overtaken_while_planned() -> None:
    """Among many applications a look has pauses: an application left out during a pause is not loaded, and the others
    are.
    """
    bench = EngineBench(1000)
    names = [f"app{i:03}" for i in range(200)]
    for name in names:
        bench.add({"v": Cost(2)}, name=name)
    listen(bench.policies.eviction, lambda problem: bench.core.residency.leave_out("t/app007"))
    async with at_work(bench, residency=True):
        await bench.pause(10_000)
    brought = {bench.build("v", f"t/{name}") for name in names} - {bench.build("v", "t/app007")}
    assert set(bench.memory.resident_set()) == brought


@story
async def test_residency_plan_that_was_overtaken_is_made_anew() -> None:
    """The small variant leaves while it is planned what comes in its place; no request comes after that."""
    bench = EngineBench(100, eviction="expected-utility")
    app = bench.add({"large": Cost(60), "small": Cost(20)})
    await bench.availability.load(app, "small")
    asked = list[str]()

    def leaves(problem: ResidencyProblem) -> None:
        asked.append(problem.intent)
        if len(asked) == 1:
            bench.memory.release(bench.build("small"))

    listen(bench.policies.eviction, leaves)
    async with at_work(bench, residency=True):
        await bench.pause(10_000)
    assert asked[0] == "rebalance"
    assert bench.memory.resident_set() == [bench.build("large")]


@pytest.mark.parametrize(("count", "more"), [(20, 0), (200, 1)])
@story
async def test_residency_look_at_many_applications_begins_with_separate_step(count: int, more: int) -> None:
    """What each application has is found out, then others have a turn before anything is weighed."""
    bench = EngineBench(1000, eviction="expected-utility")
    for index in range(count):
        bench.add({"v": Cost(2)}, name=f"app{index:03}")
    arbiter, memory = bench.core.arbiter, bench.memory
    budget_bytes, residents, now_ns = memory.budget_bytes, memory.residents(), bench.clock.now_ns()
    problem = arbiter.problem(budget_bytes, residents, now_ns, None, "rebalance")
    parts = sum(1 for _ in in_steps(bench.policies.eviction, problem))
    assert sum(1 for _ in arbiter.rebalance(budget_bytes, residents, now_ns)) == parts + more


@story
async def test_wishes_of_removed_application_leave_residency_loop() -> None:
    """Whether or not the planner takes them back: names come and go, and a new one of the name has other wishes. What a
    planner wishes takes nothing away from another one.
    """
    bench = EngineBench(budget=100)
    application = bench.add({"v": Cost(resident_bytes=40)})
    residency = bench.core.residency
    async with at_work(bench, residency=True):
        residency.wish("t/app", (Wish("v", 10**12, 2),), "pipelines")
        residency.wish("t/app", (Wish("v", 10**12, 1),))
        await bench.pause(10)
        assert bench.wishes() == {("v", 2), ("v", 1)}
        bench.catalogue.remove_application(application.id)
        await bench.infer(application=bench.add({"w": Cost(resident_bytes=40)}, name="other").id)
        await bench.pause(10)
        bench.add({"v": Cost(resident_bytes=40), "small": Cost(resident_bytes=10)})
        residency.wish("t/app", (Wish("small", 10**12, 1),))
        assert bench.wishes() == {("small", 1)}


def test_residency_loop_pauses_longer_after_long_turn() -> None:
    """No more than one per cent of a core, as long as the pause is no more than five ticks: a turn that was interrupted
    delays no expected application.
    """
    assert [pause_ns(20_000, took_ns) for took_ns in (0, 200, 300, 10**9)] == [20_000, 20_000, 30_000, 100_000]


@story
async def test_application_deleted_while_rows_are_made_has_no_row() -> None:
    """Nothing is expected of it any more, either."""
    bench = EngineBench(100)
    for name in "abc":
        bench.add({"small": Cost(20)}, name=name)
    rows = bench.core.residency.rows()
    first = next(rows)["application"]
    bench.catalogue.remove_application("t/b")
    assert [first, *(row["application"] for row in rows)] == ["t/a", "t/c"]
