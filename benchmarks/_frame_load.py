"""Clients of pipelines on loopback: they join, send frames at their rate whatever becomes of others, and leave.

Each client sends at equal distances from a phase of its own. A client that is refused sends without an id, as the
demo's devices do. Time counts from the moment that a frame was due, so that a generator that falls behind counts
against what it measures. Each frame has an id, which its answer has to bear.

Run as a program in a process of its own: `python -m benchmarks._frame_load` with an `Order` as JSON on standard
input; prints a `Result`.
"""

import asyncio
import json
import random
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import uvloop

from benchmarks import _box as boxes
from benchmarks._connections import Connections, carried_out
from benchmarks._results import percentile
from tests.attacks.wire import head

PATIENCE_S = 10.0
"""After the last frame, for answers that are still to come."""
ITEMS_MAX = 8
"""Of a frame; drawn evenly from none on."""
ITEM = re.compile(rb'"stage":"[^"]+","(?:quad|box)":')
"""Of a node that a crop made."""


@dataclass(frozen=True, slots=True)
class Line:
    """The frames of one pipeline: `fps` of all its `clients` together.

    `pictures`: number of items → files. `stay_s`: clients stay so long on average, and after `gap_s` another one joins.
    `None`: to the end.
    """

    name: str
    slo_ms: float
    pictures: dict[str, list[str]]
    fps: float = 0.0
    clients: int = 1
    stay_s: float | None = None
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is sent, for so long."""

    port: int
    key: str
    seconds: float
    lines: list[Line]
    seed: int = 1


@dataclass(slots=True)
class Tally:
    """What became of the frames of a pipeline.

    `in_time`: as the box says, no item of it failed, and not later than the SLO from when it was due;
    `said_in_time`: the same as the box sees it. `lost`: without an answer. `twice`: answers beyond one a frame.
    `wrong`: the answer of another frame.
    """

    sent: int = 0
    answered: int = 0
    in_time: int = 0
    said_in_time: int = 0
    dropped: int = 0
    with_errors: int = 0
    items: int = 0
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    joined: int = 0
    refused: int = 0
    forgotten: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    p50_ms: float = 0.0
    p99_ms: float = 0.0


@dataclass(slots=True)
class Result:
    """What came of an order. `processor_s`: of the generator."""

    seconds: float
    lines: dict[str, Tally]
    processor_s: float
    behind_ms: float
    """How late a frame was sent, 99 of 100."""

    def total(self, name: str) -> float:
        return float(sum(getattr(one, name) for one in self.lines.values()))


def sent(order: Order) -> Result:
    """From a process of its own."""
    found = carried_out("benchmarks._frame_load", asdict(order))
    lines = {name: Tally(**one) for name, one in found.pop("lines").items()}
    return Result(lines=lines, **found)


@dataclass(slots=True)
class _Frame:
    """A frame that waits for its answer."""

    line: Line
    id: bytes
    due_s: float
    client: str


class Generator:
    """Carries out an order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._chance = random.Random(order.seed)
        self._connections = Connections(order.port)
        self.tallies = {line.name: Tally() for line in order.lines}
        self._times_ms: dict[str, list[float]] = {line.name: [] for line in order.lines}
        self._behind_ms: list[float] = []
        self._bodies: dict[str, bytes] = {}
        self._forgotten: set[str] = set()
        for line in order.lines:
            for path in (path for paths in line.pictures.values() for path in paths):
                self._bodies[path] = Path(path).read_bytes()

    async def run(self) -> None:
        """All clients until the end, then what is out."""
        self._start_s = time.perf_counter() + 0.05
        async with asyncio.TaskGroup() as group:
            for line in self._order.lines:
                for _ in range(line.clients):
                    group.create_task(self._slot(line))
        await self._connections.answered(PATIENCE_S)
        for tally in self.tallies.values():
            tally.lost = tally.sent - tally.answered
        self.tallies[self._order.lines[0].name].twice = self._connections.unasked

    # -- clients -------------------------------------------------------------------------------------------------------

    async def _slot(self, line: Line) -> None:
        """One client after the other."""
        at_s, fps, first = 0.0, line.fps / line.clients, True
        while at_s < self._order.seconds:
            if line.stay_s is None:
                stay_s = self._order.seconds
            else:
                stay_s = line.stay_s * self._chance.uniform(0.1 if first else 0.5, 1.5)
            until_s = min(self._order.seconds, at_s + stay_s)
            await self._client(line, fps, at_s, until_s)
            at_s, first = until_s + line.gap_s * self._chance.uniform(0.5, 1.5), False

    async def _client(self, line: Line, fps: float, from_s: float, until_s: float) -> None:
        await self._sleep_until(from_s)
        client, number, at_s = await self._join(line, fps), 0, from_s + self._chance.random() / fps
        at_s = max(at_s, self._now_s())
        while at_s < until_s:
            await self._sleep_until(at_s)
            if client and client in self._forgotten:
                client = ""
            self._send(line, at_s, client, number)
            number, at_s = number + 1, at_s + 1.0 / fps
        await self._sleep_until(until_s)
        if client:
            await self._ask("DELETE", f"/v1/pipelines/{line.name}/clients/{client}")

    async def _join(self, line: Line, fps: float) -> str:
        """The id, or nothing where it was refused."""
        body = json.dumps({"fps": fps}).encode()
        status, answer = await self._ask("POST", f"/v1/pipelines/{line.name}/clients", body, "application/json")
        tally = self.tallies[line.name]
        if status == 201:
            tally.joined += 1
            return str(json.loads(answer)["id"])
        tally.refused += 1
        problem = json.loads(answer) if answer else {}
        why = str(problem.get("missing") or problem.get("type") or status)
        tally.refusals[why] = tally.refusals.get(why, 0) + 1
        return ""

    # -- frames --------------------------------------------------------------------------------------------------------

    def _send(self, line: Line, at_s: float, client: str, number: int) -> None:
        tally = self.tallies[line.name]
        tally.sent += 1
        id = f"{line.name}-{tally.sent}".encode()
        picture = self._bodies[self._chance.choice(line.pictures[self._count(line)])]
        whose = {"x_client": client, "x_frame": number} if client else {}
        path = f"/v1/pipelines/{line.name}/predict"
        request = boxes.post(path, self._order.key, picture, "image/jpeg", x_request_id=id.decode(), **whose)
        due_s = self._start_s + at_s
        self._behind_ms.append(1e3 * (time.perf_counter() - due_s))
        self._connections.send(request, partial(self._ended, _Frame(line, id, due_s, client)))

    def _count(self, line: Line) -> str:
        """As many items as there is a picture with, next to what is drawn."""
        wanted = self._chance.randint(0, ITEMS_MAX)
        return min(line.pictures, key=lambda count: (abs(int(count) - wanted), int(count)))

    def _ended(self, frame: _Frame, status: int, body: bytes) -> None:
        tally, took_ms = self.tallies[frame.line.name], 1e3 * (time.perf_counter() - frame.due_s)
        if status == 0:
            return
        tally.answered += 1
        if status != 200:
            problem = json.loads(body).get("type", "") if body.startswith(b"{") else ""
            key = f"{status} {str(problem).rsplit('/', 1)[-1]}".strip()
            tally.statuses[key] = tally.statuses.get(key, 0) + 1
            if status == 404 and frame.client:
                tally.forgotten += 1
                self._forgotten.add(frame.client)
            return
        if b'"request_id":"%b"' % frame.id not in body:
            tally.wrong += 1
        has_failed = b'"none":"error"' in body
        is_said = b'"in_time":true' in body and not has_failed
        is_in_time = is_said and took_ms <= frame.line.slo_ms
        tally.said_in_time += is_said
        tally.in_time += is_in_time
        tally.dropped += b'"none":"dropped"' in body
        tally.with_errors += has_failed
        tally.items += len(ITEM.findall(body))
        self._times_ms[frame.line.name].append(took_ms)

    async def _ask(self, method: str, path: str, body: bytes = b"", sort: str = "") -> tuple[int, bytes]:
        sizes = {"content_length": len(body), **({"content_type": sort} if sort else {})}
        answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        request = head(method, path, self._order.key, **sizes) + body
        self._connections.send(request, lambda status, answer: answered.set_result((status, answer)))
        return await answered

    # -- time ----------------------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return time.perf_counter() - self._start_s

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._now_s()))

    def result(self) -> Result:
        for name, times_ms in self._times_ms.items():
            tally = self.tallies[name]
            tally.p50_ms, tally.p99_ms = (percentile(times_ms or [0.0], percent) for percent in (50, 99))
        behind_ms = percentile(self._behind_ms or [0.0], 99)
        return Result(self._order.seconds, self.tallies, time.process_time(), behind_ms)


async def _main() -> None:
    found = json.loads(sys.stdin.read())
    lines = [Line(**one) for one in found.pop("lines")]
    generator = Generator(Order(lines=lines, **found))
    await generator.run()
    print(json.dumps(asdict(generator.result())))


if __name__ == "__main__":
    uvloop.run(_main())
