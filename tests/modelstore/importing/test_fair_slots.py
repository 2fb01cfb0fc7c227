"""FairSlots of imports: beginners first, tenants alternate, nobody is lost."""

import asyncio

import pytest

from appliance.modelstore.importing.fair_slots import FairSlots, Slot
from tests.fakes.waiting import until


async def _job(slots: FairSlots, tenant: str, name: str, log: list[str], parts: int = 2) -> None:
    slot = slots.slot_of(tenant)
    async with slots.held(slot):
        for part in range(parts):
            log.append(f"{name}{part}")
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            await slot.give_way()


@pytest.mark.anyio
async def test_new_import_job_goes_before_continuing_jobs() -> None:
    """Every job has its first part before any that waits has its second; then they go on in rounds."""
    slots = FairSlots(1)
    log: list[str] = []
    await asyncio.gather(*(_job(slots, "a", name, log, parts=3) for name in "xyz"))
    assert log == ["x0", "y0", "z0", "x1", "y1", "z1", "x2", "y2", "z2"]


@pytest.mark.anyio
async def test_import_slots_alternate_between_tenants() -> None:
    """A tenant with many jobs does not keep another waiting behind all of them."""
    slots = FairSlots(1)
    log: list[str] = []
    jobs = [("a", "p"), ("a", "q"), ("a", "r"), ("b", "s")]
    await asyncio.gather(*(_job(slots, tenant, name, log, parts=1) for tenant, name in jobs))
    assert log.index("s0") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_cancelled_import_job_gives_up_slot(cancelled: int) -> None:
    """Whether it holds the turn, waits to begin or waits to go on: a cancelled job takes no turn with it."""
    slots = FairSlots(1)
    log: list[str] = []
    tasks = [asyncio.create_task(_job(slots, "a", name, log, parts=3)) for name in "xyz"]
    while len(log) < 2:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    tasks[cancelled].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(f"{name}2" in log for number, name in enumerate("xyz") if number != cancelled)
    async with asyncio.timeout(120), slots.held(slots.slot_of("b")):
        pass


@pytest.mark.anyio
async def test_import_slots_bound_number_of_jobs_at_once() -> None:
    slots, working, peak = FairSlots(2), 0, 0

    async def job() -> None:
        nonlocal working, peak
        async with slots.held(slots.slot_of("a")):
            working += 1
            peak = max(peak, working)
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            working -= 1

    await asyncio.gather(*(job() for _ in range(6)))
    assert peak == 2


async def _begun(slots: FairSlots, tenant: str, *, is_small: bool, is_beginning: bool = True) -> Slot:
    """A job that works, on its first part or on one after it."""
    slot = slots.slot_of(tenant, is_small=is_small)
    await slots.take(slot)
    if not is_beginning:
        await slot.give_way()
    return slot


def _waits(slots: FairSlots, tenant: str, *, is_small: bool) -> tuple[Slot, "asyncio.Task[None]"]:
    slot = slots.slot_of(tenant, is_small=is_small)
    return slot, asyncio.ensure_future(slots.take(slot))


@pytest.mark.anyio
async def test_small_import_job_begins_beside_part_that_continues() -> None:
    """A large job waits, and so does a second small one; the continuing job waits for both when it has given way."""
    slots = FairSlots(1)
    continuing = await _begun(slots, "a", is_small=False, is_beginning=False)
    small = await asyncio.wait_for(_begun(slots, "b", is_small=True), 60)
    (second, taken), (large, has_slot) = _waits(slots, "c", is_small=True), _waits(slots, "d", is_small=False)
    await until(lambda: slots.before(large) is not None)
    assert not taken.done()
    assert slots.before(second) == [small]
    assert slots.before(large) == [continuing, small, second]
    going_on = asyncio.ensure_future(small.give_way())
    await taken
    assert slots.before(small) == [continuing, second, large]
    slots.leave(second)
    slots.leave(continuing)
    await has_slot
    assert slots.before(small) == [large]
    slots.leave(large)
    await going_on
    assert slots.before(small) is None


@pytest.mark.anyio
async def test_small_import_job_waits_for_first_part_of_another() -> None:
    slots = FairSlots(1)
    first = await _begun(slots, "a", is_small=False)
    second, taken = _waits(slots, "b", is_small=True)
    await until(lambda: slots.before(second) is not None)
    assert slots.before(second) == [first]
    slots.leave(first)
    await taken


async def _long(slots: FairSlots, tenant: str) -> Slot:
    """A job whose first part has lasted for long."""
    slot = await asyncio.wait_for(_begun(slots, tenant, is_small=True), 60)
    await until(lambda: slot.is_long)
    return slot


@pytest.mark.anyio
async def test_small_import_jobs_of_other_tenants_work_beside_a_long_first_part() -> None:
    """Begin to end; the tenant's own job waits, and so does a large one."""
    slots = FairSlots(1, long_after_s=0.05)
    long = await _long(slots, "a")
    (own, own_goes), (large, large_goes) = _waits(slots, "a", is_small=True), _waits(slots, "b", is_small=False)
    small = await asyncio.wait_for(_begun(slots, "b", is_small=True, is_beginning=False), 60)
    await asyncio.wait_for(small.give_way(), 60)
    assert slots.before(small) is None
    assert long in (slots.before(own) or [])
    assert long in (slots.before(large) or [])
    slots.leave(small)
    slots.leave(long)
    await own_goes
    slots.leave(own)
    await large_goes


@pytest.mark.anyio
async def test_long_first_parts_that_others_work_beside_are_bounded() -> None:
    """However many tenants there are: their memory is."""
    slots = FairSlots(1, long_after_s=0.05)
    working = [await _long(slots, tenant) for tenant in "abc"]
    last, has_slot = _waits(slots, "d", is_small=True)
    await until(lambda: slots.before(last) is not None)
    assert slots.before(last) == [working[-1]]
    assert not has_slot.done()
    slots.leave(working[0])
    await has_slot


@pytest.mark.anyio
async def test_import_job_is_not_long_once_its_first_part_is_done() -> None:
    """Others' jobs that continue wait for it then, as for any."""
    slots = FairSlots(1, long_after_s=0.05)
    long = await _long(slots, "a")
    await long.give_way()
    other = await asyncio.wait_for(_begun(slots, "b", is_small=True), 60)
    going_on = asyncio.ensure_future(other.give_way())
    await until(lambda: slots.before(other) == [long])
    slots.leave(long)
    await going_on


@pytest.mark.anyio
async def test_large_import_job_gets_the_next_slot_though_small_ones_work_beside_a_long_one() -> None:
    """Of two slots one is the long job's; small jobs that come after the large one do not take the other for good."""
    slots = FairSlots(2, long_after_s=0.05)
    long = await _long(slots, "a")
    small = [await asyncio.wait_for(_begun(slots, "b", is_small=True), 60) for _ in range(2)]
    (large, large_goes), (last, last_goes) = _waits(slots, "c", is_small=False), _waits(slots, "d", is_small=True)
    await until(lambda: slots.before(last) is not None)
    slots.leave(small[0])
    await asyncio.wait_for(large_goes, 60)
    assert not last_goes.done()
    assert slots.before(last) == [small[1], large]
    slots.leave(small[1])
    await asyncio.wait_for(last_goes, 60)
    slots.leave(long)


@pytest.mark.anyio
async def test_large_import_job_waits_where_a_long_one_has_the_only_slot() -> None:
    slots = FairSlots(1, long_after_s=0.05)
    long = await _long(slots, "a")
    small = await asyncio.wait_for(_begun(slots, "b", is_small=True), 60)
    large, large_goes = _waits(slots, "c", is_small=False)
    slots.leave(small)
    await until(lambda: slots.before(large) == [long])
    assert not large_goes.done()
    slots.leave(long)
    await asyncio.wait_for(large_goes, 60)
