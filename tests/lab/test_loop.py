"""Virtual time passes by jumping, is exact, and refuses everything that could come from outside."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable

import pytest

from appliance.clock import NS_PER_S
from appliance.lab.loop import EPOCH, START_NS, Deadlock, Livelock, Refused, VirtualClock, run_virtual


def test_an_hour_passes_at_once_and_exactly() -> None:
    async def story() -> int:
        clock = VirtualClock()
        await clock.sleep_until_ns(START_NS + 3600 * NS_PER_S + 1)
        return clock.now_ns()

    assert run_virtual(story) == START_NS + 3600 * NS_PER_S + 1


def test_equal_times_wake_in_the_order_of_asking() -> None:
    async def story() -> list[int]:
        clock, order = VirtualClock(), list[int]()

        async def sleeper(number: int, at_ns: int) -> None:
            await clock.sleep_until_ns(START_NS + at_ns)
            order.append(number)

        await asyncio.gather(*(sleeper(n, 5 if n % 2 else 3) for n in range(8)))
        return order

    assert run_virtual(story) == [0, 2, 4, 6, 1, 3, 5, 7]


def test_timeouts_of_asyncio_run_on_virtual_time() -> None:
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


def test_waiting_for_nothing_is_an_error() -> None:
    async def story() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(story)


def test_turning_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_nothing_leaves_virtual_time(escape: Callable[[], Awaitable[object]]) -> None:
    async def story() -> None:
        await escape()

    with pytest.raises(Refused):
        run_virtual(story)


def test_an_error_that_nobody_awaited_ends_the_story() -> None:
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


def test_civil_time_starts_at_the_epoch_and_only_it_steps() -> None:
    async def story() -> None:
        clock = VirtualClock()
        assert clock.wall_now() == EPOCH
        clock.step_ns = -90 * NS_PER_S
        await clock.sleep_until_ns(START_NS + 60 * NS_PER_S)
        assert (clock.wall_now() - EPOCH).total_seconds() == -30
        assert clock.now_ns() == START_NS + 60 * NS_PER_S

    run_virtual(story)
