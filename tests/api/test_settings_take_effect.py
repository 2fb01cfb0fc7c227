"""Settings that the composition root hands on, seen in the running box."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.api.stand import ANSWER_S, running

pytestmark = pytest.mark.anyio


async def test_media_threads_setting_bounds_media_work_side_by_side(tmp_path: Path) -> None:
    """One piece more waits for a thread."""
    others = set(threading.enumerate())  # a box of an earlier test may still end
    async with running(tmp_path, queues={"media_threads": 3}) as appliance:
        media = appliance.running().media
        together, go = threading.Barrier(4), threading.Event()

        def work() -> None:
            together.wait(ANSWER_S)
            go.wait(ANSWER_S)

        three = [asyncio.create_task(media.run("t/a", "t", None, work)) for _ in range(3)]
        await asyncio.to_thread(together.wait, ANSWER_S)  # breaks where the three do not run side by side
        fourth = asyncio.create_task(media.run("t/a", "t", None, int))
        await asyncio.sleep(0)  # noqa: TID251 - lets the task begin
        mine = set(threading.enumerate()) - others
        assert sum(thread.name.startswith("media") for thread in mine) == 3
        go.set()
        await asyncio.gather(*three, fourth)
