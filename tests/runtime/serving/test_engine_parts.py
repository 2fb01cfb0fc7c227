"""Networks that are cut run in parts, where that is quicker than any kind of processor that runs all of them: over
shared cores and over devices of their own, in virtual time.
"""

import asyncio
import gc
import random
import weakref
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Late, Latency, Quota, Variant
from appliance.domain.errors import DeadlineExceeded, LoadFailed, Overloaded, RunFailed
from appliance.domain.names import part_build_id
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.domain.request import Result, Tensors
from appliance.lab.plan import plan_one
from appliance.policies.dispatch.base import DispatchInput
from appliance.runtime.decisions.document import dispatch_record
from appliance.runtime.serving.dispatcher import Dispatching, PartsDispatcher
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

OTHER = "npu"
TAKES = ({"cpu": 4.0, OTHER: 2.0}, {"cpu": 1.0}, {"cpu": 6.0, OTHER: 3.0})
"""Of each part, by the kinds that run it: milliseconds."""


def network(inputs: Tensors) -> dict[str, Any]:
    """y = 3 (x + 1) - 2, in three steps; whoever has a tensor on the way goes on from there."""
    there: dict[str, Any] = dict(inputs)
    if "x" in there:
        there["a"] = there["x"] + 1
    if "a" in there:
        there["b"] = there["a"] * 3
    if "b" in there:
        there["y"] = there["b"] - 2
    return there


def part(takes_ms: dict[str, float], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Part:
    profiles = tuple(PartProfile(kind, (BatchTime(1, took_ms),), True, 5, 6) for kind, took_ms in takes_ms.items())
    return Part(1, {}, inputs, outputs, 4, 1.0, 4, profiles)


CUT = Cut(
    {"cpu": "", OTHER: ""},
    tuple(part(*one) for one in zip(TAKES, (("x",), ("a",), ("b",)), (("a",), ("b",), ("y",)), strict=True)),
)


def bench_of(*, whole_ms: float = 20, cut: bool = True, **facts: Any) -> EngineBench:
    """One variant that the other kind does not run whole."""
    bench = EngineBench(other_kind=OTHER, model=network, **facts)
    bench.add({"v": Cost(run_ms=whole_ms, load_ms=5)})
    bench.follow_kinds()
    bench.member.serve()
    for number, takes_ms in enumerate(TAKES):
        for kind, took_ms in takes_ms.items():
            processor = bench.processor if kind == "cpu" else bench.other
            build = part_build_id(variant_of(bench).content_sha256, number, kind)
            processor.costs[build] = Cost(resident_bytes=5, peak_bytes=6, load_ms=5, run_ms=took_ms)
    if cut:
        is_cut(bench)
    return bench


def variant_of(bench: EngineBench) -> Variant:
    return bench.catalogue.entry("t/app").model.variants[0]


def is_cut(bench: EngineBench, cut: Cut = CUT) -> None:
    """The import has cut it."""
    model = bench.catalogue.entry("t/app").model
    bench.catalogue.put_model(replace(model, variants=(replace(model.variants[0], cut=cut),)))


def runs_late(bench: EngineBench) -> None:
    """Requests are answered whenever they are done."""
    bench.catalogue.put_application(replace(bench.catalogue.entry("t/app").application, late=Late.RUN))


def ran(bench: EngineBench) -> list[int]:
    """Runs of each kind."""
    return [len(bench.processor.ran), len(bench.other.ran)]


def in_memory(bench: EngineBench) -> set[str]:
    return {*bench.processor.memory, *bench.other.memory}


@story
async def test_each_part_runs_where_it_is_quickest() -> None:
    """One worker runs all of them, one after the other; what it computed and what ran where is told."""
    bench = bench_of()
    assert bench.build("v").endswith("@cpu+npu")
    async with bench.working():
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
    bench.assert_quiet()


@story
async def test_parts_are_worked_out_once_for_all_who_use_them() -> None:
    """Not by each application that is put, nor where the API asks; anew when a kind goes, or the model changes."""
    bench = bench_of(apart=True)
    first = bench.catalogue.entry("t/app")
    parts = first.servables["v"].parts
    assert parts is not None
    bench.catalogue.put_application(replace(first.application, id="t/second", name="second"))
    assert bench.catalogue.entry("t/second").servables["v"].parts is parts
    assert bench.catalogue.servables.kind_of(variant_of(bench), first.model) == parts.kind
    bench.catalogue.put_application(first.application)
    assert bench.catalogue.entry("t/app").servables["v"].parts is parts
    bench.catalogue.leave_out(frozenset({OTHER}))
    assert bench.catalogue.entry("t/app").servables["v"].parts is None
    bench.catalogue.leave_out(frozenset())
    again = bench.catalogue.entry("t/app").servables["v"].parts
    assert again is not None
    assert again.build_id == parts.build_id
    is_cut(bench, replace(CUT, parts=(part({"cpu": 9.0, OTHER: 1.0}, ("x",), ("a",)), *CUT.parts[1:])))
    changed = bench.catalogue.entry("t/app").servables["v"].parts
    assert changed is not None
    assert changed.profile.latencies != parts.profile.latencies


@story
async def test_the_whole_serves_where_it_is_quicker() -> None:
    """Or hardly slower: nothing of the parts is loaded."""
    bench = bench_of(whole_ms=6.5)
    async with bench.working():
        answer = await bench.infer(5)
        assert answer.outputs["y"].tolist() == [16.0]
        assert (answer.parts, ran(bench)) == ((), [1, 0])
        assert in_memory(bench) == {bench.build("v")}
    bench.assert_quiet()


@story
async def test_what_was_cut_for_other_processors_serves_whole() -> None:
    """It is cut anew first."""
    bench = bench_of(cut=False)
    is_cut(bench, replace(CUT, asked={"cpu": "", OTHER: "an older one"}))
    async with bench.working():
        await bench.infer()
        assert ran(bench) == [1, 0]
    bench.assert_quiet()


@story
async def test_the_whole_serves_until_the_parts_are_there() -> None:
    """Nobody waits for what is cut while it serves; what takes their place goes when they have come."""
    bench = bench_of(cut=False)
    async with bench.working(residency=True):
        await bench.infer()
        whole = bench.build("v")
        is_cut(bench)
        answer = await bench.infer()
        assert (answer.parts, answer.load_ns, answer.warm) == ((), 0, True)
        await bench.pause(2000)
        answer = await bench.infer()
        assert (len(answer.parts), answer.load_ns, answer.warm) == (3, 0, True)
        assert not bench.memory.is_resident(whole)
    bench.assert_quiet()


@story
async def test_the_whole_stays_where_there_is_no_room_beside_it() -> None:
    """Its parts would fit in its place: then nothing would be there while they are loaded, so it goes on serving."""
    bench = bench_of(cut=False)
    bench.memory.resize(20)
    async with bench.working(residency=True):
        await bench.infer()
        whole = bench.build("v")
        is_cut(bench)
        for _ in range(20):
            answer = await bench.infer()
            assert (answer.load_ns, answer.warm) == (0, True)
            await bench.pause(100)
        assert bench.memory.resident_set() == [whole]
        assert bench.memory.evictions == 0
        bench.memory.resize(30)
        await bench.pause(2000)
        assert len((await bench.infer()).parts) == 3
        assert not bench.memory.is_resident(whole)
    bench.assert_quiet()


@story
async def test_what_serves_in_the_place_of_parts_is_no_first_victim() -> None:
    """Who was asked a moment ago keeps it; what was asked for long ago gives way."""
    bench = bench_of(cut=False)
    bench.memory.resize(20)
    bench.add({"w": Cost(resident_bytes=8, run_ms=3, load_ms=5)}, name="old", tenant="u")
    bench.add({"z": Cost(resident_bytes=7, run_ms=3, load_ms=5)}, name="new", tenant="u")
    async with bench.working():
        await bench.infer(application="u/old", tenant="u")
        await bench.pause(60_000)
        await bench.infer()
        whole = bench.build("v")
        is_cut(bench)
        await bench.infer()
        await bench.infer(application="u/new", tenant="u")
        assert bench.memory.resident_set() == [bench.build("z", "u/new"), whole]
        assert (await bench.infer()).warm
        rows = {row["application"]: row for row in bench.core.residency.snapshot()["applications"]}
        assert (rows["t/app"]["resident"], rows["t/app"]["variants"]) == ("v", ["v", "v whole"])
    bench.assert_quiet()


@story
async def test_parts_give_way_and_come_back() -> None:
    """Another model needs their room: all of them leave for it, and are loaded again for the next request."""
    bench = bench_of()
    bench.memory.resize(20)
    bench.add({"w": Cost(resident_bytes=12, run_ms=3, load_ms=5)}, name="other", tenant="u")
    async with bench.working():
        for _ in range(2):
            assert len((await bench.infer()).parts) == 3
            assert len(in_memory(bench)) == 3
            await bench.pause(5000)
            await bench.infer(application="u/other", tenant="u")
            assert in_memory(bench) == {bench.build("w", "u/other")}
            await bench.pause(5000)
        assert bench.memory.evictions == 3
        assert bench.memory.used_bytes == 12
    bench.assert_quiet()


@story
async def test_the_whole_serves_where_a_part_does_not_load() -> None:
    """What was loaded of the others leaves again."""
    bench = bench_of()
    bench.source.missing.add(part_build_id(variant_of(bench).content_sha256, 2, OTHER))
    async with bench.working():
        answer = await bench.infer(5)
        assert answer.outputs["y"].tolist() == [16.0]
        assert (answer.parts, ran(bench)) == ((), [1, 0])
        assert len(in_memory(bench)) == 1
        bench.source.missing.add(in_memory(bench).pop())
        await bench.memory.unload(bench.catalogue.entry("t/app").servables["v"].builds[1])
        with pytest.raises(LoadFailed):
            await bench.infer(5)
    bench.assert_quiet()


@story
async def test_a_part_in_place_of_a_lost_one_counts_with_all_its_copies() -> None:
    """Where runs have several threads, each processor of the first kind has its own."""
    bench = bench_of(twins=[(1, 1.0, 1.0)], threads=2)
    for twin in bench.twins:
        twin.costs.update(bench.processor.costs)
    build_id = part_build_id(variant_of(bench).content_sha256, 2, "cpu")
    counted: set[int] = set()
    async with bench.working():
        await bench.infer()
        asked = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        bench.other.is_gone = True
        while not asked.done():
            await bench.pause(0.5)
            build = bench.memory.build(build_id)
            counted |= {build.bytes} if build is not None and build.pins and not build.loading else set()
        assert (await asked).outputs["y"].tolist() == [16.0]
    assert counted == {10}
    bench.assert_quiet()


@pytest.mark.parametrize("apart", [False, True], ids=["shared cores", "a device of its own"])
@pytest.mark.parametrize("after_ms", [1.0, 5.0], ids=["its first run", "its second"])
def test_a_kind_that_is_lost_on_the_way(apart: bool, after_ms: float) -> None:
    """What has run is not run again; the rest runs on the first kind, and then the whole serves."""

    @story
    async def told() -> None:
        bench = bench_of(apart=apart)
        async with bench.working():
            await bench.infer()
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
        bench.assert_quiet()

    told()


@story
async def test_the_deadline_counts_once() -> None:
    """It is told at the deadline, in the middle of a part; what is under way is the last run, and holds what it runs
    on until it ends.
    """
    bench = bench_of()
    async with bench.working():
        await bench.infer()
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
    bench.assert_quiet()


@pytest.mark.parametrize("apart", [False, True], ids=["shared cores", "a device of its own"])
def test_a_part_that_takes_minutes_does_not_make_its_kind_lost(apart: bool) -> None:
    """Where that is what is expected of it: no limit of calls that never end is meant for it."""
    long = tuple({kind: 30_000 * took_ms for kind, took_ms in takes_ms.items()} for takes_ms in TAKES)

    @story
    async def told() -> None:
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
        async with bench.working():
            answer = await bench.infer(5)
            assert [one.kind for one in answer.parts] == ["npu", "cpu", "npu"]
            assert bench.member.is_serving
        bench.assert_quiet()

    told()


@story
async def test_who_cancels_frees_the_worker_after_the_run() -> None:
    """While it waits: at once."""
    bench = bench_of()
    async with bench.working():
        await bench.infer()
        first, waits, last = (asyncio.create_task(bench.infer(x)) for x in (1, 2, 3))
        await bench.pause(1)
        for one in (first, waits):
            one.cancel()
        await settle()
        assert first.cancelled()
        start_ns = bench.clock.now_ns()
        assert (await last).outputs["y"].tolist() == [10.0]
        assert ms(bench.clock.now_ns() - start_ns) == 7, "what is left of the part that runs, and three parts"
    bench.assert_quiet()


@story
async def test_tenants_have_their_shares() -> None:
    """Of two tenants that always wait, one with a network in parts, each has half of the time."""
    bench = bench_of(workers=1)
    bench.add({"w": Cost(run_ms=6, load_ms=0)}, name="other", tenant="u", quota=Quota())
    bench.follow_kinds()
    async with bench.working():
        await bench.infer()
        await bench.infer(application="u/other", tenant="u")
        until_ns = bench.clock.now_ns() + 600_000_000
        done = {"t/app": 0, "u/other": 0}

        async def asks(application: str, tenant: str) -> None:
            while bench.clock.now_ns() < until_ns:
                await bench.infer(application=application, tenant=tenant)
                done[application] += 1

        await asyncio.gather(*(asks("t/app", "t") for _ in range(3)), *(asks("u/other", "u") for _ in range(3)))
        assert done["t/app"] == pytest.approx(50, abs=3)
        assert done["u/other"] == pytest.approx(50, abs=3)
    bench.assert_quiet()


@story
async def test_a_device_of_its_own_computes_beside_the_cores() -> None:
    """The rest of a network waits for the other group, ahead of what has not begun; several requests overlap."""
    bench = bench_of(apart=True)
    async with bench.working():
        answer = await bench.infer(5)
        assert [(one.number, one.group) for one in answer.parts] == [(0, "npu"), (1, "fake"), (2, "npu")]
        start_ns = bench.clock.now_ns()
        answers = await asyncio.gather(*(bench.infer(x) for x in range(4)))
        assert [one.outputs["y"].tolist() for one in answers] == [[3.0 * x + 1] for x in range(4)]
        assert ms(bench.clock.now_ns() - start_ns) < 4 * 6, "one after the other"
        busy = [one.busy_ms for one in bench.group.statuses(*bench.engine.run_totals())]
        assert all(busy)
    bench.assert_quiet()


@story
async def test_a_decision_can_be_made_again() -> None:
    """Of a network in parts the operators are its parts; what has run is no part of the problem any more."""
    bench = bench_of(apart=True)
    bench.decisions.told.clear()
    async with bench.working():
        for _ in range(6):
            await asyncio.gather(*(bench.infer(x) for x in range(3)))
            await bench.pause(1003)
    found = [facts for kind, facts in bench.decisions.told if kind == "dispatch"]
    assert found
    units: set[int] = set()
    for facts in found:
        problem = facts["problem"]
        assert isinstance(problem, DispatchInput)
        record = dispatch_record(bench.clock.wall_now(), facts)
        again = plan_one(dict(record.problem))
        assert again["decision"] == record.answer["decision"]
        assert again["models"] == record.answer["models"]
        units |= {len(model["units"]) for model in record.answer["models"].values()}
    assert max(units) == 3
    bench.assert_quiet()


@story
async def test_cores_of_two_sorts_run_all_parts() -> None:
    """Each cluster of cores runs all of them, with the other kind beside; two requests at once overlap."""
    bench = bench_of(twins=[(1, 1.0, 1.0)])
    bench.other.workers = 2
    async with bench.working():
        await bench.infer()
        start_ns = bench.clock.now_ns()
        answers = await asyncio.gather(*(bench.infer(x) for x in range(2)))
        assert ms(bench.clock.now_ns() - start_ns) == 6
        assert {one.group for answer in answers for one in answer.parts} == {"fake", "twin-0"}
        assert all(len({one.group for one in answer.parts}) == 1 for answer in answers)
    bench.assert_quiet()


@story
async def test_a_cluster_of_cores_that_is_lost_on_the_way() -> None:
    """What ran there goes on in the other one, with both kinds."""
    bench = bench_of(twins=[(1, 1.0, 1.0)])
    bench.other.workers = 2
    async with bench.working():
        await bench.infer()
        asked = [asyncio.create_task(bench.infer(x)) for x in range(2)]
        await bench.pause(2.5)  # in the middle of the second part
        bench.twins[0].is_gone = True
        answers = [await one for one in asked]
        assert [one.outputs["y"].tolist() for one in answers] == [[1.0], [4.0]]
        kinds = {tuple(one.kind for one in answer.parts) for answer in answers}
        assert kinds == {("npu", "cpu", "npu")}
        assert not bench.clusters[0].is_serving
        assert bench.member.is_serving
    bench.assert_quiet()


@story
async def test_what_is_learnt_of_parts_decides() -> None:
    """The device is slower than its import said: what runs there by choice moves to the cores."""
    bench = bench_of(apart=True)
    async with bench.working():
        bench.other.slowness = 4.0
        for _ in range(40):
            await bench.infer()
        answer = await bench.infer()
        assert [one.kind for one in answer.parts] == ["cpu", "cpu", "cpu"]
    bench.assert_quiet()


@story
async def test_a_network_is_cut_anew_when_its_times_have_moved() -> None:
    """By more than a tenth, not by what each run adds; inputs of two sizes in turn are both known."""
    bench = bench_of(apart=True)
    groups = bench.group.groups()
    shared = Dispatching(bench.clock, bench.queue, bench.memory, groups)
    small = {0: {0: 4 * NS_PER_MS, 1: 1 * NS_PER_MS, 2: 6 * NS_PER_MS}, 1: {0: 2 * NS_PER_MS, 2: 3 * NS_PER_MS}}
    large = {at: {number: 3 * took_ns for number, took_ns in own.items()} for at, own in small.items()}
    cut = shared.partition("b", CUT, small, (0, 1, 2))
    for step in range(20):
        moved = {
            at: {number: took_ns * (99 + (step + number) % 7) // 100 for number, took_ns in own.items()}
            for at, own in small.items()
        }
        assert shared.partition("b", CUT, moved, (0, 1, 2)) is cut
        assert shared.partition("b", CUT, large, (0, 1, 2)) is not cut
    slower = {**small, 1: {**small[1], 2: 7 * NS_PER_MS // 2}}
    anew = shared.partition("b", CUT, slower, (0, 1, 2))
    assert anew is not cut
    assert anew.latency_ms[groups[1].name] == {"0": 2.0, "2": 3.5}
    lost = {0: small[0], 1: {0: 2 * NS_PER_MS}}
    assert shared.partition("b", CUT, lost, (0, 1, 2)).latency_ms[groups[1].name] == {"0": 2.0}
    assert shared.partition("c", CUT, small, (0, 1, 2)) is not cut


@story
async def test_how_long_one_share_of_a_network_ran_says_nothing_about_the_next() -> None:
    """All of it was slow once: what is expected of a request after that is what is known of its parts."""
    bench = bench_of(apart=True)
    async with bench.working():
        await bench.infer()
        bench.other.slowness = bench.processor.slowness = 200.0
        await bench.infer()
        build = bench.memory.build(bench.build("v"))
        assert build is not None
        assert build.recent_run_ns == 0
        asked = asyncio.create_task(bench.infer())
        await bench.pause(1)
        (job,) = bench.queue.under_way
        assert job.likely_ns == job.expected_ns
        await asked
    bench.assert_quiet()


@story
async def test_what_was_estimated_does_not_drift() -> None:
    """That a part takes longer than was estimated says nothing about its processor; one that was measured does."""
    bench = bench_of(cut=False)
    measured, *others = CUT.parts
    guessed = [replace(one, profiles=tuple(replace(p, is_measured=False) for p in one.profiles)) for one in others]
    is_cut(bench, cut=replace(CUT, parts=(measured, *guessed)))
    async with bench.working():
        bench.processor.slowness = bench.other.slowness = 3.0
        for _ in range(40):
            await bench.infer()
    drifted = [event.facts["build"] for event in bench.telemetry.recent() if event.event == "run times drifted"]
    assert drifted == [part_build_id(variant_of(bench).content_sha256, 0, OTHER)]


@story
async def test_a_model_without_parts_is_placed_beside_them() -> None:
    """Networks in one piece and in parts wait for the same groups; each is done where it is best."""
    bench = bench_of(apart=True)
    bench.add({"w": Cost(run_ms=5, load_ms=0)}, name="other")
    async with bench.working():
        await bench.infer()
        await bench.infer(application="t/other")
        answers = await asyncio.gather(
            *(bench.infer(x) for x in range(6)), *(bench.infer(x, application="t/other") for x in range(6))
        )
        assert [float(answer.outputs["y"][0]) for answer in answers] == [3.0 * x + 1 for x in range(6)] * 2
    bench.assert_quiet()


def test_no_tensor_outlives_its_request() -> None:
    """Answered, late, given up or failed: what went in is free when its caller has been told, without a collection."""
    gc.collect()
    gc.disable()
    watched: list[weakref.ref[Any]] = []

    def failing(inputs: Tensors) -> dict[str, Any]:
        if float(inputs.get("b", [0])[0]) == 12.0:
            raise RunFailed(variant_id="v", reason="it does not like that")
        return network(inputs)

    async def asked(bench: EngineBench, x: float, within_ms: float | None) -> None:
        array = np.array([x], np.float32)
        watched.append(weakref.ref(array))
        with suppress(DeadlineExceeded, RunFailed):
            await bench.infer(inputs={"x": array}, within_ms=within_ms)

    @story
    async def told() -> None:
        bench = bench_of(queue_len=100)
        bench.processor.model = bench.other.model = failing
        async with bench.working():
            await bench.infer()
            tasks = [asyncio.create_task(asked(bench, at % 5, 30 if at % 2 else None)) for at in range(30)]
            await bench.pause(10)
            for task in tasks[::7]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks.clear()
            bench.other.slowness = 10.0
            await asked(bench, 1, 12)
            await bench.pause(200)
            for one in (bench.processor, bench.other):
                one.ran.clear()
                one.ran_for.clear()
        bench.assert_quiet()

    try:
        told()
        assert len(watched) == 31
        assert sum(tensor() is not None for tensor in watched) == 0
    finally:
        gc.enable()


@story
async def test_answers_are_those_of_the_whole() -> None:
    """Asked outputs, and what requests of other values bring, never mix."""
    bench = bench_of(apart=True, workers=2)
    async with bench.working():
        answers = await asyncio.gather(*(bench.infer(x, outputs=["y"]) for x in range(40)))
        for x, answer in enumerate(answers):
            assert answer.outputs.keys() == {"y"}
            np.testing.assert_array_equal(answer.outputs["y"], [3.0 * x + 1])
    bench.assert_quiet()


def sharing_bench(**facts: Any) -> EngineBench:
    """Four rows in one run take 1.4 times as long as one, of each part and of the whole."""
    bench = bench_of(cut=False, **facts)
    processors = {"cpu": bench.processor, OTHER: bench.other}
    for processor in processors.values():
        for cost in processor.costs.values():
            cost.run_ms_by_batch = {2: 1.2 * cost.run_ms, 4: 1.4 * cost.run_ms}
    model = bench.catalogue.entry("t/app").model
    profile = model.variants[0].profile
    assert profile is not None
    one = profile.latencies[0].p50_ms
    rows = tuple(Latency(batch, ms, ms) for batch, ms in ((1, one), (2, 1.2 * one), (4, 1.4 * one)))
    variant = replace(model.variants[0], profile=replace(profile, latencies=rows, shared_rows_max=4))
    bench.catalogue.put_model(replace(model, variants=(variant,)))
    parts = tuple(
        replace(part, profiles=tuple(replace(one, times=_by_batch(one.p50_ms())) for one in part.profiles))
        for part in CUT.parts
    )
    is_cut(bench, replace(CUT, parts=parts))
    return bench


def _by_batch(one_ms: float) -> tuple[BatchTime, ...]:
    return tuple(BatchTime(batch, factor * one_ms) for batch, factor in ((1, 1.0), (2, 1.2), (4, 1.4)))


@story
async def test_requests_share_the_runs_of_all_parts() -> None:
    """Each is answered with its own rows, whatever it brings; runs count once."""
    bench = sharing_bench()
    async with bench.working():
        await bench.infer()
        before = ran(bench)
        first = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        inputs = [np.array([value, -value][:rows], np.float32) for value, rows in ((6, 1), (7, 2), (8, 1))]
        answers = await asyncio.gather(*(bench.infer(inputs={"x": each}) for each in inputs))
        assert (await first).outputs["y"].tolist() == [16.0]
    for given, answer in zip(inputs, answers, strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], 3 * given + 1)
        assert answer.outputs["y"].base is None
        assert [one.number for one in answer.parts] == [0, 1, 2]
    assert sum(ran(bench)) - sum(before) == 6, "three parts of the first, and three of all others"
    figures = bench.telemetry.statistics["t/app", "v", "t"]
    assert {items: count for items, (count, _) in figures.runs.items()} == {1: 2, 4: 1}
    assert figures.inferences == 6
    bench.assert_quiet()


@story
async def test_who_leaves_a_shared_run_of_parts_takes_nobody_along() -> None:
    """The one whose turn it was, and one that shares its run: the others are answered."""
    bench = sharing_bench()
    async with bench.working():
        await bench.infer()
        busy = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        tasks = [asyncio.create_task(bench.infer(value)) for value in (6, 7, 8, 9)]
        await busy
        await bench.pause(3)
        for gone in tasks[:2]:
            gone.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in answers] == [True, True, False, False]
    assert [one.outputs["y"].tolist() for one in answers if not isinstance(one, BaseException)] == [[25.0], [28.0]]
    bench.assert_quiet()


@pytest.mark.parametrize("within_ms", [None, 16.0], ids=["its caller goes", "its deadline comes"])
def test_a_shared_run_of_parts_outlives_the_one_whose_turn_it_was(within_ms: float | None) -> None:
    """The others that have rows in it are answered by it, with deadlines of their own, and it counts once."""

    @story
    async def told() -> None:
        bench = sharing_bench(queue_len=3)
        async with bench.working():
            await bench.infer()
            busy = asyncio.create_task(bench.infer(5))
            await bench.pause(1)
            first = asyncio.create_task(bench.infer(6, within_ms=within_ms))
            shared = [asyncio.create_task(bench.infer(value)) for value in (7, 8)]
            await busy
            bench.other.slowness = 4.0
            await bench.pause(1)
            runs = sum(ran(bench))
            if within_ms is None:
                first.cancel()
            (end,) = await asyncio.gather(first, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError if within_ms is None else DeadlineExceeded)
            assert not any(one.done() for one in shared)
            answers = await asyncio.gather(*shared)
        assert [one.outputs["y"].tolist() for one in answers] == [[3.0 * value + 1] for value in (7, 8)]
        assert sum(ran(bench)) - runs <= 3, "none of its parts has run again"
        figures = bench.telemetry.statistics["t/app", "v", "t"]
        assert {items: count for items, (count, _) in figures.runs.items()} == {1: 2, 3: 1}
        bench.assert_quiet()

    told()


@story
async def test_who_leaves_as_a_worker_begins_its_shared_run_leaves_nobody_unanswered() -> None:
    """It never learns of the rows that have joined it: those run by themselves."""
    bench = sharing_bench()
    hosts: list[asyncio.Task[Result]] = []
    begin = PartsDispatcher._begin

    def leaving(self: PartsDispatcher, *about: Any) -> Any:
        if about[-1]:  # others have rows in it
            hosts.pop().cancel()
        return begin(self, *about)

    async with bench.working():
        await bench.infer()
        busy = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        first, *others = tasks = [asyncio.create_task(bench.infer(value)) for value in (6, 7, 8)]
        hosts.append(first)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartsDispatcher, "_begin", leaving)
            await busy
            await bench.pause(1)
            assert not hosts, "rows have joined"
        await bench.pause(200)
        assert all(one.done() for one in tasks)
        assert first.cancelled()
        assert [one.result().outputs["y"].tolist() for one in others] == [[3.0 * value + 1] for value in (7, 8)]
    bench.assert_quiet()


@story
async def test_a_processor_lost_under_a_shared_run_of_parts_teaches_nothing_wrong() -> None:
    """What runs after it, runs with the rows of all: one of them is not expected to take as long."""
    bench = sharing_bench()
    parts = bench.catalogue.entry("t/app").servables["v"].parts
    assert parts is not None
    times = parts.times[0, 1]
    assert times is not None
    async with bench.working():
        await bench.infer()
        busy = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        tasks = [asyncio.create_task(bench.infer(value)) for value in (6, 7, 8, 9)]
        await busy
        await bench.pause(1)
        before_ns = times.usual.expected_ns(1, 1, bench.clock.now_ns())
        bench.other.is_gone = True
        answers = await asyncio.gather(*tasks)
        assert [one.outputs["y"].tolist() for one in answers] == [[19.0], [22.0], [25.0], [28.0]]
        took = {part.number: (part.kind, ms(part.took_ns)) for part in answers[0].parts}
        assert took[1] == ("cpu", 1.4)
        assert times.usual.expected_ns(1, 1, bench.clock.now_ns()) == before_ns
    bench.assert_quiet()


@story
async def test_a_row_that_fails_in_a_shared_run_of_parts_fails_alone() -> None:
    """In the middle of the network."""

    def model(inputs: Tensors) -> dict[str, Any]:
        if "a" in inputs and "x" not in inputs and 8.0 in inputs["a"]:
            raise RunFailed(variant_id="v", reason="the network's own words")
        return network(inputs)

    bench = sharing_bench()
    bench.processor.model = bench.other.model = model
    async with bench.working():
        await bench.infer()
        busy = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        answers = await asyncio.gather(*(bench.infer(value) for value in (6, 7, 8, 9)), return_exceptions=True)
        await busy
    assert [type(one) for one in answers] == [Result, RunFailed, Result, Result]
    assert [one.outputs["y"].tolist() for one in answers if isinstance(one, Result)] == [[19.0], [25.0], [28.0]]
    bench.assert_quiet()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_is_answered_once(seed: int) -> None:
    """Requests of two applications in a random mix: given up, in haste, while the other kind goes and comes back, over
    shared cores, two clusters of them, or a device of its own. Nothing is left over.
    """
    drawn = random.Random(seed)
    layout: dict[str, Any] = ({"workers": 2}, {"twins": [(1, 2.0, 0.5)]}, {"apart": True, "workers": 2})[seed % 3]

    @story
    async def told() -> None:
        bench = bench_of(queue_len=400, queue_total=400, **layout)
        bench.other.workers = 2
        bench.add({"w": Cost(run_ms=3, load_ms=5)}, name="other", tenant="u")
        outcomes: Counter[str] = Counter()

        async def asked(number: int) -> None:
            await bench.pause(number * 4 + drawn.random())
            is_other = drawn.random() < 0.3
            within_ms = drawn.choice([None, None, 12.0, 60.0])
            application, tenant = ("u/other", "u") if is_other else ("t/app", "t")
            try:
                answer = await bench.infer(number, application, tenant=tenant, within_ms=within_ms)
            except (DeadlineExceeded, Overloaded):
                outcomes["late"] += 1
            else:
                assert answer.outputs["y"].tolist() == [3.0 * number + 1]
                assert [one.number for one in answer.parts] in ([], [0, 1, 2])
                outcomes["in parts" if answer.parts else "whole"] += 1

        async def comes_and_goes() -> None:
            while True:
                await bench.pause(drawn.uniform(50, 200))
                bench.other.is_gone = True
                await bench.pause(drawn.uniform(50, 100))
                bench.other.is_gone = False
                if not bench.member.is_serving:
                    bench.member.serve()

        async with bench.working(residency=True):
            going = asyncio.create_task(comes_and_goes())
            tasks = [asyncio.create_task(asked(number)) for number in range(250)]
            for task in drawn.sample(tasks, 25):
                asyncio.get_running_loop().call_later(drawn.uniform(0, 1), task.cancel)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            going.cancel()
            assert not [end for end in ends if end is not None and not isinstance(end, asyncio.CancelledError)], ends
            await bench.pause(500)
        assert outcomes["in parts"]
        assert outcomes.total() + sum(end is not None for end in ends) == len(ends)
        bench.assert_quiet()

    told()


@story
async def test_a_kind_that_is_lost_while_parts_of_others_are_loaded() -> None:
    """What has come is of no use without its parts that were there already: it leaves, and the whole serves."""
    on_cpu = tuple(one for one in CUT.parts[2].profiles if one.kind == "cpu")
    bench = bench_of(cut=False)
    is_cut(bench, replace(CUT, parts=(*CUT.parts[:2], replace(CUT.parts[2], profiles=on_cpu))))
    async with bench.working():
        asked = asyncio.create_task(bench.infer(5))
        await bench.pause(12)
        bench.member.lose("it has gone")
        answer = await asked
        assert (answer.outputs["y"].tolist(), answer.parts) == ([16.0], ())
        await bench.pause(100)
        assert in_memory(bench) == {bench.build("v")}
        await bench.memory.unload(bench.build("v"))
        bench.member.serve()
        assert len((await bench.infer(5)).parts) == 3
    bench.assert_quiet()


@story
async def test_a_part_does_not_leave_while_the_others_are_loaded() -> None:
    """A device makes room for one of them: to wait for the others would be to wait for itself."""
    bench = bench_of()
    async with bench.working():
        asked = asyncio.create_task(bench.infer(5))
        await bench.pause(12)
        start_ns = bench.clock.now_ns()
        await bench.memory.unload(part_build_id(variant_of(bench).content_sha256, 0, OTHER))
        assert bench.clock.now_ns() == start_ns
        assert len((await asked).parts) == 3
    bench.assert_quiet()


@story
async def test_what_served_whole_is_brought_back() -> None:
    """After a restart, in place of its parts."""
    bench = bench_of()
    whole = bench.catalogue.entry("t/app").servables["v"].builds[1]
    await bench.availability.prefetch([whole])
    assert bench.memory.resident_set() == [whole]
    async with bench.working():
        answer = await bench.infer(5)
        assert (answer.outputs["y"].tolist(), answer.parts, answer.warm) == ([16.0], (), True)
    bench.assert_quiet()
