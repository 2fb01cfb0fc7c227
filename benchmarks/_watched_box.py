"""`appliance serve` with the planners that pipelines are compared with among those that may be chosen, and with a watch
on how late its event loop is.

`LATENESS` in the environment names a file that gets a line of JSON each second: when, by the monotonic clock, and how
many milliseconds each of its ticks came too late.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from appliance.cli.main import main
from appliance.policies import allocation
from appliance.server import Server
from benchmarks._pipeline_planners import PLANNERS

LATENESS = "BENCH_LATENESS"
TICK_S = 0.005
TICKS_PER_LINE = 200


class WatchedServer(Server):
    """Begins the watch when it listens."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if path := os.environ.get(LATENESS):
            self._watch = asyncio.create_task(_watch(Path(path)), name="lateness")


async def _watch(path: Path) -> None:
    while True:
        late_ms = []
        for _ in range(TICKS_PER_LINE):
            due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            late_ms.append(round(1e3 * (time.monotonic() - due_s), 3))
        line = json.dumps({"at_s": time.monotonic(), "late_ms": late_ms})
        with path.open("a") as file:  # one short write a second
            file.write(line + "\n")


def lateness_ms(path: Path, begin_s: float, end_s: float) -> list[float]:
    """What was written between two instants of the monotonic clock."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for line in lines if begin_s < line["at_s"] <= end_s for one in line["late_ms"]]


if __name__ == "__main__":
    import appliance.server

    allocation.ALLOCATION_POLICIES.update(PLANNERS)  # type: ignore[attr-defined]
    appliance.server.Server = WatchedServer  # type: ignore[misc]
    main()
