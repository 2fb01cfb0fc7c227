"""In and out of service: who is inside is answered, and what nobody uses any more leaves memory."""

import asyncio

import pytest

from appliance.domain.catalogue import Application
from appliance.domain.errors import ModelUnavailable
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work


@story
async def test_unloaded_application_is_unavailable_until_it_is_loaded() -> None:
    """Unloaded explicitly, it is out of memory, too."""
    async with at_work(EngineBench()) as bench:
        app = bench.add({"v": Cost()})
        await bench.infer()
        await bench.availability.unload(app)
        assert bench.processor.memory == {}
        assert not bench.availability.is_open(app)
        with pytest.raises(ModelUnavailable):
            await bench.infer()
        with pytest.raises(ModelUnavailable):
            bench.engine.preferred(app, None)
        await bench.availability.load(app)
        assert bench.availability.is_open(app)
        assert (await bench.infer()).warm


@story
async def test_unload_waits_for_running_requests() -> None:
    """Requests under way are answered, later ones are refused."""
    async with at_work(EngineBench()) as bench:
        app = bench.add({"v": Cost(load_ms=50, run_ms=50)})
        running = asyncio.create_task(bench.infer(3))
        await settle()
        unloading = asyncio.create_task(bench.availability.unload(app))
        await settle()
        with pytest.raises(ModelUnavailable):
            await bench.infer()
        assert (await running).outputs["y"].tolist() == [6]
        await unloading
    assert bench.processor.memory == {}


@story
async def test_unload_keeps_a_build_that_another_application_uses() -> None:
    """The build stays, and its request goes on, until the second application is unloaded, too."""
    async with at_work(EngineBench()) as bench:
        app = bench.add({"v": Cost(load_ms=0, run_ms=100)})
        other = Application("t/other", "t", "other", app.model_id)
        bench.catalogue.put_application(other)
        running = asyncio.create_task(bench.infer(application="t/other"))
        await settle()
        await bench.availability.unload(app)
        assert not running.done()
        assert len(bench.processor.memory) == 1
        await running
        await bench.availability.unload(other)
    assert bench.processor.memory == {}


@story
async def test_load_cancels_a_waiting_unload() -> None:
    """Unload waits for a long request; a load meanwhile wins, and the model stays in service."""
    async with at_work(EngineBench()) as bench:
        app = bench.add({"v": Cost(load_ms=0, run_ms=1000)})
        running = asyncio.create_task(bench.infer())
        await settle()
        unloading = asyncio.create_task(bench.availability.unload(app))
        await settle()
        await bench.availability.load(app)
        await unloading
        assert not running.done()
        await running
        assert (await bench.infer()).warm


@story
async def test_retired_model_leaves_after_its_last_request() -> None:
    """Deleting waits for running requests, then the memory is free; a build that another model shares stays."""
    async with at_work(EngineBench()) as bench:
        app = bench.add({"v": Cost(load_ms=0, run_ms=100)})
        bench.add({"w": Cost(load_ms=0)}, name="keep")
        await bench.infer(application="t/keep")
        running = asyncio.create_task(bench.infer(4))
        await settle()
        bench.catalogue.remove_application(app.id)
        bench.catalogue.remove_model(app.model_id)
        retiring = asyncio.create_task(bench.availability.retire_model(app.model_id))
        await settle()
        assert not retiring.done()
        with pytest.raises(ModelUnavailable):
            await bench.infer()
        assert (await running).outputs["y"].tolist() == [8]
        await retiring
    assert set(bench.processor.memory) == {bench.build("w", "t/keep")}
    assert [b["build"] for b in bench.memory.snapshot()["builds"]] == [bench.build("w", "t/keep")]


@story
async def test_retiring_a_model_ends_its_load() -> None:
    """A build that is still being loaded when its model goes does not stay behind."""
    bench = EngineBench()
    app = bench.add({"v": Cost(load_ms=100)})
    warm_up = asyncio.create_task(bench.availability.prefetch([bench.build("v")]))
    await settle()
    bench.catalogue.remove_application(app.id)
    bench.catalogue.remove_model(app.model_id)
    await bench.availability.retire_model(app.model_id)
    await warm_up
    assert bench.processor.memory == {}


@story
async def test_new_application_of_an_old_name_is_available() -> None:
    """An explicit unload ends with its application, and so do its figures and sequences."""
    bench = EngineBench()
    app = bench.add({"v": Cost()})
    await bench.availability.unload(app)
    bench.telemetry.failed((app.id, "v", "t"), "failed", 0)
    bench.sequences.open((app.id, "t", "s"), start=True)
    bench.catalogue.remove_application(app.id)
    bench.availability.forget_application(app.id)
    bench.catalogue.put_application(app)
    assert bench.availability.is_open(app)
    assert bench.telemetry.of_application(app.id) == {}
    assert len(bench.sequences) == 0


@story
async def test_prefetch_fills_memory_without_evicting() -> None:
    """In the given order as far as memory goes; unknown and broken builds are passed over."""
    bench = EngineBench(budget=25)
    for name, size in {"a": 10, "b": 10, "c": 10, "d": 5}.items():
        bench.add({"v": Cost(size)}, name=name)
    bench.source.missing.add(bench.build("v", "t/a"))
    builds = [bench.build("v", f"t/{name}") for name in "abcd"]
    await bench.availability.prefetch(["unknown", *builds])
    assert sorted(bench.memory.resident_set()) == sorted([builds[1], builds[2], builds[3]])
    assert bench.memory.evictions == 0
    bench.assert_quiet()


@story
async def test_application_without_servable_variants_is_unavailable() -> None:
    """There is nothing to load or prefer."""
    bench = EngineBench()
    app = bench.add({})
    nobody = Application("t/none", "t", "none", "t/none")
    assert not bench.availability.is_open(app)
    assert not bench.availability.is_open(nobody)
    for call in (bench.availability.load(app), bench.infer()):
        with pytest.raises(ModelUnavailable):
            await call
