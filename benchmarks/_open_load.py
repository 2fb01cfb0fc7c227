"""An open-loop HTTP/1.1 load generator for loopback: requests come at a fixed mean rate, whatever becomes of others.

Arrivals are a Poisson process. Each takes an idle connection, or a new one. Time counts from the arrival, so that a
generator that falls behind counts against what it measures.

Run as a program in a process of its own: `python -m benchmarks._open_load` with one JSON order on standard input:
{"port", "request": base64, "rate", "seconds", "deadline_ms", "connections", "seed"}; prints {"offered", "unsent",
"unanswered", "in_time", "statuses", "processor_s", "seconds", "p50_ms", "p99_ms"}.
"""

import asyncio
import base64
import json
import random
import sys
import time
from collections import Counter
from functools import partial
from typing import Any

import uvloop

from benchmarks._connections import Connections, carried_out
from benchmarks._results import percentile

CONNECTIONS_MAX = 1000
PATIENCE_S = 5.0
"""After the last arrival, for answers that are still to come."""


def offer(port: int, request: bytes, rate: float, seconds: float, deadline_ms: float) -> dict[str, Any]:
    """Send `rate` requests a second from a process of its own; returns what that process prints."""
    order = {"port": port, "request": base64.b64encode(request).decode(), "rate": rate, "seconds": seconds}
    order |= {"deadline_ms": deadline_ms, "connections": CONNECTIONS_MAX, "seed": 1}
    return carried_out("benchmarks._open_load", order)


class Generator:
    """Carries out an order."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._connections = Connections(order["port"], order["connections"])
        self.statuses: Counter[int] = Counter()
        self.in_time = self.offered = self.unsent = 0
        self.times_s: list[float] = []

    async def run(self) -> None:
        """Offer for so long, then wait for what is out."""
        request, chance = base64.b64decode(self._order["request"]), random.Random(self._order["seed"])
        at = start = time.perf_counter()
        while (at := at + chance.expovariate(self._order["rate"])) < start + self._order["seconds"]:
            if (delay := at - time.perf_counter()) > 0:
                await asyncio.sleep(delay)
            elif self.offered % 16 == 0:
                await asyncio.sleep(0)
            self.offered += 1
            self.unsent += not self._connections.send(request, partial(self._done, at))
        await self._connections.answered(PATIENCE_S)

    def _done(self, at: float, status: int, _: bytes) -> None:
        self.statuses[status] += 1
        if status:
            took_s = time.perf_counter() - at
            self.times_s.append(took_s)
            self.in_time += status == 200 and took_s * 1e3 <= self._order["deadline_ms"]

    def result(self) -> dict[str, Any]:
        times_ms = [1e3 * took_s for took_s in self.times_s] or [0.0]
        return {
            "offered": self.offered,
            "unsent": self.unsent,
            "unanswered": self._connections.waiting,
            "in_time": self.in_time,
            "statuses": dict(sorted(self.statuses.items())),
            "processor_s": time.process_time(),
            "seconds": self._order["seconds"],
            "p50_ms": percentile(times_ms, 50),
            "p99_ms": percentile(times_ms, 99),
        }


async def _main() -> None:
    generator = Generator(json.loads(sys.stdin.read()))
    await generator.run()
    print(json.dumps(generator.result()))


if __name__ == "__main__":
    uvloop.run(_main())
