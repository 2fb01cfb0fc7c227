"""A box that notes how long its event loop was held: `python -m benchmarks._held_box FILE [callbacks]`, else as
`serve`.

FILE gets a JSON object when it stops: seconds since the start of the machine → the longest hold in that second, ms of
processor time. A look a millisecond tells holds to a millisecond, and all that the loop computes between two looks,
which are many callbacks where others keep it from a core. With `callbacks` it is the longest single callback, and the
box runs on asyncio's loop in place of uvloop, which tells no callbacks apart: its sockets cost more.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import uvicorn

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


def _watch_callbacks() -> None:
    handle: Any = asyncio.Handle
    config: Any = uvicorn.Config
    watched: Any = Watched
    run, configure = handle._run, config.__init__

    def timed(one: asyncio.Handle) -> None:
        before_s = time.thread_time()
        run(one)
        _note((time.thread_time() - before_s) * 1e3)

    def on_asyncio(one: uvicorn.Config, *positional: Any, **settings: Any) -> None:
        configure(one, *positional, **settings | {"loop": "asyncio"})

    handle._run, config.__init__ = timed, on_asyncio
    watched.startup = server.Server.startup


def main() -> None:
    if sys.argv[2:] == ["callbacks"]:
        _watch_callbacks()
    server.Server = Watched  # type: ignore[misc]
    server.serve(Settings())
    Path(sys.argv[1]).write_text(json.dumps(Watched.holds))


if __name__ == "__main__":
    main()
