"""A child process with an order: its lines, its end, and that nothing of it outlives its time."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from appliance.child import RESTS, Child, Ended, Interrupted, Rests, executed, run_child
from appliance.clock import NS_PER_S, SystemClock, pause_s

pytestmark = pytest.mark.usefixtures("processes")

PATIENCE_S = 240.0
PROGRAM = """
import json, os, subprocess, sys
order = json.load(sys.stdin)
print(json.dumps({"got": order, "pid": os.getpid()}), flush=True)
if sys.argv[1] == "hang":
    grandchild = subprocess.Popen(["sleep", "600"])
    print(json.dumps({"grandchild": grandchild.pid}), flush=True)
    grandchild.wait()
print("said aloud", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def has_ended(pid: int) -> bool:
    """Gone, or nothing but an entry that waits to be read."""
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def ordered(folder: Path, argument: str) -> Callable[[], Awaitable[Child]]:
    """How the program of these tests begins, which is written to `folder`."""
    (folder / "ordered.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return partial(executed, "ordered", argument, folder=folder, environment=environment)


class LimitedRests(Rests):
    """Keeps the time limit of the child that began last."""

    limit: asyncio.Timeout

    @contextmanager
    def child(self, pid: int, limit: asyncio.Timeout, *, is_timed: bool) -> Iterator[None]:
        self.limit = limit
        with super().child(pid, limit, is_timed=is_timed):
            yield


def run(folder: Path, argument: str, wall_s: float = PATIENCE_S) -> tuple[list[dict[str, object]], int, str]:
    lines: list[dict[str, object]] = []
    begin = ordered(folder, argument)
    take = lambda line: lines.append(json.loads(line))  # noqa: E731
    ended = asyncio.run(run_child(begin, b'{"a": 1}', wall_s=wall_s, on_line=take))
    return lines, ended.status, ended.stderr


@pytest.mark.parametrize("status", [0, 3])
def test_child_receives_order_and_returns_lines_and_status(tmp_path: Path, status: int) -> None:
    lines, ended, stderr = run(tmp_path, str(status))
    assert (lines[0]["got"], ended, stderr.strip()) == ({"a": 1}, status, "said aloud")


def test_child_past_its_time_is_killed_with_its_own_child(tmp_path: Path) -> None:
    """The time is over when both are there."""
    pids: list[int] = []
    rests = LimitedRests()

    def take(line: bytes) -> None:
        message = json.loads(line)
        pids.append(message.get("grandchild") or message["pid"])
        if len(pids) == 2:
            rests.limit.reschedule(asyncio.get_running_loop().time())

    async def story() -> None:
        RESTS.set(rests)
        with pytest.raises(TimeoutError):
            await run_child(ordered(tmp_path, "hang"), b"{}", wall_s=PATIENCE_S, on_line=take)

    asyncio.run(story())
    assert len(pids) == 2
    for pid in pids:
        for _ in range(2400):  # a killed process is there until somebody has seen to it
            if has_ended(pid):
                break
            pause_s(0.05)
        assert has_ended(pid)


def _state(pid: int) -> str:
    """`T`: it stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def _children() -> set[str]:
    """Return the ids of this process's children."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


async def _until_it_is(state: str, pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (_state(pid) == "T") is not (state == "T"):
            await SystemClock().sleep_until_ns(SystemClock().now_ns() + NS_PER_S // 100)


def test_resting_children_stop_and_new_ones_wait(tmp_path: Path) -> None:
    """With all that they have started, and grow no older meanwhile; a child that is begun then waits for the end."""

    async def story() -> None:
        lines: list[dict[str, int]] = []

        async def begun(argument: str) -> Ended:
            RESTS.set(rests)
            take = lambda line: lines.append(json.loads(line))  # noqa: E731
            return await run_child(ordered(tmp_path, argument), b"{}", wall_s=PATIENCE_S, on_line=take)

        rests = LimitedRests()
        hanging = asyncio.create_task(begun("hang"))
        async with asyncio.timeout(PATIENCE_S):
            while len(lines) < 2:
                await SystemClock().sleep_until_ns(SystemClock().now_ns() + NS_PER_S // 100)
        both = lines[0]["pid"], lines[1]["grandchild"]
        limit = rests.limit
        left_s = limit.when() - asyncio.get_running_loop().time()  # type: ignore[operator]
        rests.begin()
        for pid in both:
            await _until_it_is("T", pid)
        assert limit.when() is None
        before = _children()
        other = asyncio.create_task(begun("0"))
        await asyncio.wait([other], timeout=0.1)
        rests.begin()  # changes nothing
        assert _children() == before
        assert len(lines) == 2
        rests.end()
        rests.end()
        for pid in both:
            await _until_it_is("not T", pid)
        assert 0 < limit.when() - asyncio.get_running_loop().time() <= left_s  # type: ignore[operator]
        assert (await other).status == 0
        hanging.cancel()
        await asyncio.wait([hanging])
        rests.begin()  # the limits of children that have ended cannot be changed any more

    asyncio.run(story())


def test_timed_child_is_interrupted_instead_of_resting(tmp_path: Path) -> None:
    """A measurement with a rest in it would be of no use."""

    async def story() -> None:
        rests, lines = Rests(), asyncio.Event()
        RESTS.set(rests)
        timed = asyncio.create_task(
            run_child(ordered(tmp_path, "hang"), b"{}", wall_s=PATIENCE_S, on_line=lambda _: lines.set(), is_timed=True)
        )
        await lines.wait()
        rests.begin()
        with pytest.raises(Interrupted):
            await timed
        assert rests.lasted_s > 0

    asyncio.run(story())
