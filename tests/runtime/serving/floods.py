"""Callers that ask again as soon as they are answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from appliance.domain.errors import DeadlineExceeded, QueueFull
from tests.fakes.engine import EngineBench


@dataclass
class Flood:
    """What callers of an application got."""

    answers_ns: list[int] = field(default_factory=list)
    """When each answer came."""
    ran_ns: int = 0
    """What processors took for them."""


@asynccontextmanager
async def flood(bench: EngineBench, application: str, callers: int, **facts: Any) -> AsyncIterator[Flood]:
    """So many callers of the tenant that owns the application, until the end of the block."""
    found = Flood()

    async def call() -> None:
        while True:
            try:
                result = await bench.infer(application=application, tenant=application.partition("/")[0], **facts)
            except (DeadlineExceeded, QueueFull):
                await bench.pause(1)
            else:
                found.answers_ns.append(bench.clock.now_ns())
                found.ran_ns += result.compute_ns

    tasks = [asyncio.create_task(call()) for _ in range(callers)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
