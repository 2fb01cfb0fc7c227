"""Who joins next."""

import asyncio

import pytest

from appliance.domain.errors import TooManySessions
from appliance.runtime.serving.joins import Joins
from tests.fakes.clock import settle, story

JOINS_MAX = 32


@story
async def test_joins_of_a_tenant_go_one_at_a_time() -> None:
    """Joins of one tenant wait for one another, not for those of another tenant; a join beyond the limit is refused,
    and of tenants that have gone nothing is kept.
    """
    turns = Joins(JOINS_MAX)
    inside: list[str] = []
    goes_on = asyncio.Event()

    async def join(tenant: str, name: str) -> None:
        async with turns.turn(tenant):
            inside.append(name)
            await goes_on.wait()

    tasks = [asyncio.create_task(join("t", f"t{at}")) for at in range(JOINS_MAX)]
    tasks.append(asyncio.create_task(join("u", "u0")))
    await settle()
    assert inside == ["t0", "u0"]
    with pytest.raises(TooManySessions):
        await join("t", "too many")
    tasks[1].cancel()
    goes_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert inside == ["t0", "u0", *(f"t{at}" for at in range(2, JOINS_MAX))]
    assert not len(turns)
