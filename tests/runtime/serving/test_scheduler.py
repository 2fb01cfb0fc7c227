"""Several groups of processors: what runs where and when, in virtual time."""

import asyncio
import itertools
from typing import Any

import pytest

from appliance.domain.errors import DeadlineExceeded
from appliance.policies.dispatch.base import DispatchInput
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.policies import listen
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine, ran, took_ms, warm
from tests.runtime.serving.dispatch_records import replayed
from tests.runtime.serving.floods import flood

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

LITTLE = (1, 3.0, 1 / 3)
"""A worker on a core that is a third as fast, as the machine says."""


def bench_of(*twins: tuple[int, float, float], **facts: Any) -> EngineBench:
    """One application whose runs take 10 ms on the first processor, which has one worker."""
    return engine(Cost(run_ms=10, load_ms=0), twins=twins or [LITTLE], **facts)


@pytest.mark.parametrize(
    ("twin", "count", "takes_ms", "runs"), [((1, 1.0, 1.0), 2, 10, [1, 1]), (LITTLE, 4, 30, [3, 1])]
)
@story
async def test_groups_run_requests_at_the_same_time(
    twin: tuple[int, float, float], count: int, takes_ms: int, runs: list[int]
) -> None:
    """Two requests at once on two equal groups take as long as one. Of four a slow core has the one that it finishes no
    later than the quick one would.
    """
    async with warm(bench_of(twin)) as bench:
        before = ran(bench)
        assert await took_ms(bench, *(bench.infer() for _ in range(count))) == takes_ms
        assert [after - was for was, after in zip(before, ran(bench), strict=True)] == runs


@story
async def test_request_that_is_late_on_the_slow_core_waits_for_the_quick_core() -> None:
    """It is in time there, though the slow core idles; and the slow core is left to requests that can wait. One that
    would be late on the quickest is dropped.
    """
    async with warm(bench_of()) as bench:
        first = asyncio.create_task(bench.infer())
        await settle()
        hasty = asyncio.create_task(bench.infer(within_ms=25))
        await settle()
        assert ran(bench) == [2, 0]
        await asyncio.gather(first, hasty)
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=5)
        assert ran(bench) == [3, 0]


@story
async def test_overrunning_run_sends_waiting_requests_to_another_processor() -> None:
    """The quick core hangs: a request that waited for it goes to the slow one, though nothing happens that would ask
    again.
    """
    async with warm(bench_of()) as bench:
        bench.processor.slowness = 1000.0
        standing = asyncio.create_task(bench.infer())
        await settle()
        assert (await bench.infer()).compute_ns == 30_000_000
        assert ran(bench) == [2, 1]
        standing.cancel()


@story
async def test_learnt_run_times_decide_the_placement() -> None:
    """The machine says that both are alike, but the second is slower: after some runs it has the share that it is
    worth, and the profile of either says what it is.
    """
    async with at_work(bench_of((1, 3.0, 1.0))) as bench:
        for _ in range(50):
            await asyncio.gather(bench.infer(), bench.infer(), bench.infer(), bench.infer())
        quick, slow = ran(bench)
        assert slow < quick / 2
        servable = bench.catalogue.entry("t/app").servables["v"]
        now_ns = bench.clock.now_ns()
        takes = [times.usual.expected_ns(1, 1, now_ns) / 1e6 for times in servable.places.values() if times]
        assert takes == pytest.approx([10, 30], rel=0.1)
        bench.processor.slowness, before = 2.0, ran(bench)  # it slows down by half
        for _ in range(17):
            await asyncio.gather(bench.infer(), bench.infer(), bench.infer())
        assert ran(bench)[0] - before[0] <= 50
        now_ns = bench.clock.now_ns()
        times = servable.places[0]
        assert times is not None
        assert times.usual.expected_ns(1, 1, now_ns) / 1e6 == pytest.approx(20, rel=0.1)


@story
async def test_pace_of_a_processor_is_learnt_across_networks() -> None:
    """What one network has shown of a processor is expected of another network that has not run there."""
    async with at_work(bench_of((1, 3.0, 1.0))) as bench:
        bench.add({"w": Cost(run_ms=10, load_ms=0)}, name="other")
        for _ in range(30):
            await asyncio.gather(*(bench.infer() for _ in range(5)))
        servable = bench.catalogue.entry("t/other").servables["w"]
        times = servable.places[1]
        assert times is not None
        assert times.usual.expected_ns(1, 1, bench.clock.now_ns()) / 1e6 == pytest.approx(30, rel=0.15)


@story
async def test_waiting_requests_join_the_run_that_was_placed() -> None:
    """Requests of equal shapes that wait share the run of the request whose turn it is."""
    async with at_work(
        engine(Cost(run_ms=10, load_ms=0, run_ms_by_batch={2: 11, 4: 12, 8: 14}), twins=[(1, 1.0, 1.0)])
    ) as bench:
        await bench.infer()
        answers = await asyncio.gather(*(bench.infer(x) for x in range(18)))
        assert [answer.outputs["y"].tolist() for answer in answers] == [[2.0 * x] for x in range(18)]
        assert max(len(each) for one in (bench.processor, *bench.twins) for each in one.ran_for) >= 4
        assert sum(ran(bench)) <= 10


@story
async def test_flood_of_a_tenant_leaves_half_of_both_groups_to_another() -> None:
    """One tenant floods both groups; the other's requests one by one get half of what there is."""
    async with at_work(EngineBench(twins=[LITTLE], queue_total=400, queue_len=400)) as bench:
        for tenant in ("flood", "calm"):
            bench.add({"v": Cost(run_ms=10, load_ms=0)}, tenant=tenant)
        async with flood(bench, "flood/app", 40) as many, flood(bench, "calm/app", 3) as few:
            await bench.pause(5000)
        assert 0.8 < len(few.answers_ns) / len(many.answers_ns) < 1.25
        assert len(few.answers_ns) + len(many.answers_ns) > 0.95 * 5000 * (1 / 10 + 1 / 30)


@story
async def test_requests_of_higher_priority_have_the_quick_core() -> None:
    """Of one tenant; the requests of lower priority take what would idle."""
    async with at_work(bench_of()) as bench:
        bench.add({"w": Cost(run_ms=10, load_ms=0)}, name="other")
        await bench.infer()
        await bench.infer(application="t/other")
        low = [asyncio.create_task(bench.infer(priority=0)) for _ in range(4)]
        high = [asyncio.create_task(bench.infer(application="t/other", priority=5)) for _ in range(2)]
        answers = await asyncio.gather(*high)
        assert max(ms(answer.queue_ns) for answer in answers) <= 20
        assert not all(task.done() for task in low)
        await asyncio.gather(*low)


@pytest.mark.parametrize("haste", [{"priority": 5}, {"within_ms": 100}])
@story
async def test_application_without_priority_keeps_half_of_its_tenants_time(haste: dict[str, int]) -> None:
    """Of two applications of one tenant that always wait each has half, though all requests to one of them have a
    priority, or less time.
    """
    async with at_work(bench_of((1, 1.0, 1.0))) as bench:
        bench.add({"w": Cost(run_ms=10, load_ms=0)}, name="other")
        async with flood(bench, "t/app", 6, **haste) as hasty, flood(bench, "t/other", 6) as other:
            await bench.pause(5000)
        assert 0.9 < len(other.answers_ns) / len(hasty.answers_ns) < 1.1


async def frame_ms(bench: EngineBench, count: int) -> float:
    """What one takes of so many frames of each of two streams; in each frame every application is asked once."""
    names = [entry.application.id for entry in bench.catalogue.entries()]

    async def stream() -> None:
        for _ in range(count):
            await asyncio.gather(*(bench.infer(application=name) for name in names))

    return await took_ms(bench, stream(), stream()) / (2 * count)


@story
async def test_scheduler_serves_more_frames_than_the_best_fixed_map() -> None:
    """More than the best map of networks to two equal cores gives; and when one core slows down by half, a fifth more
    than that map then gives.
    """
    runs_ms = (5, 8, 12, 20)
    maps = list(itertools.product((0, 1), repeat=len(runs_ms)))

    def expected_ms(place: tuple[int, ...], slowness: float) -> float:
        """Of a frame, once many are under way."""
        loads = [0.0, 0.0]
        for core, run_ms in zip(place, runs_ms, strict=True):
            loads[core] += run_ms * (slowness if core else 1)
        return max(loads)

    bench = EngineBench(1000, twins=[(1, 1.0, 1.0)])
    for at, run_ms in enumerate(runs_ms):
        bench.add({"v": Cost(run_ms=run_ms, load_ms=0)}, name=f"net{at}")
    before = min(maps, key=lambda place: expected_ms(place, 1.0))
    async with at_work(bench):
        await frame_ms(bench, 5)
        assert await frame_ms(bench, 100) < expected_ms(before, 1.0) / 1.1
        bench.twins[0].slowness = 2.0
        await frame_ms(bench, 25)
        assert await frame_ms(bench, 100) < expected_ms(before, 2.0) / 1.2
        assert await frame_ms(bench, 100) < min(expected_ms(place, 2.0) for place in maps)


@story
async def test_models_fixed_to_a_processor_wait_for_it() -> None:
    """Under `fixed` a model waits for the processor that the operator has named, although another one idles, and
    requests behind it go on; the record says so, and is decided alike again.
    """
    bench = EngineBench(1000, twins=[(1, 1.0, 1.0)], dispatch="fixed", fixed={"t/a": "twin-0", "t/b": "fake"})
    for name in ("a", "b"):
        bench.add({"v": Cost(run_ms=10, load_ms=0)}, name=name)
    async with at_work(bench):
        for name in ("a", "b"):
            await bench.infer(application=f"t/{name}")
        assert ran(bench) == [1, 1]
        names = ["t/a", "t/a", "t/b", "t/a"]
        assert await took_ms(bench, *(bench.infer(application=name) for name in names)) == 30
        assert ran(bench) == [2, 4]
    assert {answer["decision"]["processor"] for answer in replayed(bench)} <= {"fake", "twin-0"}
    assert replayed(bench)


@story
async def test_dispatch_decisions_are_sampled_and_replayable() -> None:
    """One a second, whole. Jobs are named by their places, for how many there were is no tenant's business."""
    async with at_work(bench_of()) as bench:
        for _ in range(20):
            await bench.infer()
        for _ in range(3):
            await bench.pause(1000)
            await asyncio.gather(*(bench.infer() for _ in range(6)))
    assert 3 <= len(replayed(bench)) <= 5
    for kind, facts in bench.decisions.told:
        if kind == "dispatch":
            problem: Any = facts["problem"]
            assert [job.name for job in problem.jobs] == [f"{at:02}" for at in range(1, len(problem.jobs) + 1)]


@story
async def test_dispatch_policy_is_not_asked_where_no_job_can_begin() -> None:
    """All jobs would be late on the slow core, which idles, so that they wait for the quick one: however many tenants
    they are of, the decision costs next to nothing.
    """
    bench = EngineBench(1000, twins=[LITTLE])
    tenants = [f"t{at}" for at in range(50)]
    for tenant in tenants:
        bench.add({"v": Cost(run_ms=10, load_ms=0)}, tenant=tenant)
    async with at_work(bench):
        for tenant in tenants:
            await bench.infer(application=f"{tenant}/app", tenant=tenant)
        asked = list[DispatchInput]()
        listen(bench.policies.dispatch, asked.append)
        ends = await asyncio.gather(
            *(bench.infer(application=f"{tenant}/app", tenant=tenant, within_ms=28) for tenant in tenants),
            return_exceptions=True,
        )
        assert sum(not isinstance(end, BaseException) for end in ends) == 2
        assert 0 < len(asked) <= 10


@story
async def test_processor_under_measurement_is_left_alone() -> None:
    """Its run under way is waited for, and nothing begins until the end, while the other processor serves; then it is
    used again at once (BA-19).
    """
    async with warm(bench_of((1, 1.0, 1.0))) as bench:
        under_way = [asyncio.create_task(bench.infer()) for _ in range(4)]
        await settle()
        start_ns, before = bench.clock.now_ns(), ran(bench)
        async with bench.engine.paused("fake"):
            assert ms(bench.clock.now_ns() - start_ns) == 10
            await asyncio.gather(*under_way)
            assert ran(bench) == [before[0], before[1] + 2]
            await asyncio.gather(*(bench.infer() for _ in range(3)))
            assert ran(bench)[0] == before[0]
            waiting = [asyncio.create_task(bench.infer()) for _ in range(2)]
            await settle()
        await settle()
        assert ran(bench)[0] == before[0] + 1
        await asyncio.gather(*waiting)


@story
async def test_kind_without_cores_is_measured_on_those_of_one_processor() -> None:
    """OpenVINO computes on whatever core is free: one is kept free for it, and the other processor serves (BA-19)."""
    async with warm(bench_of((1, 1.0, 1.0), other_kind="openvino")) as bench:
        under_way = [asyncio.create_task(bench.infer()) for _ in range(4)]
        await settle()
        start_ns, before = bench.clock.now_ns(), ran(bench)
        async with bench.engine.paused(bench.other.describe().name):
            assert ms(bench.clock.now_ns() - start_ns) == 10
            await asyncio.gather(*under_way, bench.infer())
            assert ran(bench) == [before[0], before[1] + 3]
        await asyncio.gather(*(bench.infer() for _ in range(2)))
        assert ran(bench)[0] > before[0]


@story
async def test_measurement_leaves_no_processor_idle_that_requests_need() -> None:
    """With one group of processors; on a device that alone runs its kind; and when the other processor goes."""
    alone = engine(Cost(run_ms=10, load_ms=0))
    async with alone.working(), alone.engine.paused("fake"):
        await alone.infer()
    async with warm(bench_of((1, 1.0, 1.0), other_kind="cuda", apart=True)) as bench:
        async with bench.engine.paused("cuda"):
            await asyncio.gather(bench.infer(), bench.infer())
        before = ran(bench)
        async with bench.engine.paused("fake"):
            waiting = [asyncio.create_task(bench.infer()) for _ in range(2)]
            await settle()
            bench.clusters[0].lose("its cores are gone")
            await asyncio.gather(*waiting)
            assert ran(bench)[0] > before[0]
