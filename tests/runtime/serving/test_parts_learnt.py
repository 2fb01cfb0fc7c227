"""What is learnt of the times of parts, and what follows from it."""

import asyncio
from dataclasses import replace

from appliance.clock import NS_PER_MS
from appliance.domain.names import part_build_id
from appliance.runtime.serving.dispatcher import Dispatching
from tests.fakes.clock import story
from tests.runtime.at_work import at_work, warm
from tests.runtime.serving.parts_bench import (
    CUT,
    OTHER,
    bench_of,
    is_cut,
    part,
    variant_of,
)


@story
async def test_learnt_part_times_decide_where_parts_run() -> None:
    """The device is slower than its import said: parts that run there by choice move to the cores."""
    async with at_work(bench_of(apart=True)) as bench:
        bench.other.slowness = 4.0
        for _ in range(40):
            await bench.infer()
        answer = await bench.infer()
        assert [one.kind for one in answer.parts] == ["cpu", "cpu", "cpu"]


@story
async def test_network_is_partitioned_anew_when_its_part_times_have_moved() -> None:
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
async def test_expected_time_of_a_network_in_parts_ignores_its_last_run() -> None:
    """All parts were slow once: what is expected of a request after that is what is known of its parts."""
    async with warm(bench_of(apart=True)) as bench:
        bench.other.slowness = bench.processor.slowness = 200.0
        await bench.infer()
        build = bench.memory.build(bench.build("v"))
        assert build is not None
        assert build.recent_run_ns == 0
        asked = asyncio.create_task(bench.infer())
        await bench.pause(1)
        (run,) = bench.queue.scheduler.runs
        job = run.calls[0].reference
        assert job.likely_ns == job.expected_ns
        await asked


@story
async def test_estimated_part_times_do_not_count_as_drift() -> None:
    """That a part takes longer than was estimated says nothing about its processor; a part that was measured does."""
    async with at_work(bench_of(cut=False)) as bench:
        measured, *others = CUT.parts
        guessed = [replace(one, profiles=tuple(replace(p, is_measured=False) for p in one.profiles)) for one in others]
        is_cut(bench, cut=replace(CUT, parts=(measured, *guessed)))
        bench.processor.slowness = bench.other.slowness = 3.0
        for _ in range(40):
            await bench.infer()
    drifted = [event.facts["build"] for event in bench.telemetry.recent() if event.event == "run times drifted"]
    assert drifted == [part_build_id(variant_of(bench).content_sha256, 0, OTHER)]


@story
async def test_parts_are_worked_out_once_for_all_applications() -> None:
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
