"""Whoever was served longest ago is next."""

import asyncio
import itertools

import hypothesis.strategies as st
from hypothesis import given

from appliance.modelstore.fair_queue import FairQueue


def taken(puts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    async def story() -> list[tuple[str, int]]:
        queue: FairQueue[tuple[str, int]] = FairQueue()
        for tenant, item in puts:
            await queue.put(tenant, (tenant, item))
        return [await queue.take() for _ in range(len(queue))]

    return asyncio.run(story())


def test_tenants_take_turns() -> None:
    """One tenant's heap of jobs does not hold up another's single one."""
    assert taken([("a", 1), ("a", 2), ("a", 3), ("b", 4)]) == [("a", 1), ("b", 4), ("a", 2), ("a", 3)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=30))
def test_order_is_fair_and_complete(puts: list[tuple[str, int]]) -> None:
    """Everything comes out once, in order within a tenant; while two tenants wait, neither is served twice in a row."""
    out = taken(puts)
    assert sorted(out) == sorted(puts)
    for tenant in "abc":
        assert [one for one in out if one[0] == tenant] == [one for one in puts if one[0] == tenant]
    for place, (first, second) in enumerate(itertools.pairwise(out)):
        if first[0] == second[0]:
            assert {one[0] for one in out[place + 1 :]} == {first[0]}


def test_taking_waits_and_removing_works() -> None:
    """A taker waits for the next item; an item that was removed is never taken."""

    async def story() -> None:
        queue: FairQueue[str] = FairQueue()
        taker = asyncio.create_task(queue.take())
        await asyncio.wait([taker], timeout=0.05)
        assert not taker.done()
        await queue.put("a", "first")
        assert await taker == "first"
        await queue.put("a", "second")
        assert queue.remove("second")
        assert not queue.remove("second")
        assert len(queue) == 0

    asyncio.run(story())
