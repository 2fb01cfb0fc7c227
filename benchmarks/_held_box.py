"""A box that notes how long its event loop was held: `python -m benchmarks._held_box FILE`, else as `serve`.

FILE gets a JSON object when it stops: seconds since the start of the machine → the longest hold in that second, ms of
processor time. Looks are a millisecond apart: an upper bound, for others may keep the loop from looking.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from appliance import server
from appliance.settings import Settings

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


def main() -> None:
    server.Server = Watched  # type: ignore[misc]
    server.serve(Settings())
    Path(sys.argv[1]).write_text(json.dumps(Watched.holds))


if __name__ == "__main__":
    main()
