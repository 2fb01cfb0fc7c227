"""Which build answers: the wanted one that is there, else the best that finds room, or the reason why none does."""

import asyncio

import pytest

from appliance.domain.catalogue import TensorSpec
from appliance.domain.errors import BadTensor, LoadFailed, OutOfMemory, UnknownVariant
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine


@story
async def test_resident_variant_answers_before_a_better_cold_one() -> None:
    """A request that names no variant takes the best one in memory. One that names a cold variant is a warm start all
    the same where another one of the application is resident (EM-02).
    """
    bench = EngineBench()
    app = bench.add({"best": Cost(), "small": Cost()})
    async with at_work(bench):
        await bench.availability.load(app, "small")
        assert bench.engine.preferred(app, None).variant.name == "small"
        assert (await bench.infer()).variant == "small"
        named = await bench.infer(variant="best")
        assert (named.variant, named.warm, named.load_ns > 0) == ("best", True, True)
        assert (await bench.infer()).variant == "best"


@story
async def test_smaller_variant_answers_where_the_best_does_not_fit() -> None:
    """A request that names a variant gets that or the reason."""
    async with at_work(engine({"best": Cost(30), "small": Cost(10)}, 20)) as bench:
        assert (await bench.infer()).variant == "small"
        with pytest.raises(OutOfMemory):
            await bench.infer(variant="best")
        with pytest.raises(UnknownVariant):
            await bench.infer(variant="other")


@story
async def test_smaller_variant_answers_where_memory_is_in_use() -> None:
    """The best one would fit, but the build in its way stays in use."""
    async with at_work(EngineBench(budget=30, workers=2, wait_ms_max=50)) as bench:
        bench.add({"v": Cost(10, load_ms=0, run_ms=1000)}, name="other")
        bench.add({"best": Cost(30), "small": Cost(10)})
        other = asyncio.create_task(bench.infer(application="t/other"))
        await bench.pause(1)
        assert (await bench.infer()).variant == "small"
        await other


@story
async def test_next_variant_answers_when_a_load_fails() -> None:
    """A damaged file costs its variant, not the request; when all fail, the caller has the reason."""
    async with at_work(engine({"best": Cost(), "small": Cost()})) as bench:
        bench.source.missing.add(bench.build("best"))
        assert (await bench.infer()).variant == "small"
        bench.source.missing.add(bench.build("small"))
        await bench.memory.unload(bench.build("small"))
        with pytest.raises(LoadFailed):
            await bench.infer()


@story
async def test_variant_whose_inputs_fit_the_tensors_answers() -> None:
    """Of two variants; when none fits, the first says what is wrong."""
    async with at_work(EngineBench()) as bench:
        bench.add({"a": Cost()}, name="fixed", inputs=[TensorSpec("x", "FP32", (2,))])
        bench.add({"b": Cost()})
        with pytest.raises(BadTensor, match="'x' has shape"):
            await bench.infer(application="t/fixed")
        assert (await bench.infer()).variant == "b"
