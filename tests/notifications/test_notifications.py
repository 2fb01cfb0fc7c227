"""Receivers of a box: who gets which message, and what one that is slow or away does to the others."""

import asyncio
import datetime
import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from appliance.domain.errors import TooManyTests, UnknownReceiver
from appliance.domain.health.conditions import Condition, Severity, Subject, SubjectKind, Trouble
from appliance.domain.notifications.receivers import (
    FAILING_FROM,
    GIVEN_UP_FROM,
    Outcome,
    Receiver,
    ReceiverKind,
    ReceiverState,
)
from appliance.notifications.notifications import APART_S, RETRY_S, RETRY_S_MAX, TESTS_APART_S, Notifications
from appliance.notifications.sending import Sender
from tests.fakes.hand_clock import HandClock
from tests.fakes.waiting import until
from tests.notifications.receiving import TAKEN, Receiving, receiving

pytestmark = [pytest.mark.usefixtures("ports"), pytest.mark.anyio]
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
BROKEN = b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"
LOOK_S = 10


def late(name: str, tenant: str = "harbour", severity: Severity = Severity.WARN) -> Condition:
    subject = Subject(SubjectKind.APPLICATION, name, tenant)
    return Condition(Trouble.APPLICATION_LATE, subject, severity, f"{name} is late.", "12 of 80", "Wait.", NOW)


GATE, DOOR = late("gate"), late("door", severity=Severity.BAD)
FULL = Condition(Trouble.DISK_FULL, Subject(SubjectKind.BOX), Severity.BAD, "The disk is full.", "1 MB", "Act.", NOW)


class Bench:
    """Notifications of a box whose time a test moves."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.notifications = Notifications(self.clock, Sender(self.clock, ["127.0.0.0/8"]), "box-1")

    def add(self, id: str, one: Receiving, tenant: str | None = "harbour") -> None:
        """Have a receiver told."""
        receiver = Receiver(id, tenant, id, ReceiverKind.WEBHOOK, one.url, "", Severity.WARN, NOW)
        self.notifications.put(receiver)

    async def look(self, conditions: Sequence[Condition], *ids: str, after_s: float = 0) -> None:
        """Let time pass and look at the box; then wait until these receivers have no message under way."""
        self.clock.pass_s(after_s)
        await self.notifications.update(conditions)
        names = {f"notify {id}" for id in ids}
        await until(lambda: not names & {task.get_name() for task in asyncio.all_tasks()}, every_s=0)


def told(one: Receiving) -> list[list[tuple[str, str]]]:
    """Return what each message to a receiver told: (change, name of the subject)."""
    return [[(row["change"], row["subject"]["name"]) for row in got.document["conditions"]] for got in one.got]


async def test_receiver_is_told_what_begins_and_ends_in_one_message_each() -> None:
    bench = Bench()
    async with receiving() as one:
        bench.add("phone", one)
        await bench.look([GATE, DOOR], "phone")
        await bench.look([GATE, DOOR], "phone", after_s=1000)
        await bench.look([], "phone", after_s=1000)
        assert told(one) == [[("began", "door"), ("began", "gate")], [("ended", "door"), ("ended", "gate")]]
        assert bench.notifications.status("phone").state is ReceiverState.WELL
    await bench.notifications.close()


async def test_other_work_goes_on_between_two_receivers_and_one_removed_meanwhile_is_not_told() -> None:
    bench = Bench()
    async with receiving() as one, receiving() as other, receiving() as third:
        for id, place in (("a", one), ("b", other), ("c", third)):
            bench.add(id, place)
        under_way: list[str] = []

        def remove() -> None:
            under_way.extend(name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("notify "))
            bench.notifications.remove("b")

        asyncio.get_running_loop().call_soon(remove)
        await bench.look([GATE], "a", "b", "c")
        assert under_way == ["notify a"]
        assert (told(one), told(other), told(third)) == ([[("began", "gate")]], [], [[("began", "gate")]])
    await bench.notifications.close()


async def test_tenants_are_told_their_own_and_the_operator_all() -> None:
    """Of the box a tenant is told without figures."""
    bench = Bench()
    async with receiving() as harbour, receiving() as museum, receiving() as operator:
        bench.add("harbour", harbour)
        bench.add("museum", museum, "museum")
        bench.add("operator", operator, None)
        shared = replace(late("shared", "museum"), is_shared=True)
        await bench.look([GATE, late("hall", "museum"), FULL, shared], "harbour", "museum", "operator")
        assert sorted(told(harbour)[0]) == [("began", ""), ("began", "gate"), ("began", "shared")]
        assert sorted(told(museum)[0]) == [("began", ""), ("began", "hall"), ("began", "shared")]
        assert len(told(operator)[0]) == 4
        assert "1 MB" not in str(museum.got) + str(harbour.got)
        assert "1 MB" in str(operator.got)
    await bench.notifications.close()


async def test_receiver_that_says_nothing_holds_up_neither_others_nor_the_end() -> None:
    """It has one message under way, and is sent no other meanwhile."""
    bench = Bench()
    async with receiving(answer=None) as slow, receiving() as quick:
        bench.add("slow", slow)
        bench.add("quick", quick)
        await bench.look([GATE], "quick")
        await until(lambda: slow.got)
        await bench.look([GATE, DOOR], "quick", after_s=100)
        await bench.look([], "quick", after_s=100)
        assert told(quick) == [[("began", "gate")], [("began", "door")], [("ended", "door"), ("ended", "gate")]]
        assert told(slow) == [[("began", "gate")]]
        await bench.notifications.close()


async def test_receiver_that_refuses_is_tried_again_ever_later_and_then_told_how_things_stand() -> None:
    bench = Bench()
    async with receiving(answer=BROKEN) as one:
        bench.add("phone", one)
        await bench.look([GATE], "phone")
        tries = [bench.clock.now_ns()]
        while len(one.got) < 12:
            before = len(one.got)
            await bench.look([GATE, DOOR], "phone", after_s=LOOK_S)
            if len(one.got) > before:
                tries.append(bench.clock.now_ns())
        gaps = [(after - before) // 10**9 for before, after in itertools.pairwise(tries)]
        assert gaps == [min(RETRY_S_MAX, RETRY_S * 2**number) for number in range(11)]
        assert bench.notifications.status("phone").state is ReceiverState.FAILING
        assert [(who.id, last.status) for who, last in bench.notifications.failing()] == [("phone", 500)]
        one.answer = TAKEN
        one.got.clear()
        await bench.look([DOOR], "phone", after_s=RETRY_S_MAX)
        assert told(one) == [[("began", "door"), ("passed", "gate")]]
        assert bench.notifications.failing() == ()
    await bench.notifications.close()


async def test_receiver_that_never_answers_well_is_given_up_until_a_test_message_arrives() -> None:
    bench = Bench()
    async with receiving(answer=BROKEN) as one:
        bench.add("phone", one)
        for _ in range(GIVEN_UP_FROM + 5):
            await bench.look([GATE], "phone", after_s=RETRY_S_MAX)
        assert len(one.got) == GIVEN_UP_FROM
        assert bench.notifications.status("phone").state is ReceiverState.GIVEN_UP
        assert len(bench.notifications.failing()) == 1
        one.answer = TAKEN
        assert (await bench.notifications.test("phone")).outcome is Outcome.DELIVERED
        one.got.clear()
        await bench.look([GATE], "phone", after_s=APART_S)
        assert told(one) == [[("began", "gate")]]
    await bench.notifications.close()


async def test_flapping_condition_makes_few_messages() -> None:
    """An hour of one that comes and goes with each look."""
    bench = Bench()
    async with receiving() as one:
        bench.add("phone", one)
        for look in range(360):
            await bench.look([GATE] if look % 2 else [], "phone", after_s=LOOK_S)
        assert 2 <= len(one.got) <= 7
    await bench.notifications.close()


async def test_messages_to_a_receiver_are_apart_and_tell_together_what_came_between() -> None:
    bench = Bench()
    async with receiving() as one:
        bench.add("phone", one)
        await bench.look([GATE], "phone")
        await bench.look([GATE, DOOR], "phone", after_s=LOOK_S)
        await bench.look([GATE, DOOR, FULL], "phone", after_s=LOOK_S)
        assert len(one.got) == 1
        await bench.look([GATE, DOOR, FULL], "phone", after_s=APART_S)
        assert told(one)[1:] == [[("began", ""), ("began", "door")]]
    await bench.notifications.close()


async def test_test_messages_are_bounded_and_count_like_others() -> None:
    """One at a time, and one in some seconds."""
    bench = Bench()
    async with receiving(answer=BROKEN) as one:
        bench.add("phone", one)
        for number in range(FAILING_FROM):
            sent = await bench.notifications.test("phone")
            assert (sent.outcome, sent.status, len(one.got)) == (Outcome.REFUSED, 500, number + 1)
            with pytest.raises(TooManyTests):
                await bench.notifications.test("phone")
            bench.clock.pass_s(TESTS_APART_S)
        assert bench.notifications.status("phone").state is ReceiverState.FAILING
    with pytest.raises(UnknownReceiver):
        await bench.notifications.test("other")
    await bench.notifications.close()


async def test_receiver_that_is_removed_gets_nothing_more() -> None:
    """Also where a message was under way: who waits for a test is told that it is gone."""
    bench = Bench()
    async with receiving(answer=None) as one:
        bench.add("phone", one)
        test = asyncio.create_task(bench.notifications.test("phone"))
        await until(lambda: one.got)
        with pytest.raises(TooManyTests):
            await bench.notifications.test("phone")
        bench.notifications.remove("phone")
        bench.notifications.remove("phone")
        with pytest.raises(UnknownReceiver):
            await test
        await bench.look([GATE], "phone")
        assert len(one.got) == 1
        assert bench.notifications.status("phone").state is ReceiverState.NEW
    await bench.notifications.close()
