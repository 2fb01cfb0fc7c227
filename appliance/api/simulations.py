"""Simulations of the box that somebody asked for: one runs at a time, in a child with limits; kept in memory."""

import asyncio
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from secrets import token_hex
from typing import Any

from appliance.child import executed, run_child, scrubbed_environment
from appliance.clock import Clock
from appliance.confinement.limits import GIB, ChildLimits
from appliance.domain.errors import TooManySimulations, UnknownSimulation

PROGRAM = "appliance.lab.what_if"
LIMITS = ChildLimits(memory_bytes=2 * GIB, cpu_s=300, wall_s=600, file_bytes=0, files_max=64)
WAITING_MAX = 4
KEPT_MAX = 20


@dataclass(slots=True)
class Simulation:
    """One of them. `today` and `edited` are figures as `appliance simulate` has them, once it is done."""

    id: str
    created_at: datetime.datetime
    duration_s: float
    edits: Sequence[Mapping[str, Any]]
    left_out: Sequence[str]
    state: str = "queued"
    percent: float = 0.0
    error: str = ""
    today: Mapping[str, Any] | None = None
    edited: Mapping[str, Any] | None = None
    reports: Mapping[str, Any] | None = None
    """`today` and `edited` over time, and why memory was given to whom, once it is done."""
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)


class Simulations:
    """Event-loop thread only."""

    def __init__(self, clock: Clock, *, limits: ChildLimits = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._kept: dict[str, Simulation] = {}
        self._turn = asyncio.Lock()

    def begin(
        self,
        today: Mapping[str, Any],
        edited: Mapping[str, Any],
        *,
        edits: Sequence[Mapping[str, Any]],
        left_out: Sequence[str],
    ) -> Simulation:
        """Simulate two scenarios one after the other, when those before have ended. Raises: TooManySimulations."""
        if sum(one.state in ("queued", "running") for one in self._kept.values()) >= WAITING_MAX:
            raise TooManySimulations(simulations_max=WAITING_MAX, retry_after_s=30.0)
        made = Simulation(token_hex(8), self._clock.wall_now(), float(today["duration_s"]), edits, left_out)
        self._kept[made.id] = made
        for id in list(self._kept)[:-KEPT_MAX]:
            del self._kept[id]
        made.task = asyncio.create_task(self._run(made, {"today": today, "edited": edited}), name="simulation")
        return made

    def get(self, id: str) -> Simulation:
        """Raises: UnknownSimulation."""
        if id not in self._kept:
            raise UnknownSimulation(name=id)
        return self._kept[id]

    def all(self) -> list[Simulation]:
        """Newest first."""
        return list(self._kept.values())[::-1]

    async def delete(self, id: str) -> None:
        """Forget one, and end it. Raises: UnknownSimulation."""
        found = self.get(id)
        del self._kept[id]
        await _ended(found)

    async def close(self) -> None:
        """End those under way."""
        for one in self.all():
            await _ended(one)

    async def _run(self, made: Simulation, scenarios: Mapping[str, Any]) -> None:
        async with self._turn:
            made.state = "running"
            result: dict[str, Any] = {}

            def take(line: bytes) -> None:
                message = json.loads(line)
                if "progress" in message:
                    made.percent = max(made.percent, round(100 * float(message["progress"]), 1))
                else:
                    result.update(message)

            order = {"limits": asdict(self._limits), "parent": os.getpid(), **scenarios}
            try:
                ended = await run_child(
                    partial(executed, PROGRAM, environment=scrubbed_environment()),
                    json.dumps(order).encode(),
                    wall_s=self._limits.wall_s,
                    on_line=take,
                )
            except TimeoutError:
                result["error"] = f"took longer than {self._limits.wall_s:.0f} s: simulate less"
            except (OSError, ValueError) as error:
                result["error"] = f"could not be run: {error}"
            else:
                if not result:
                    last = next(reversed(ended.stderr.strip().splitlines()), "")
                    result["error"] = f"its process ended with status {ended.status}: {last}"[:500]
            made.left_out = [*made.left_out, *result.get("left_out", ())]
            if "error" in result:
                made.state, made.error = "failed", str(result["error"])
            else:
                made.today, made.edited, made.reports = result["today"], result["edited"], result["reports"]
                made.state, made.percent = "done", 100.0


async def _ended(simulation: Simulation) -> None:
    if simulation.task is not None:
        simulation.task.cancel()
        with suppress(asyncio.CancelledError):
            await simulation.task
