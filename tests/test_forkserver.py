"""Children that are forked of a process which has imported what they need: real processes."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from appliance.child import Ended, run_child
from appliance.clock import SystemClock
from appliance.forkserver import ForkServer, begin_child

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]
PATIENCE_S = 120.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer("tests.fakes.forked_program", "a", "b")
    yield made
    made.close()


async def ended(server: ForkServer, end: str, said: list[dict[str, Any]]) -> Ended:
    begin = partial(begin_child, server, {"end": end})
    return await run_child(begin, b"order", wall_s=PATIENCE_S, on_line=lambda line: said.append(json.loads(line)))


async def turn() -> None:
    """One turn of the loop."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_soon(over.set)
    await over.wait()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await SystemClock().sleep_until_ns(SystemClock().now_ns() + 1_000_000)


async def test_children_share_a_fork_server_and_report_their_exit_status(server: ForkServer) -> None:
    said: list[dict[str, Any]] = []
    ends = await asyncio.gather(*(ended(server, end, said) for end in ("0", "3", "crash")))
    assert [(one.status, one.stderr.strip()) for one in ends] == [
        (0, "said aloud"),
        (3, "said aloud"),
        (-signal.SIGSEGV, "said aloud"),
    ]
    assert {(one["told"], *one["ready"], one["server"]) for one in said} == {("order", "a", "b", server.pid)}
    assert len({one["pid"] for one in said} | {one["of"] for one in said}) == 6


def test_fork_server_survives_children_that_end_at_once() -> None:
    """Also where such a child ends before the fork server goes on."""
    server = ForkServer("tests.fakes.ending_program")
    server.start()
    try:
        for _ in range(300):
            os.close(server.fork({}, []).descriptor)
    finally:
        server.close()


async def test_child_cancelled_at_any_moment_leaves_nothing(server: ForkServer) -> None:
    """Before it is forked, while its connections open, while it runs: no process, no socket (`harness/leaks.py`)."""
    said: list[dict[str, Any]] = []
    await ended(server, "0", said)
    for turns in range(25):
        hanging = asyncio.create_task(ended(server, "hang", said))
        for _ in range(turns):
            await turn()
        hanging.cancel()
        with suppress(asyncio.CancelledError):
            await hanging
    here: list[dict[str, Any]] = []
    running = asyncio.create_task(ended(server, "hang", here))
    await until(lambda: bool(here))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(here[0]["pid"], 0)
    assert (await ended(server, "0", said)).status == 0


async def test_killed_fork_server_ends_its_children_and_is_replaced(server: ForkServer) -> None:
    said: list[dict[str, Any]] = []
    hanging = asyncio.create_task(ended(server, "hang", said))
    await until(lambda: bool(said))
    os.kill(server.pid, signal.SIGKILL)
    assert (await hanging).status == -signal.SIGKILL
    assert (await ended(server, "0", said)).status == 0
    assert said[0]["server"] != said[1]["server"] == server.pid


async def test_child_of_a_fork_server_killed_before_it_begins_is_forked_of_another_one(server: ForkServer) -> None:
    """The order that found it dead is given to the next one."""
    server.start()
    dead = server.pid
    os.kill(dead, signal.SIGSTOP)
    said: list[dict[str, Any]] = []
    beginning = asyncio.create_task(ended(server, "0", said))
    await turn()
    os.kill(dead, signal.SIGKILL)
    assert (await beginning).status == 0
    assert said[0]["server"] == server.pid != dead


async def test_closed_fork_server_fails_a_child_about_to_begin(server: ForkServer) -> None:
    beginning = asyncio.create_task(ended(server, "0", []))
    await until(lambda: bool(server.pid))
    await asyncio.to_thread(server.close)
    with pytest.raises(OSError, match=r"fork server|reset|began"):
        await beginning
