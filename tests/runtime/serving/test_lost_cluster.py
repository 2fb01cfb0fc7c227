"""A cluster of cores beside the first goes, or stands: the others have its work, and it comes back by itself."""

import asyncio

from appliance.clock import NS_PER_S
from appliance.domain.errors import DeadlineExceeded
from appliance.domain.states import ProcessorState
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, ran, warm
from tests.runtime.serving.machine import Machine


def on_two_clusters(threads: int = 1) -> EngineBench:
    """The second one on the cores 2 and 3."""
    bench = EngineBench(100, twins=[(1, 1.0, 1.0)], threads=threads)
    bench.twins[0].cores = (2, 3)
    bench.clusters[0].described = bench.twins[0].describe()
    bench.add({"v": Cost(run_ms=20, resident_bytes=10, load_ms=5, asleep_bytes=1)})
    return bench


async def has_hung(bench: EngineBench) -> None:
    """A run of the second cluster takes ten minutes: its request is late, and others are served."""
    bench.twins[0].slowness = 30_000.0
    answers = await asyncio.gather(*(bench.infer(x, within_ms=50_000) for x in range(3)), return_exceptions=True)
    assert sum(isinstance(answer, DeadlineExceeded) for answer in answers) == 1
    await bench.pause(11_000)
    assert bench.clusters[0].state is ProcessorState.LOST


@story
async def test_cluster_with_an_offline_core_is_lost_until_the_core_is_back() -> None:
    """Its work is placed anew, each request is answered once, and nothing goes there until its cores are back and it
    has passed its probe; with new threads on its cores, for the system has moved the old ones.
    """
    bench, machine = on_two_clusters(), Machine(0, 1, 2, 3)
    cluster = bench.clusters[0]
    with machine.keeping(bench):
        async with at_work(bench):

            async def asked(number: int) -> float:
                await bench.pause(number // 2 * 50)
                return float((await bench.infer(number)).outputs["y"][0])

            tasks = [asyncio.create_task(asked(number)) for number in range(2400)]
            await bench.pause(4000)
            assert cluster.is_serving
            machine.cores.discard(3)
            await bench.pause(2000)
            status = bench.group.statuses(0, 0.0)[1]
            assert (status.description.name, status.state) == ("twin-0", ProcessorState.LOST)
            assert status.reason == "core 3 is offline"
            before = ran(bench)[1]
            await bench.pause(40_000)
            assert (ran(bench)[1], machine.probed) == (before, []), "polled, but not asked to compute"
            machine.cores.add(3)
            await bench.pause(5000)
            assert cluster.is_serving
            assert (machine.probed, bench.twins[0].renewed) == (["twin-0"], 1)
            assert [await task for task in tasks] == [2.0 * number for number in range(2400)]
            assert ran(bench)[1] > before
    bench.assert_quiet()


@story
async def test_cluster_lost_in_the_middle_of_a_run_costs_no_answer() -> None:
    bench, machine = on_two_clusters(), Machine(2, 3)
    with machine.keeping(bench):
        async with warm(bench):
            tasks = [asyncio.create_task(bench.infer()) for _ in range(6)]
            await settle()
            assert bench.twins[0].running == 1
            bench.twins[0].is_gone = True
            answers = await asyncio.gather(*tasks)
            assert [answer.outputs["y"].tolist() for answer in answers] == [[2.0]] * 6
            assert ran(bench)[1] == 1
            bench.twins[0].is_gone = False
            await bench.pause(40_000)
            await asyncio.gather(*(bench.infer() for _ in range(4)))
            assert ran(bench)[1] > 1


@story
async def test_cluster_whose_run_does_not_end_is_lost() -> None:
    """When its run has taken longer than any expectation. The build stays in memory for as long as that run uses it,
    whatever else needs its room.
    """
    bench, machine = on_two_clusters(), Machine(2, 3)
    with machine.keeping(bench):
        async with warm(bench):
            await has_hung(bench)
            assert "a run has not ended within" in bench.clusters[0].reason
            assert (await bench.infer(4)).outputs["y"].tolist() == [8.0]
            unloading = asyncio.create_task(bench.availability.unload(bench.catalogue.entry("t/app").application))
            await bench.pause(60_000)
            assert bench.processor.memory, "that run is at it yet"
            assert machine.probed == []
            await bench.pause(600_000)
            await unloading
            assert (bench.processor.memory, machine.probed) == ({}, ["twin-0"])
            assert bench.clusters[0].is_serving


@story
async def test_build_copies_leave_and_return_with_their_cluster() -> None:
    """Where a run has several threads each cluster has its own copy, and all count: the others keep theirs."""
    bench, machine = on_two_clusters(threads=2), Machine(2, 3)
    build = bench.build("v")

    def copies() -> list[dict[str, int]]:
        return [one.memory for one in (bench.processor, *bench.twins)]

    with machine.keeping(bench):
        async with warm(bench):
            assert (copies(), bench.memory.used_bytes) == ([{build: 10}] * 2, 20)
            machine.cores.clear()
            await bench.pause(6000)
            assert copies() == [{build: 10}, {}]
            await asyncio.gather(bench.infer(), bench.infer())
            machine.cores |= {2, 3}
            await bench.pause(40_000)
            assert copies() == [{build: 10}] * 2
            await asyncio.gather(bench.infer(), bench.infer())
            await bench.availability.unload(bench.catalogue.entry("t/app").application)
            assert copies() == [{}] * 2


@story
async def test_offline_core_is_noticed_while_a_probe_hangs() -> None:
    bench, machine = EngineBench(twins=[(1, 1.0, 1.0)] * 2), Machine(2, 3, 4, 5)
    for cluster, twin, cores in zip(bench.clusters, bench.twins, ((2, 3), (4, 5)), strict=True):
        twin.cores = cores
        cluster.described = twin.describe()
    machine.stands = True
    with machine.keeping(bench):
        bench.clusters[0].lose("it has gone")
        await bench.pause(40_000)
        assert machine.probed == ["twin-0"]
        machine.cores.discard(4)
        await bench.pause(6000)
        assert (bench.clusters[1].state, bench.clusters[1].reason) == (ProcessorState.LOST, "core 4 is offline")
        assert machine.probed == ["twin-0"], "once at a time"


@story
async def test_shutdown_does_not_wait_for_a_hanging_run() -> None:
    """The build that the run uses is not unloaded under it."""
    async with warm(on_two_clusters()) as bench:
        await has_hung(bench)
        start_ns = bench.clock.now_ns()
        await bench.memory.close()
        assert (bench.clock.now_ns() - start_ns) / NS_PER_S == 5
        assert set(bench.processor.memory) == {bench.build("v")}
