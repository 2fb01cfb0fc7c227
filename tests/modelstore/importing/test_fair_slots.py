"""FairSlots of imports: beginners first, tenants alternate, nobody is lost."""

import asyncio

import pytest

from appliance.modelstore.importing.fair_slots import FairSlots


async def _job(slots: FairSlots, tenant: str, name: str, log: list[str], parts: int = 2) -> None:
    async with slots.turn(tenant) as turn:
        for part in range(parts):
            log.append(f"{name}{part}")
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            await turn.give_way()


@pytest.mark.anyio
async def test_beginners_go_first() -> None:
    """Every job has its first part before any that waits has its second; then they go on in rounds."""
    slots = FairSlots(1)
    log: list[str] = []
    await asyncio.gather(*(_job(slots, "a", name, log, parts=3) for name in "xyz"))
    assert log == ["x0", "y0", "z0", "x1", "y1", "z1", "x2", "y2", "z2"]


@pytest.mark.anyio
async def test_tenants_alternate() -> None:
    """A tenant with many jobs does not keep another waiting behind all of them."""
    slots = FairSlots(1)
    log: list[str] = []
    jobs = [("a", "p"), ("a", "q"), ("a", "r"), ("b", "s")]
    await asyncio.gather(*(_job(slots, tenant, name, log, parts=1) for tenant, name in jobs))
    assert log.index("s0") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_cancelled_jobs_leave_the_turn(cancelled: int) -> None:
    """Whether it holds the turn, waits to begin or waits to go on: a cancelled job takes no turn with it."""
    slots = FairSlots(1)
    log: list[str] = []
    tasks = [asyncio.create_task(_job(slots, "a", name, log, parts=3)) for name in "xyz"]
    while len(log) < 2:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    tasks[cancelled].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(f"{name}2" in log for number, name in enumerate("xyz") if number != cancelled)
    async with asyncio.timeout(120), slots.turn("b"):
        pass


@pytest.mark.anyio
async def test_count() -> None:
    """No more jobs work at once than there are slots."""
    slots, working, peak = FairSlots(2), 0, 0

    async def job() -> None:
        nonlocal working, peak
        async with slots.turn("a"):
            working += 1
            peak = max(peak, working)
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            working -= 1

    await asyncio.gather(*(job() for _ in range(6)))
    assert peak == 2
