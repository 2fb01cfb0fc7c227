"""Worker threads: values and errors come back to the loop, callers may go away, and nothing is held."""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from appliance.runtime.processors.cpu.threads import WorkerThreads
from tests.fakes.waiting import until


class Thing:
    """Something that can be watched going away."""


@pytest.fixture
def threads() -> Iterator[WorkerThreads]:
    """One."""
    made = WorkerThreads("calc", 1)
    yield made
    made.close()


@pytest.mark.anyio
async def test_worker_thread_returns_the_value_or_error_of_a_call(threads: WorkerThreads) -> None:
    """The call runs on a thread of that name."""
    assert await threads.submit(divmod, 7, 2) == (3, 1)
    assert (await threads.submit(threading.current_thread)).name == "calc-0"
    with pytest.raises(ZeroDivisionError):
        await threads.submit(divmod, 7, 0)
    assert await threads.submit(divmod, 9, 2) == (4, 1)


@pytest.mark.anyio
async def test_worker_threads_run_a_call_each_at_once() -> None:
    """Three calls that wait for one another can only end side by side."""
    threads = WorkerThreads("calc", 3)
    together = threading.Barrier(3, timeout=120)
    assert sorted(await asyncio.gather(*(threads.submit(together.wait) for _ in range(3)))) == [0, 1, 2]
    threads.close()


@pytest.mark.anyio
async def test_cancelled_call_still_runs(threads: WorkerThreads) -> None:
    """The caller has gone, the call is made all the same (it cannot be undone), and the thread serves the next one."""
    go, done = threading.Event(), threading.Event()

    def slow() -> str:
        go.wait(120)
        done.set()
        return "late"

    future = threads.submit(slow)
    future.cancel()
    go.set()
    assert await threads.submit(done.wait, 120)
    assert future.cancelled()


@pytest.mark.anyio
async def test_idle_worker_thread_holds_no_argument_or_result(threads: WorkerThreads) -> None:
    argument = Thing()
    result = await threads.submit(lambda thing: Thing(), argument)
    seen, made = weakref.ref(argument), weakref.ref(result)
    del argument, result
    await until(lambda: seen() is None and made() is None)


def test_result_for_a_closed_event_loop_is_dropped(threads: WorkerThreads) -> None:
    """The thread lives on for the next loop."""
    go = threading.Event()

    async def leave() -> None:
        threads.submit(go.wait, 120)

    async def come() -> int:
        return int(await threads.submit(len, "abc"))

    asyncio.run(leave())
    go.set()
    assert asyncio.run(come()) == 3


def test_close_ends_the_worker_threads() -> None:
    """After the calls that are queued."""
    threads = WorkerThreads("closing", 2)
    threads.close()
    for thread in threading.enumerate():
        if thread.name.startswith("closing-"):
            thread.join(120)
            assert not thread.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux only")
@pytest.mark.anyio
async def test_worker_threads_with_a_nice_value_have_a_lower_priority() -> None:
    """The priority of this thread is as before."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    threads = WorkerThreads("calc", 1, nice=3)
    assert await threads.submit(os.getpriority, os.PRIO_PROCESS, 0) == min(19, own + 3)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own
    threads.close()
