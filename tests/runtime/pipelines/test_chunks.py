"""Answers in chunks: the same as they were, and others have their turn between two of them."""

import asyncio
from functools import partial

from appliance.clock import others_first
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import plan_several
from appliance.runtime.pipelines.chunks import in_chunks, read_chunks
from tests.benchmarks.pipeline_planning import demands


def test_plans_of_many_pipelines_hold_nobody_up() -> None:
    """They are read one after the other, in their order."""
    compute = partial(plan_several, demands(6, 2, 0.6), Frontier())
    expected = compute()
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await others_first()

    async def story() -> None:
        ticking = asyncio.create_task(tick())
        found = await read_chunks(in_chunks(compute))
        ticking.cancel()
        assert found == expected
        assert list(found.served) == list(expected.served)

    asyncio.run(story())
    assert turns >= len(expected.served)


def test_another_answer_is_one_chunk() -> None:
    """What is about one thing comes whole."""
    assert asyncio.run(read_chunks(in_chunks(partial(divmod, 7, 2)))) == (3, 1)
