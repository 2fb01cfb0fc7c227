"""The program of a box that notes how long its event loop was held: `python -m benchmarks._held_box serve …`.

When it stops, the file that HOLDS names in its environment gets a JSON object: seconds since the start of the machine →
the longest hold in that second, ms of processor time. Looks are a millisecond apart: an upper bound, for others may
keep the loop from looking.
"""

import asyncio
import atexit
import json
import os
import time
from pathlib import Path
from typing import Any, ClassVar

from appliance import server
from appliance.cli.main import main

LOOK_S = 0.001


class Watched(server.Server):
    """Looks at the event loop while it runs."""

    holds: ClassVar[dict[int, float]] = {}

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(LOOK_S)
            _note((time.thread_time() - before_s) * 1e3)


def _note(held_ms: float) -> None:
    second = int(time.monotonic())
    Watched.holds[second] = max(held_ms, Watched.holds.get(second, 0.0))


def _write() -> None:
    Path(os.environ["HOLDS"]).write_text(json.dumps(Watched.holds))


if __name__ == "__main__":
    server.Server = Watched  # type: ignore[misc]
    atexit.register(_write)
    main()
