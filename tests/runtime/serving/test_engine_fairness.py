"""Tenants share the processor by weight: no flood, no priority and no time limit of one keeps another waiting."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.catalogue import Quota
from appliance.domain.errors import Overloaded
from appliance.domain.request import FrameStanding, Result
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work
from tests.runtime.serving.floods import flood


async def waits_of(bench: EngineBench, times: int = 20) -> list[float]:
    """Milliseconds of waiting of requests of `quiet/app` twice a second."""
    waits = []
    for _ in range(times):
        await bench.pause(500)
        waits.append(ms((await bench.infer(application="quiet/app", tenant="quiet")).queue_ns))
    return waits


def two_tenants(flooder: Cost, *, measured: bool = True, **facts: Any) -> EngineBench:
    """With `greedy/flood`, and with `quiet/app`, whose runs take 10 ms."""
    bench = EngineBench(**facts)
    bench.add({"v": flooder}, name="flood", tenant="greedy", measured=measured)
    bench.add({"v": Cost(load_ms=0, run_ms=10)}, tenant="quiet")
    return bench


@pytest.mark.parametrize(
    "facts", [{}, {"priority": 1}, {"within_ms": 200.0}, {"within_ms": 35.0, "priority": 100}], ids=str
)
@story
async def test_flood_of_a_tenant_delays_others_by_one_run_at_most(facts: dict[str, Any]) -> None:
    """Twelve connections, with any priority and any time limit: another tenant waits for the run under way at most."""
    async with at_work(two_tenants(Cost(load_ms=0, run_ms=30))) as bench, flood(bench, "greedy/flood", 12, **facts):
        assert max(await waits_of(bench)) <= 30


@story
async def test_tenants_share_processor_time_by_weight() -> None:
    """1 : 3, both saturated, runs of different lengths: processor time is 1 : 3, but for a run of each."""
    async with at_work(EngineBench(workers=2)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=30)}, tenant="one", quota=Quota(processor_weight=1))
        bench.add({"v": Cost(load_ms=0, run_ms=7)}, tenant="three", quota=Quota(processor_weight=3))
        async with flood(bench, "one/app", 16) as one, flood(bench, "three/app", 16) as three:
            await bench.pause(20_000)
            assert one.ran_ns + three.ran_ns == pytest.approx(40 * NS_PER_S, rel=0.01)
            assert three.ran_ns / one.ran_ns == pytest.approx(3, rel=0.01)


@story
async def test_applications_share_their_tenants_time_by_weight() -> None:
    """One tenant with two applications, 1 : 4, beside another of the same weight: 10 %, 40 % and 50 % of the time."""
    names = ("two/small", "two/large", "one/one")
    async with at_work(EngineBench()) as bench:
        for name, weight in zip(names, (1.0, 4.0, 1.0), strict=True):
            tenant, own = name.split("/")
            application = bench.add({"v": Cost(load_ms=0, run_ms=10)}, name=own, tenant=tenant)
            bench.catalogue.put_application(replace(application, weight=weight))
        async with AsyncExitStack() as stack:
            floods = [await stack.enter_async_context(flood(bench, name, 8)) for name in names]
            await bench.pause(20_000)
            shares = [one.ran_ns / (20 * NS_PER_S) for one in floods]
    assert shares == [pytest.approx(share, abs=0.01) for share in (0.1, 0.4, 0.5)]


@pytest.mark.parametrize(
    ("profile_ms", "measured"), [(2000, True), (2000, False), (1, True)], ids=["known", "unknown", "longer than known"]
)
@story
async def test_long_runs_leave_the_last_worker_to_other_tenants(profile_ms: float, measured: bool) -> None:
    """Runs of 2 s, also where their length is unknown, or expected to be less before the first: another tenant finds a
    free worker, every time.
    """
    bench = two_tenants(Cost(load_ms=0, run_ms=profile_ms), measured=measured, workers=2)
    async with at_work(bench):
        await bench.infer(application="quiet/app", tenant="quiet")
        bench.processor.costs[bench.build("v", "greedy/flood")].run_ms = 2000
        async with flood(bench, "greedy/flood", 16, priority=9) as greedy:
            await bench.pause(2000)
            assert set(await waits_of(bench)) == {0}
            assert greedy.ran_ns >= 8 * NS_PER_S


@pytest.mark.parametrize("workers", [1, 2])
@story
async def test_lone_active_tenant_has_every_worker(workers: int) -> None:
    """A minute after the last request of any other tenant every worker is the flood's; and with one worker it never
    stands still.
    """
    async with at_work(two_tenants(Cost(load_ms=0, run_ms=2000), workers=workers)) as bench:
        await bench.infer(application="quiet/app", tenant="quiet")
        async with flood(bench, "greedy/flood", 16, within_ms=10**6) as greedy:
            await bench.pause(58_000)
            assert greedy.ran_ns == pytest.approx(58 * NS_PER_S, abs=2.1 * NS_PER_S)
            await bench.pause(6_000)
            before = greedy.ran_ns
            await bench.pause(20_000)
            assert greedy.ran_ns - before == pytest.approx(workers * 20 * NS_PER_S, abs=2.1 * workers * NS_PER_S)


@story
async def test_floods_of_two_tenants_use_every_worker() -> None:
    """No worker is kept free, and both tenants get half."""
    async with at_work(EngineBench(workers=2)) as bench:
        for tenant, run_ms in (("one", 300), ("two", 500)):
            bench.add({"v": Cost(load_ms=0, run_ms=run_ms)}, tenant=tenant)
        async with flood(bench, "one/app", 4) as one, flood(bench, "two/app", 4) as two:
            await bench.pause(60_000)
            assert one.ran_ns == pytest.approx(two.ran_ns, rel=0.03)
            assert one.ran_ns + two.ran_ns > 0.75 * 120 * NS_PER_S


@story
async def test_tenant_over_its_share_runs_nothing_inline_while_others_wait() -> None:
    """Its quick runs go in line with all others; other tenants keep theirs on the event loop."""
    async with at_work(EngineBench(quick_ms_max=0.25)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=40)}, name="slow", tenant="quiet")
        bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, name="tiny", tenant="greedy")
        bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, name="tiny", tenant="third")
        for name in ("quiet/slow", "greedy/tiny", "third/tiny"):
            await bench.infer(application=name, tenant=name.split("/")[0])
        slow = [asyncio.create_task(bench.infer(application="quiet/slow", tenant="quiet")) for _ in range(2)]
        await settle()
        turns: list[Result] = []
        while not turns or turns[-1].queue_ns == 0:
            turns.append(await bench.infer(application="greedy/tiny", tenant="greedy"))
        assert len(turns) > 300  # a run of 40 ms is worth 400 quick ones
        again = asyncio.create_task(bench.infer(application="greedy/tiny", tenant="greedy"))
        await settle()
        assert (await bench.infer(application="third/tiny", tenant="third")).queue_ns == 0
        await asyncio.gather(*slow, again)


@story
async def test_time_spent_outside_runs_is_charged_to_its_tenant() -> None:
    """A tenant whose texts took a second of another process waits until the other tenant has had as much."""
    bench = EngineBench()
    for tenant in ("a", "b"):
        bench.add({"v": Cost(load_ms=0, run_ms=10)}, tenant=tenant)
    async with at_work(bench):
        for tenant in ("a", "b"):
            await bench.infer(application=f"{tenant}/app", tenant=tenant)
        ended: list[str] = []

        async def ask(tenant: str) -> None:
            await bench.infer(application=f"{tenant}/app", tenant=tenant)
            ended.append(tenant)

        first = asyncio.create_task(ask("b"))
        await bench.pause(1)
        bench.engine.charge(bench.catalogue.entry("a/app").application, "a", 1_000_000_000)
        await asyncio.gather(first, ask("a"), *(ask("b") for _ in range(3)))
    assert ended == ["b", "b", "b", "b", "a"]


@pytest.mark.parametrize("processors", [1, 2])
@story
async def test_unplanned_items_wait_behind_planned_items_of_other_tenants(processors: int) -> None:
    """Of one tenant eight items wait that its plan does not count on, and one of another application that it does. A
    planned item of another tenant goes before all of those eight, whatever it comes after; unplanned calls do not. Once
    no planned item waits, they run.
    """
    bench = EngineBench(twins=[(1, 1.0, 1.0)] * (processors - 1))
    ended: list[str] = []

    async def ask(name: str, application: str, tenant: str, beyond_plan: bool | None) -> None:
        await bench.infer(1, application, tenant=tenant, beyond_plan=beyond_plan, is_item=True)
        ended.append(name)

    for tenant, names in (("crowded", ("many", "few")), ("other", ("other",))):
        for name in names:
            bench.add({"v": Cost(load_ms=0, run_ms=10)}, name=name, tenant=tenant)
    async with at_work(bench):
        await asyncio.gather(*(bench.infer(1, f"crowded/{name}", tenant="crowded") for name in ("many", "few")))
        await bench.infer(1, "other/other", tenant="other")
        first = [asyncio.create_task(ask("first", "other/other", "other", None)) for _ in range(processors)]
        await bench.pause(1)
        asked = [asyncio.create_task(ask("beyond", "crowded/many", "crowded", True)) for _ in range(8)]
        await bench.pause(1)
        asked.append(asyncio.create_task(ask("within", "crowded/few", "crowded", False)))
        asked += [asyncio.create_task(ask("planned", "other/other", "other", False)) for _ in range(3)]
        await asyncio.gather(*first, *asked)
    assert ended[:processors] == ["first"] * processors
    assert ended.index("beyond") > max(at for at, name in enumerate(ended) if name == "planned")
    assert ended.index("within") < ended.index("beyond")


@story
async def test_item_is_not_refused_for_work_that_begins_after_it() -> None:
    """By shares a network's items would be done beside as many of another one, too late for the last; the other
    network's items have time, though, and begin after them.
    """
    bench = EngineBench()
    for name in ("app", "other"):
        bench.add({"v": Cost(load_ms=0, run_ms=10)}, name=name)
    async with at_work(bench):
        for name in ("app", "other"):
            await bench.infer(1, f"t/{name}")
        asked = [asyncio.create_task(bench.infer(1, "t/other", is_item=True, within_ms=10_000)) for _ in range(10)]
        await bench.pause(1)
        asked += [asyncio.create_task(bench.infer(1, "t/app", is_item=True, within_ms=100)) for _ in range(4)]
        await bench.pause(1)
        with pytest.raises(Overloaded):
            await bench.infer(1, "t/app", within_ms=105)
        await bench.infer(1, "t/app", is_item=True, within_ms=105)
        await asyncio.gather(*asked)


@story
async def test_items_of_a_lost_frame_run_last() -> None:
    """Where not all items of a frame can be in time any more, the items of frames that can go first, though their
    deadlines are later; the lost frame's are answered once a worker is idle.
    """
    bench = EngineBench()
    for name in ("app", "other"):
        bench.add({"v": Cost(load_ms=0, run_ms=10)}, name=name)
    ended: list[str] = []

    async def ask(name: str, application: str, **facts: Any) -> None:
        await bench.infer(1, application, is_item=True, **facts)
        ended.append(name)

    async with at_work(bench):
        for name in ("app", "other"):
            await bench.infer(1, f"t/{name}")
        lost, whole = FrameStanding(), FrameStanding()
        tasks = [asyncio.create_task(ask("busy", "t/app", within_ms=1000))]
        await bench.pause(1)
        for behind in (2, 1, 0):
            facts: dict[str, Any] = {"frame": lost, "behind_ns": behind * 30_000_000}
            tasks.append(asyncio.create_task(ask("lost", "t/app", within_ms=60, **facts)))
        tasks.append(asyncio.create_task(ask("whole", "t/other", within_ms=90, frame=whole, behind_ns=10_000_000)))
        tasks.append(asyncio.create_task(ask("whole", "t/other", within_ms=90, frame=whole)))
        await asyncio.gather(*tasks)
        assert ended == ["busy", "whole", "whole", "lost", "lost", "lost"]
        assert lost.is_lost
        assert not whole.is_lost
