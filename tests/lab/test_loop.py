"""Virtual time passes by jumping, is exact, and refuses everything that could come from outside."""

import asyncio
import gc
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from appliance.clock import NS_PER_S
from appliance.lab.loop import (
    EPOCH,
    START_NS,
    Deadlock,
    LeftOpen,
    Livelock,
    Refused,
    VirtualClock,
    VirtualLoop,
    run_virtual,
)


def test_virtual_clock_passes_an_hour_at_once_and_exactly() -> None:
    async def story() -> int:
        clock = VirtualClock()
        await clock.sleep_until_ns(START_NS + 3600 * NS_PER_S + 1)
        return clock.now_ns()

    assert run_virtual(story) == START_NS + 3600 * NS_PER_S + 1


def test_sleepers_of_equal_time_wake_in_the_order_of_asking() -> None:
    async def story() -> list[int]:
        clock, order = VirtualClock(), list[int]()

        async def sleeper(number: int, at_ns: int) -> None:
            await clock.sleep_until_ns(START_NS + at_ns)
            order.append(number)

        await asyncio.gather(*(sleeper(n, 5 if n % 2 else 3) for n in range(8)))
        return order

    assert run_virtual(story) == [0, 2, 4, 6, 1, 3, 5, 7]


def test_asyncio_timeouts_run_on_virtual_time() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await loop.create_future()
        async with asyncio.timeout(10):  # its timer is cancelled and must not hold the clock back or carry it on
            await VirtualClock().sleep_until_ns(START_NS)
        return loop.time() - before

    assert run_virtual(story) == 2.5


def test_story_that_waits_without_any_timer_is_a_deadlock() -> None:
    async def story() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(story)


def test_story_that_turns_for_ever_is_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.lab.loop._TURNS_MAX", 1000)

    async def story() -> None:
        clock = VirtualClock()
        while True:
            await clock.sleep_until_ns(clock.now_ns())

    with pytest.raises(Livelock):
        run_virtual(story)


@pytest.mark.parametrize(
    "escape",
    [
        lambda: asyncio.to_thread(len, ""),
        lambda: asyncio.open_connection("127.0.0.1", 9),
        lambda: asyncio.create_subprocess_exec("true", stdout=subprocess.DEVNULL),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 80),
    ],
    ids=["thread", "socket", "child", "names"],
)
def test_escape_from_virtual_time_is_refused(escape: Callable[[], Awaitable[object]]) -> None:
    async def story() -> None:
        await escape()

    with pytest.raises(Refused):
        run_virtual(story)


def test_error_of_a_task_never_awaited_ends_the_story() -> None:
    async def fail() -> None:
        raise ValueError("nobody listens")

    async def story() -> None:
        task = asyncio.create_task(fail())
        await VirtualClock().sleep_until_ns(START_NS + 1)
        del task
        await VirtualClock().sleep_until_ns(START_NS + 2)

    with pytest.raises(ValueError, match="nobody listens"):
        run_virtual(story)


def test_tasks_left_behind_are_cancelled() -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await VirtualClock().sleep_until_ns(START_NS + NS_PER_S)
        finally:
            ended.append("cancelled")

    async def story() -> None:
        asyncio.get_running_loop().linger = asyncio.create_task(linger())  # type: ignore[attr-defined]  # kept alive
        await VirtualClock().sleep_until_ns(START_NS + 1)

    run_virtual(story)
    assert ended == ["cancelled"]


# -- idle --------------------------------------------------------------------------------------------------------------


def running() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_idle_returns_after_all_work_that_needs_no_time() -> None:
    """Turns of any number and timers that are due count; a timer that is one nanosecond away does not."""

    async def story() -> None:
        clock, done = VirtualClock(), list[str]()

        async def turns() -> None:
            for _ in range(1000):
                await asyncio.sleep(0)  # noqa: TID251 - turns of the loop are the subject
            await clock.sleep_until_ns(START_NS)
            for _ in range(1000):
                await asyncio.sleep(0)  # noqa: TID251
            done.append("turns")
            await clock.sleep_until_ns(START_NS + 1)
            done.append("later")

        task = asyncio.create_task(turns())
        await running().idle()
        assert (done, clock.now_ns()) == (["turns"], START_NS)
        await running().idle()
        assert (done, clock.now_ns()) == (["turns"], START_NS)
        await task
        assert done == ["turns", "later"]

    run_virtual(story, is_strict=True)


def test_idle_of_an_idle_loop_returns_without_any_timer() -> None:
    async def story() -> int:
        await running().idle()
        return VirtualClock().now_ns()

    assert run_virtual(story) == START_NS


def test_idle_of_several_tasks_returns_to_each_on_an_idle_loop() -> None:
    async def story() -> list[str]:
        order: list[str] = []

        async def work(name: str) -> None:
            for _ in range(5):
                await asyncio.sleep(0)  # noqa: TID251 - turns of the loop are the subject
            order.append(f"work of {name}")

        async def wait(name: str) -> None:
            await running().idle()
            order.append(name)
            tasks.append(asyncio.create_task(work(name)))

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        tasks[1].cancel()
        await running().idle()
        await running().idle()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert run_virtual(story, is_strict=True) == ["a", "work of a", "c", "work of c"]


def test_idle_beside_a_task_that_never_rests_names_that_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.lab.loop._TURNS_MAX", 1000)

    async def poll() -> None:
        while True:  # noqa: ASYNC110 - asking for the next turn is the subject
            await asyncio.sleep(0)  # noqa: TID251 - turns of the loop are the subject

    async def story() -> None:
        polling = asyncio.create_task(poll(), name="polls for ever")
        await running().idle()
        polling.cancel()

    with pytest.raises(Livelock, match=r"never idle: .*polls for ever"):
        run_virtual(story)


# -- what a story leaves open ------------------------------------------------------------------------------------------


def test_task_left_behind_is_an_error_of_a_strict_story() -> None:
    async def story() -> None:
        running().linger = asyncio.create_task(  # type: ignore[attr-defined]  # kept alive
            VirtualClock().sleep_until_ns(START_NS + NS_PER_S), name="lingers"
        )

    with pytest.raises(LeftOpen, match="lingers"):
        run_virtual(story, is_strict=True)


def test_task_that_ends_without_time_passing_is_not_left_behind() -> None:
    """Such as a task that the story has cancelled and not awaited."""

    async def story() -> None:
        task = asyncio.create_task(VirtualClock().sleep_until_ns(START_NS + NS_PER_S))
        await running().idle()
        task.cancel()

    run_virtual(story, is_strict=True)


async def numbers() -> AsyncGenerator[int, None]:
    for number in range(3):
        yield number


def test_open_generator_is_an_error_of_a_strict_story() -> None:
    kept = numbers()

    async def story() -> None:
        assert await anext(kept) == 0

    with pytest.raises(LeftOpen, match="numbers"):
        run_virtual(story, is_strict=True)


def test_discarded_generator_is_closed_and_an_error_of_a_strict_story() -> None:
    ended: list[str] = []

    async def closing() -> AsyncGenerator[int, None]:
        try:
            yield 0
        finally:
            ended.append("closed")

    async def story() -> None:
        assert await anext(closing()) == 0
        gc.collect()
        await running().idle()
        assert ended == ["closed"]

    run_virtual(story)
    ended.clear()
    with pytest.raises(LeftOpen, match="closing"):
        run_virtual(story, is_strict=True)


def test_generator_that_has_ended_or_was_closed_is_not_left_open() -> None:
    read, closed = numbers(), numbers()

    async def story() -> None:
        assert [number async for number in read] == [0, 1, 2]
        await anext(closed)
        await closed.aclose()

    run_virtual(story, is_strict=True)


def test_error_of_a_story_is_raised_before_tasks_left_open() -> None:
    async def story() -> None:
        running().linger = asyncio.create_task(  # type: ignore[attr-defined]  # kept alive
            VirtualClock().sleep_until_ns(START_NS + NS_PER_S)
        )
        raise ValueError("the story's own")

    with pytest.raises(ValueError, match="the story's own"):
        run_virtual(story, is_strict=True)


def test_civil_time_starts_at_the_epoch_and_steps_alone() -> None:
    async def story() -> None:
        clock = VirtualClock()
        assert clock.wall_now() == EPOCH
        clock.step_ns = -90 * NS_PER_S
        await clock.sleep_until_ns(START_NS + 60 * NS_PER_S)
        assert (clock.wall_now() - EPOCH).total_seconds() == -30
        assert clock.now_ns() == START_NS + 60 * NS_PER_S

    run_virtual(story)
