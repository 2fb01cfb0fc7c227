"""Networks that are cut run in parts, where that is quicker than any kind of processor that runs all of them: over
shared cores and over devices of their own, in virtual time.
"""

import asyncio
from dataclasses import replace

import pytest

from appliance.domain.errors import DeadlineExceeded
from appliance.domain.names import part_build_id
from appliance.domain.parts import BatchTime
from tests.fakes.clock import ms, settle, story
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, warm
from tests.runtime.serving.dispatch_records import replayed
from tests.runtime.serving.floods import flood
from tests.runtime.serving.parts_bench import (
    CUT,
    OTHER,
    TAKES,
    bench_of,
    in_memory,
    is_cut,
    ran,
    runs_late,
    variant_of,
)


@story
async def test_parts_run_on_the_kind_where_they_are_quickest() -> None:
    """One worker runs all of them, one after the other; the answer says what ran where."""
    async with at_work(bench_of()) as bench:
        assert bench.build("v").endswith("@cpu+npu")
        await bench.infer()
        start_ns = bench.clock.now_ns()
        answer = await bench.infer(5)
        assert answer.outputs["y"].tolist() == [16.0]
        assert ms(bench.clock.now_ns() - start_ns) == 6
        assert answer.compute_ns == 6_000_000
        assert answer.queue_ns == 0
        assert [(one.number, one.group, one.kind, ms(one.took_ns)) for one in answer.parts] == [
            (0, "fake", "npu", 2),
            (1, "fake", "cpu", 1),
            (2, "fake", "npu", 3),
        ]
        assert ran(bench) == [2, 4]
        await settle()
        assert [one.runs for one in bench.group.statuses(*bench.engine.run_totals())] == [2, 4]
        assert in_memory(bench) == {
            part_build_id(variant_of(bench).content_sha256, number, kind)
            for number, kind in enumerate(("npu", "cpu", "npu"))
        }
        (row,) = [one for one in bench.memory.snapshot()["builds"] if one["bytes"]]
        assert (row["build"], row["bytes"], row["applications"]) == (bench.build("v"), 15, ["t/app"])
        counted = bench.telemetry.statistics["t/app", "v", "t"].parts
        assert counted[1, "fake", "cpu"] == [2, 2_000_000]
        await bench.memory.unload(bench.build("v"))
        assert in_memory(bench) == set()


@pytest.mark.parametrize(
    ("whole_ms", "asked"),
    [(6.5, CUT.asked), (20, {"cpu": "", OTHER: "an older one"})],
    ids=["no slower", "old"],
)
@story
async def test_whole_network_serves_in_place_of_parts_of_no_use(whole_ms: float, asked: dict[str, str]) -> None:
    """Or that were made for other processors, so that it has to be cut anew first. Nothing of the parts is loaded."""
    async with at_work(bench_of(whole_ms=whole_ms, cut=False)) as bench:
        is_cut(bench, replace(CUT, asked=asked))
        answer = await bench.infer(5)
        assert answer.outputs["y"].tolist() == [16.0]
        assert (answer.parts, ran(bench)) == ((), [1, 0])
        assert in_memory(bench) == {bench.build("v")}


@pytest.mark.parametrize("apart", [False, True], ids=["shared cores", "a device of its own"])
@pytest.mark.parametrize("after_ms", [1.0, 5.0], ids=["its first run", "its second"])
@story
async def test_kind_lost_during_a_request_leaves_its_parts_to_the_first_kind(apart: bool, after_ms: float) -> None:
    """Parts that have run are not run again; the rest runs on the first kind, and then the whole serves."""
    async with warm(bench_of(apart=apart)) as bench:
        before = ran(bench)
        asked = asyncio.create_task(bench.infer(5))
        await bench.pause(after_ms)
        bench.other.is_gone = True
        answer = await asked
        assert answer.outputs["y"].tolist() == [16.0]
        numbers = [one.number for one in answer.parts]
        assert numbers == [0, 1, 2]
        assert [one.kind for one in answer.parts][-1] == "cpu"
        cpu, npu = (after - was for after, was in zip(ran(bench), before, strict=True))
        assert cpu + npu == 4, "three parts, and the run that was lost"
        assert not bench.member.is_serving
        for build in bench.memory.resident_set():  # as a box does with what nobody refers to any more
            bench.memory.dismiss(build)
        answer = await bench.infer(5)
        assert (answer.outputs["y"].tolist(), answer.parts) == ([16.0], ())
        await bench.pause(100)
        assert in_memory(bench) == {bench.build("v")}
        assert bench.build("v").endswith("@cpu")


@story
async def test_request_in_parts_is_refused_at_its_deadline() -> None:
    """In the middle of a part; the part under way is the last run, and holds what it runs on until it ends."""
    async with warm(bench_of()) as bench:
        bench.other.slowness = 10.0
        before, start_ns = ran(bench), bench.clock.now_ns()
        with pytest.raises(DeadlineExceeded) as late:
            await bench.infer(within_ms=12)
        assert ms(bench.clock.now_ns() - start_ns) == pytest.approx(12, abs=0.01)
        assert late.value.waited_ms == pytest.approx(12, abs=0.01)
        build = bench.memory.build(bench.build("v"))
        assert build is not None
        assert build.pins == 1
        await bench.pause(100)
        assert [after - was for after, was in zip(ran(bench), before, strict=True)] == [0, 1]
        assert build.pins == 0
        bench.other.slowness = 1.0
        with pytest.raises(DeadlineExceeded):  # it cannot be done in time, so nothing of it begins
            await bench.infer(within_ms=3)
        runs_late(bench)
        assert (await bench.infer(5, within_ms=3)).outputs["y"].tolist() == [16.0]


@pytest.mark.parametrize("apart", [False, True], ids=["shared cores", "a device of its own"])
@story
async def test_part_expected_to_take_minutes_does_not_make_its_kind_lost(apart: bool) -> None:
    """The limit of calls that never end is not meant for it."""
    long = tuple({kind: 30_000 * took_ms for kind, took_ms in takes_ms.items()} for takes_ms in TAKES)
    bench = bench_of(whole_ms=1e6, cut=False, apart=apart)
    parts = [
        replace(own, profiles=tuple(replace(p, times=(BatchTime(1, takes[p.kind]),)) for p in own.profiles))
        for own, takes in zip(CUT.parts, long, strict=True)
    ]
    for one in (bench.processor, bench.other):
        for build, cost in one.costs.items():
            if "." in build:
                cost.run_ms *= 30_000
    is_cut(bench, replace(CUT, parts=tuple(parts)))
    runs_late(bench)
    async with at_work(bench):
        answer = await bench.infer(5)
        assert [one.kind for one in answer.parts] == ["npu", "cpu", "npu"]
        assert bench.member.is_serving


@story
async def test_cancelled_request_in_parts_frees_its_worker_after_the_run() -> None:
    """A request that is cancelled while it waits leaves at once."""
    async with warm(bench_of()) as bench:
        first, waits, last = (asyncio.create_task(bench.infer(x)) for x in (1, 2, 3))
        await bench.pause(1)
        for one in (first, waits):
            one.cancel()
        await settle()
        assert first.cancelled()
        start_ns = bench.clock.now_ns()
        assert (await last).outputs["y"].tolist() == [10.0]
        assert ms(bench.clock.now_ns() - start_ns) == 7, "what is left of the part that runs, and three parts"


@story
async def test_tenants_share_time_where_a_network_runs_in_parts() -> None:
    """Of two tenants that always wait, one with a network in parts, each has half of the time."""
    bench = bench_of(workers=1)
    bench.add({"w": Cost(run_ms=6, load_ms=0)}, name="other", tenant="u")
    bench.follow_kinds()
    async with warm(bench):
        await bench.infer(application="u/other", tenant="u")
        async with flood(bench, "t/app", 3) as parts, flood(bench, "u/other", 3) as whole:
            await bench.pause(600)
        assert [len(parts.answers_ns), len(whole.answers_ns)] == pytest.approx([50, 50], abs=3)


@story
async def test_parts_on_a_separate_device_overlap_with_parts_on_cores() -> None:
    """The rest of a network waits for the other group, ahead of networks not begun yet; several requests overlap."""
    async with at_work(bench_of(apart=True)) as bench:
        answer = await bench.infer(5)
        assert [(one.number, one.group) for one in answer.parts] == [(0, "npu"), (1, "fake"), (2, "npu")]
        start_ns = bench.clock.now_ns()
        answers = await asyncio.gather(*(bench.infer(x, outputs=["y"]) for x in range(4)))
        assert ms(bench.clock.now_ns() - start_ns) < 4 * 6, "one after the other"
        assert [(*one.outputs, *one.outputs["y"].tolist()) for one in answers] == [("y", 3.0 * x + 1) for x in range(4)]
        assert all(one.busy_ms for one in bench.group.statuses(*bench.engine.run_totals()))


@story
async def test_dispatch_decision_about_parts_is_replayable() -> None:
    """Of a network in parts the operators are its parts; parts that have run are no part of the problem any more."""
    async with at_work(bench_of(apart=True)) as bench:
        for _ in range(6):
            await asyncio.gather(*(bench.infer(x) for x in range(3)))
            await bench.pause(1003)
    assert {len(model["units"]) for answer in replayed(bench) for model in answer["models"].values()} == {3}


@story
async def test_round_robin_puts_remaining_parts_at_the_tail_of_the_queue() -> None:
    """Of eight requests that come one after the other the last one begins, as soon as there is a processor for it,
    before the remaining parts of those that have come before it and have begun (BA-15).
    """
    async with warm(bench_of(apart=True, dispatch="round-robin")) as bench:
        bench.processor.ran.clear()
        asked = []
        for x in range(8):
            asked.append(asyncio.create_task(bench.infer(x)))
            await bench.pause(0.01)
        answers = await asyncio.gather(*asked)
    assert [one.outputs["y"].tolist() for one in answers] == [[3.0 * x + 1] for x in range(8)]
    first, second = [run["x"].tolist() for run in bench.processor.ran if "x" in run][:2]
    assert (first, second) == ([0.0], [7.0])
    assert "x" in bench.processor.ran[3], "the rest of another one ran before it"


@story
async def test_clusters_of_cores_each_run_all_parts_of_a_request() -> None:
    """With the other kind beside; two requests at once overlap. When a cluster is lost in the middle of the second part
    the other one goes on, with both kinds.
    """
    async with at_work(bench_of(twins=[(1, 1.0, 1.0)])) as bench:
        bench.other.workers = 2
        await bench.infer()
        start_ns = bench.clock.now_ns()
        answers = await asyncio.gather(*(bench.infer(x) for x in range(2)))
        assert ms(bench.clock.now_ns() - start_ns) == 6
        assert sorted(",".join({one.group for one in answer.parts}) for answer in answers) == ["fake", "twin-0"]
        asked = [asyncio.create_task(bench.infer(x)) for x in range(2)]
        await bench.pause(2.5)
        bench.twins[0].is_gone = True
        answers = await asyncio.gather(*asked)
        assert [one.outputs["y"].tolist() for one in answers] == [[1.0], [4.0]]
        assert {tuple(one.kind for one in answer.parts) for answer in answers} == {("npu", "cpu", "npu")}
        assert (bench.clusters[0].is_serving, bench.member.is_serving) == (False, True)
