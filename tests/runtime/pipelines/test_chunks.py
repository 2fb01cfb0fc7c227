"""Orders and answers in chunks: the same as they were, and others have their turn between two pipelines."""

import asyncio
from functools import partial

from appliance.clock import others_first
from appliance.policies.allocation.base import Existing, Part
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import Several, plan_several
from appliance.runtime.pipelines.chunks import answered, order_of, read_answer
from tests.instances.pipelines import demands


def test_plans_of_many_pipelines_give_the_event_loop_turns() -> None:
    """Orders and answers are written and read one pipeline after the other, in their order."""
    compute = partial(plan_several, demands(6, 2, 0.6), Frontier())
    expected = compute()
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await others_first()

    async def story() -> None:
        nonlocal turns
        ticking = asyncio.create_task(tick())
        order = await order_of(compute)
        written_in, turns = turns, 0
        found = await read_answer(answered(order))
        ticking.cancel()
        assert min(written_in, turns) >= len(expected.served)
        assert found == expected
        assert list(found.served) == list(expected.served)

    asyncio.run(story())


def test_order_in_chunks_carries_kept_plans_load_and_degrading() -> None:
    """Plans that stand, what others take and whether pipelines may be degraded go with the order, also where it is
    about no pipelines.
    """
    wanted = demands(3, 2, 1.5)
    first = plan_several(wanted, Frontier())
    kept = {name: first.served[name].plan.placement for name in list(first.served)[1:]}
    busy = (Existing("cpu", 1, (Part("requests", 0.5),)),)
    for some in (wanted, []):
        compute = partial(plan_several, some, Frontier(), kept, busy, may_degrade=False)

        async def story(compute: partial[Several] = compute) -> None:
            assert await read_answer(answered(await order_of(compute))) == compute()

        asyncio.run(story())


def test_answer_that_is_no_plan_comes_whole() -> None:
    async def story() -> tuple[int, int]:
        found: tuple[int, int] = await read_answer(answered(await order_of(partial(divmod, 7, 2))))
        return found

    assert asyncio.run(story()) == (3, 1)
