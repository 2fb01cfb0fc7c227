"""The threads that decode and encode."""

import asyncio
import gc
import itertools
import threading
import weakref
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.errors import BadMedia, DeadlineExceeded, QueueFull
from appliance.runtime.serving.media import LONG_NS, MediaPool

pytestmark = pytest.mark.anyio


@pytest.fixture
def pool() -> Iterator[MediaPool]:
    made = MediaPool(SystemClock(), threads=1, waiting_max=4, weight_of=lambda tenant: 1.0)
    yield made
    made.close()


async def test_media_thread_returns_values_and_errors(pool: MediaPool) -> None:
    """Work runs in another thread; what it raises is raised here; nothing stays counted."""

    def broken() -> None:
        raise BadMedia(reason="no picture")

    assert await pool.run("t/a", "t", None, threading.get_ident) != threading.get_ident()
    with pytest.raises(BadMedia):
        await pool.run("t/a", "t", None, broken)
    await settled(pool)


class Body:
    """Something large that can be watched."""

    def broken(self) -> None:
        raise BadMedia(reason="no picture")


async def test_failed_media_work_frees_its_body(pool: MediaPool) -> None:
    """Bodies that cannot be decoded are free when their callers have the error, without the garbage collector."""
    watched: list[weakref.ref[Body]] = []

    async def ask() -> None:
        body = Body()
        watched.append(weakref.ref(body))
        with pytest.raises(BadMedia):
            await pool.run("t/a", "t", None, body.broken)

    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            await ask()
        await pool.run("t/a", "t", None, int)  # the thread has let go of the last one
        assert sum(body() is not None for body in watched) == 0
    finally:
        gc.enable()


async def test_media_queue_is_bounded(pool: MediaPool) -> None:
    """One runs, two wait, the fourth is refused at once; when there is room again the next is taken."""
    go = threading.Event()
    waiting = await begun(*(pool.run("t/a", "t", None, go.wait) for _ in range(3)))
    with pytest.raises(QueueFull) as raised:
        await pool.run("t/a", "t", None, int)
    assert (raised.value.application_id, raised.value.queue_len_max) == ("t/a", 4)
    go.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    await settled(pool)
    assert await pool.run("t/a", "t", None, int) == 0


async def test_media_work_past_its_deadline_is_refused_and_not_begun(pool: MediaPool) -> None:
    """Work that waits beyond its deadline is answered in time and never run; work under way is left to end unheard."""
    go, ran = threading.Event(), list[str]()
    start_ns = SystemClock().now_ns()
    deadline_ns = start_ns + 30 * NS_PER_MS
    (running,) = await begun(pool.run("t/a", "t", deadline_ns, go.wait))
    with pytest.raises(DeadlineExceeded) as raised:
        await pool.run("t/a", "t", deadline_ns, lambda: ran.append("late"))
    assert 0 < raised.value.waited_ms <= (SystemClock().now_ns() - start_ns) / NS_PER_MS
    with pytest.raises(DeadlineExceeded):
        await running
    assert pool.waiting == 1  # the one in the thread still takes its place
    go.set()
    await settled(pool)
    assert ran == []


async def settled(pool: MediaPool) -> None:
    """Until nothing is counted any more."""
    async with asyncio.timeout(120):
        while pool.waiting:  # noqa: ASYNC110 - another thread counts out
            await asyncio.sleep(0.005)  # noqa: TID251


async def begun(*works: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Tasks that have handed their works over."""
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.sleep(0)  # noqa: TID251 - lets the tasks begin
    return tasks


async def test_media_flood_of_a_tenant_does_not_delay_other_tenants() -> None:
    """Twenty works of one tenant in line: another's is next, and the line has room for it."""
    pool = MediaPool(SystemClock(), threads=1, waiting_max=24, weight_of=lambda tenant: 1.0)
    go, ran = threading.Event(), list[str]()
    (first,) = await begun(pool.run("t/a", "greedy", None, go.wait))
    flood = await begun(*(pool.run("t/a", "greedy", None, lambda: ran.append("greedy")) for _ in range(20)))
    with pytest.raises(QueueFull):
        await pool.run("t/a", "greedy", None, int)
    (quiet,) = await begun(pool.run("t/a", "quiet", None, lambda: ran.append("quiet")))
    go.set()
    await asyncio.gather(first, quiet, *flood)
    assert ran == ["quiet", *["greedy"] * 20]
    await settled(pool)
    pool.close()


async def test_long_media_work_leaves_a_thread_to_tenants_with_short_work() -> None:
    """A picture that takes half a second to decode cannot be interrupted: as many of them as there are threads would be
    in the way of all others. A tenant with short work has a thread at once, and one after another; a lone tenant with
    long work has all of them.
    """
    looks, takes_ns = itertools.count(), [LONG_NS + 1]
    pool = MediaPool(
        SystemClock(),
        threads=2,
        waiting_max=24,
        weight_of=lambda tenant: 1.0,
        spent_ns=lambda: next(looks) * takes_ns[0],
    )
    for _ in range(2):
        await pool.run("t/a", "greedy", None, int)
    takes_ns[0] = 0
    both, go = threading.Barrier(2), threading.Event()
    await asyncio.gather(*[pool.run("t/a", "greedy", None, both.wait) for _ in range(2)])
    await pool.run("t/a", "quiet", None, int)
    ended = list[int]()

    def long(number: int) -> None:
        go.wait()
        ended.append(number)

    flood = [asyncio.create_task(pool.run("t/a", "greedy", None, partial(long, number))) for number in range(8)]
    for _ in range(3):
        async with asyncio.timeout(60):
            await pool.run("t/a", "quiet", None, int)
    go.set()
    await asyncio.gather(*flood)
    assert ended == list(range(8))
    await settled(pool)
    pool.close()


async def test_closing_the_media_pool_cancels_waiting_work() -> None:
    """No caller hangs when the box stops."""
    pool = MediaPool(SystemClock(), threads=1, waiting_max=24, weight_of=lambda tenant: 1.0)
    go = threading.Event()
    tasks = await begun(*(pool.run("t/a", "t", None, go.wait) for _ in range(3)))
    threading.Timer(0.05, go.set).start()
    pool.close()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [bool, asyncio.CancelledError, asyncio.CancelledError]
