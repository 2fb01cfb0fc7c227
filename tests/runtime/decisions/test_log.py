"""The decision log stores in the background what the inference path only appends."""

import asyncio
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from appliance.clock import SystemClock
from appliance.domain.decisions import DecisionRecord
from appliance.domain.errors import StorageFull
from appliance.lab.plan import plan_one
from appliance.runtime.decisions.log import BATCH_MAX, HOLD_S, OWN_ROWS_MAX, TENANT_ROWS_MAX, DecisionLog
from tests.fakes.hand_clock import HandClock
from tests.fakes.waiting import until
from tests.runtime.residency.residency_problems import plan, problem

pytestmark = pytest.mark.anyio
FACTS = {"problem": problem(), "plan": plan(), "policy": "iws-bfe"}


PLAIN: dict[str, Any] = {
    "application": "t/app",
    "concerned": (("t/app", "t"),),
    "problem": {"kind": "budget", "plan": None, "why": "no policy was asked"},
    "answer": {"actions": [], "reason": "because"},
}


class FakeStore:
    """Port `DecisionStore`: keeps batches; fails while `is_full`; waits while `gate` is shut."""

    def __init__(self) -> None:
        self.batches: list[list[DecisionRecord]] = []
        self.is_full = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def add(self, records: Sequence[DecisionRecord], rows_max: int) -> int:
        await self.gate.wait()
        if self.is_full:
            raise StorageFull()
        first = 1 + sum(map(len, self.batches))
        self.batches.append(list(records))
        return first


async def handled(log: DecisionLog, count: int) -> None:
    """Wait until so many records are written or dropped; a thread writes them."""
    await until(lambda: log.written + log.dropped >= count)


async def test_decisions_are_stored_in_batches_and_in_order() -> None:
    """More than a batch at once: nothing is lost, order and times stay."""
    clock, store = HandClock(), FakeStore()
    log = DecisionLog(clock, queue_max=1000, rows_max=1000)
    start = clock.wall_now()
    for _ in range(BATCH_MAX + 5):
        log.record("residency", FACTS)
        clock.pass_s(1)
    writing = asyncio.create_task(log.run(store))
    await handled(log, BATCH_MAX + 5)
    writing.cancel()
    assert [len(batch) for batch in store.batches] == [BATCH_MAX, 5]
    times = [record.at for batch in store.batches for record in batch]
    assert [round((at - start).total_seconds(), 3) for at in times] == list(range(BATCH_MAX + 5))


async def test_decision_id_is_reported_once_the_decision_is_stored() -> None:
    """Of decisions that are lost no id is reported."""
    store = FakeStore()
    log = DecisionLog(HandClock(), queue_max=3, rows_max=1000)
    told: dict[int, int] = {}
    asked: list[str] = []

    def wanted(kind: str, facts: Mapping[str, object]) -> Callable[[int], None]:
        number = len(asked)
        asked.append(kind)
        return lambda id: told.update({number: id})

    log.on_recorded = wanted
    for _ in range(5):
        log.record("residency", FACTS)
    assert told == {}
    await log.close(store)
    assert (asked, told) == (["residency"] * 3, {0: 1, 1: 2, 2: 3})
    store.is_full = True
    log.record("residency", FACTS)
    await log.close(store)
    assert (len(asked), len(told)) == (4, 3)


async def test_decision_without_a_policy_is_stored_as_it_is() -> None:
    """It has its document already."""
    store = FakeStore()
    log = DecisionLog(HandClock(), queue_max=10, rows_max=1000)
    log.record("budget", PLAIN)
    await log.close(store)
    ((record,),) = store.batches
    assert (record.kind, record.application, record.problem) == ("budget", "t/app", PLAIN["problem"])
    assert record.answer == {"actions": [], "reason": "because"}


async def test_flood_of_equal_decisions_is_one_record_a_minute() -> None:
    """The first is stored at once; decisions of the same kind and key are counted into the first after a minute; other
    keys are none of them.
    """
    clock, store = HandClock(), FakeStore()
    log = DecisionLog(clock, queue_max=10, rows_max=1000)
    flood = {**PLAIN, "key": ("t/app", "queue")}
    for _ in range(1000):
        log.record("admission", flood)
    log.record("admission", {**PLAIN, "key": ("t/other", "queue")})
    log.record("drop", flood)
    clock.pass_s(61)
    log.record("admission", flood)
    await log.close(store)
    ((first, other, drop, later),) = store.batches
    assert [record.answer.get("times", 1) for record in (first, other, drop, later)] == [1, 1, 1, 1000]
    assert log.dropped == 0


async def test_closed_decision_log_stores_counted_decisions_with_their_problems() -> None:
    """13 drops: the first by itself, 12 in one row with their three different problems."""
    store = FakeStore()
    log = DecisionLog(HandClock(), queue_max=10, rows_max=1000)
    drops = [{"kind": "drop", "waited_ms": waited, "deadline_ms": 9.0} for waited in (10, *[11] * 10, 12, 13)]
    for drop in drops:
        answer = {"outcome": "dropped", "actions": [], "reason": "late"}
        log.record("drop", {**PLAIN, "asker": "t", "key": "door", "problem": drop, "answer": answer})
    await log.close(store)
    ((first, rest),) = store.batches
    assert (first.problem, first.answer.get("times")) == (drops[0], None)
    assert (rest.problem, rest.answer["times"]) == (drops[-1], 12)
    assert rest.answer["folded"] == [
        {"problem": drops[1], "times": 10},
        {"problem": drops[-2], "times": 1},
        {"problem": drops[-1], "times": 1},
    ]
    assert {plan_one(one["problem"])["outcome"] for one in rest.answer["folded"]} == {"dropped"}


async def test_counted_decisions_are_stored_with_any_other_one_after_their_minute() -> None:
    clock, store = HandClock(), FakeStore()
    log = DecisionLog(clock, queue_max=10, rows_max=1000)
    for _ in range(3):
        log.record("drop", {**PLAIN, "key": "door"})
    clock.pass_s(HOLD_S)
    log.record("budget", PLAIN)
    writing = asyncio.create_task(log.run(store))
    await handled(log, 3)
    writing.cancel()
    ((first, other, counted),) = store.batches
    assert (first.kind, other.kind, counted.kind) == ("drop", "budget", "drop")
    assert counted.answer["times"] == 2


async def test_full_decision_log_drops_the_newest_and_counts_them() -> None:
    store = FakeStore()
    log = DecisionLog(HandClock(), queue_max=3, rows_max=1000)
    for _ in range(5):
        log.record("residency", FACTS)
    assert (log.waiting, log.dropped) == (3, 2)
    await log.close(store)
    assert (log.written, log.waiting) == (3, 0)


@pytest.mark.parametrize(("is_full", "facts"), [(True, FACTS), (False, {})], ids=["a full disk", "our own mistake"])
async def test_failed_write_of_decisions_is_counted_and_the_next_succeeds(
    is_full: bool, facts: Mapping[str, object]
) -> None:
    """It costs the batch, not the writer."""
    store = FakeStore()
    store.is_full = is_full
    log = DecisionLog(HandClock(), queue_max=10, rows_max=1000)
    writing = asyncio.create_task(log.run(store))
    log.record("residency", facts)
    await handled(log, 1)
    store.is_full = False
    log.record("residency", FACTS)
    await handled(log, 2)
    writing.cancel()
    assert (log.written, log.dropped) == (1, 1)


async def test_closed_decision_log_finishes_the_batch_under_way() -> None:
    """A writer cancelled in the middle of a batch: the batch is stored once, and what came after it too."""
    store = FakeStore()
    store.gate.clear()
    log = DecisionLog(HandClock(), queue_max=10, rows_max=1000)
    writing = asyncio.create_task(log.run(store))
    log.record("residency", FACTS)
    await until(lambda: log.waiting == 0)
    log.record("residency", FACTS)
    writing.cancel()
    closing = asyncio.create_task(log.close(store))
    store.gate.set()
    await closing
    assert [len(batch) for batch in store.batches] == [1, 1]


async def test_decision_record_has_its_time_in_utc() -> None:
    """On the real clock a record carries the time of its making."""
    store, clock = FakeStore(), SystemClock()
    log = DecisionLog(clock, queue_max=10, rows_max=1000)
    before = clock.wall_now()
    log.record("residency", FACTS)
    await log.close(store)
    slack = datetime.timedelta(milliseconds=50)
    assert before - slack <= store.batches[0][0].at <= clock.wall_now() + slack


async def test_decisions_of_many_applications_leave_room_for_other_tenants() -> None:
    """However many of its applications are refused, a tenant makes so many rows a minute; none of them is uncounted."""
    clock, store = HandClock(), FakeStore()
    log = DecisionLog(clock, queue_max=1000, rows_max=1000)
    for _ in range(2):
        for number in range(500):
            log.record("admission", {**PLAIN, "asker": "t", "key": (f"t/{number}", "queue")})
    log.record("admission", {**PLAIN, "asker": "other", "key": ("other/app", "queue")})
    assert log.waiting == TENANT_ROWS_MAX + 1 + 1
    clock.pass_s(HOLD_S)
    for number in range(500):
        log.record("admission", {**PLAIN, "asker": "t", "key": (f"t/{number}", "queue")})
    assert log.waiting == 2 * (TENANT_ROWS_MAX + 1) + 1
    await log.close(store)
    times = sum(record.answer.get("times", 1) for batch in store.batches for record in batch)
    assert times == 1 + 1500  # those that were counted are stored at the end


async def test_decisions_of_many_plans_leave_room_for_other_tenants() -> None:
    """Decisions that are each their own: so many a minute one by one, and all others in the count of one."""
    clock, store = HandClock(), FakeStore()
    log = DecisionLog(clock, queue_max=10_000, rows_max=10_000)
    for tenant, count in (("t", 5000), ("other", 3)):
        for _ in range(count):
            log.record("offload", {**PLAIN, "asker": tenant})
    log.record("admission", {**PLAIN, "asker": "t", "key": ("t/a", "queue")})
    assert log.waiting == OWN_ROWS_MAX + 1 + 3 + 1
    clock.pass_s(HOLD_S)
    log.record("offload", {**PLAIN, "asker": "t"})
    assert log.waiting == OWN_ROWS_MAX + 1 + 3 + 1 + 1
    await log.close(store)
