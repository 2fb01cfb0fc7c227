"""Parts come, serve, give way and leave together, and the whole serves in their place."""

import asyncio
from dataclasses import replace

import pytest

from appliance.domain.errors import LoadFailed
from appliance.domain.names import part_build_id
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, warm
from tests.runtime.serving.parts_bench import (
    CUT,
    OTHER,
    bench_of,
    in_memory,
    is_cut,
    ran,
    variant_of,
)


@story
async def test_whole_network_serves_until_its_parts_are_loaded_beside_it() -> None:
    """No request waits for a network that is cut while it serves. Where its parts would fit in its place only, nothing
    would be there while they are loaded, so it goes on serving; once there is room they come, and the whole goes.
    """
    async with at_work(bench_of(cut=False), residency=True) as bench:
        bench.memory.resize(20)
        await bench.infer()
        whole = bench.build("v")
        is_cut(bench)
        for _ in range(20):
            answer = await bench.infer()
            assert (answer.parts, answer.load_ns, answer.warm) == ((), 0, True)
            await bench.pause(100)
        assert bench.memory.resident_set() == [whole]
        assert bench.memory.evictions == 0
        bench.memory.resize(30)
        await bench.pause(2000)
        answer = await bench.infer()
        assert (len(answer.parts), answer.load_ns, answer.warm) == (3, 0, True)
        assert not bench.memory.is_resident(whole)


@story
async def test_whole_build_in_the_place_of_parts_is_not_the_first_victim() -> None:
    """A network that was asked a moment ago keeps it; a build that was asked for long ago gives way."""
    async with at_work(bench_of(cut=False)) as bench:
        bench.memory.resize(20)
        bench.add({"w": Cost(resident_bytes=8, run_ms=3, load_ms=5)}, name="old", tenant="u")
        bench.add({"z": Cost(resident_bytes=7, run_ms=3, load_ms=5)}, name="new", tenant="u")
        await bench.infer(application="u/old", tenant="u")
        await bench.pause(60_000)
        await bench.infer()
        whole = bench.build("v")
        is_cut(bench)
        await bench.infer()
        await bench.infer(application="u/new", tenant="u")
        assert bench.memory.resident_set() == [bench.build("z", "u/new"), whole]
        assert (await bench.infer()).warm
        rows = {row["application"]: row for row in bench.core.residency.rows()}
        assert (rows["t/app"]["resident"], rows["t/app"]["variants"]) == ("v", ["v", "v whole"])


@story
async def test_parts_are_evicted_together_and_loaded_again() -> None:
    """Another model needs their room: all of them leave for it, and are loaded again for the next request."""
    async with at_work(bench_of()) as bench:
        bench.memory.resize(20)
        bench.add({"w": Cost(resident_bytes=12, run_ms=3, load_ms=5)}, name="other", tenant="u")
        for _ in range(2):
            assert len((await bench.infer()).parts) == 3
            assert len(in_memory(bench)) == 3
            await bench.pause(5000)
            await bench.infer(application="u/other", tenant="u")
            assert in_memory(bench) == {bench.build("w", "u/other")}
            await bench.pause(5000)
        assert bench.memory.evictions == 3
        assert bench.memory.used_bytes == 12


@story
async def test_whole_network_serves_where_a_part_does_not_load() -> None:
    """The other parts that were loaded leave again."""
    async with at_work(bench_of()) as bench:
        bench.source.missing.add(part_build_id(variant_of(bench).content_sha256, 2, OTHER))
        answer = await bench.infer(5)
        assert answer.outputs["y"].tolist() == [16.0]
        assert (answer.parts, ran(bench)) == ((), [1, 0])
        assert len(in_memory(bench)) == 1
        bench.source.missing.add(in_memory(bench).pop())
        await bench.memory.unload(bench.catalogue.entry("t/app").servables["v"].builds[1])
        with pytest.raises(LoadFailed):
            await bench.infer(5)


@story
async def test_part_in_place_of_a_lost_part_counts_with_all_its_copies() -> None:
    """Where runs have several threads, each processor of the first kind has its own copy."""
    bench = bench_of(twins=[(1, 1.0, 1.0)], threads=2)
    for twin in bench.twins:
        twin.costs.update(bench.processor.costs)
    build_id = part_build_id(variant_of(bench).content_sha256, 2, "cpu")
    counted: set[int] = set()
    async with warm(bench):
        asked = asyncio.create_task(bench.infer(5))
        await bench.pause(1)
        bench.other.is_gone = True
        while not asked.done():
            await bench.pause(0.5)
            build = bench.memory.build(build_id)
            counted |= {build.bytes} if build is not None and build.pins and not build.loading else set()
        assert (await asked).outputs["y"].tolist() == [16.0]
    assert counted == {10}


@story
async def test_kind_lost_while_parts_are_loaded_leaves_the_whole_to_serve() -> None:
    """The parts that have come are of no use without the parts of the lost kind: they leave."""
    on_cpu = tuple(one for one in CUT.parts[2].profiles if one.kind == "cpu")
    async with at_work(bench_of(cut=False)) as bench:
        is_cut(bench, replace(CUT, parts=(*CUT.parts[:2], replace(CUT.parts[2], profiles=on_cpu))))
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


@story
async def test_part_does_not_leave_while_the_other_parts_are_loaded() -> None:
    """A device makes room for one of them: to wait for the others would be to wait for itself."""
    async with at_work(bench_of()) as bench:
        asked = asyncio.create_task(bench.infer(5))
        await bench.pause(12)
        start_ns = bench.clock.now_ns()
        await bench.memory.unload(part_build_id(variant_of(bench).content_sha256, 0, OTHER))
        assert bench.clock.now_ns() == start_ns
        assert len((await asked).parts) == 3


@story
async def test_whole_build_that_served_before_a_restart_is_brought_back() -> None:
    """In place of its parts."""
    bench = bench_of()
    whole = bench.catalogue.entry("t/app").servables["v"].builds[1]
    await bench.availability.prefetch([whole])
    assert bench.memory.resident_set() == [whole]
    async with at_work(bench):
        answer = await bench.infer(5)
        assert (answer.outputs["y"].tolist(), answer.parts, answer.warm) == ([16.0], (), True)
