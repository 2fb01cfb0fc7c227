"""Requests that wait for memory for the same builds."""

from appliance.clock import NS_PER_MS
from appliance.runtime.serving.room_queue import RoomQueue
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine


@story
async def test_turn_without_a_change_of_memory_in_time_does_not_come() -> None:
    """A request that tries again all the same goes behind the others then."""
    async with at_work(engine(Cost())) as bench:
        queue, until_ns = RoomQueue(bench.memory), bench.clock.now_ns() + 10 * NS_PER_MS
        seen = bench.memory.changes

        async def turn() -> bool:
            return await queue.turn(("b",), seen, until_ns, is_first=False, is_there=lambda: False)

        assert not await turn()
        await bench.infer()  # a load
        assert await turn()
