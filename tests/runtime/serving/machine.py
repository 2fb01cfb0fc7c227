"""A machine whose cores go offline and come back."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.domain.hardware import ProcessorDescription
from appliance.runtime.processors.monitor import ProcessorMonitor
from tests.fakes.engine import EngineBench


class Machine:
    """Cores that are online, and the probes of what has gone."""

    def __init__(self, *cores: int) -> None:
        self.cores = set(cores)
        self.probed: list[str] = []
        self.stands = False
        """Probes do not end."""

    async def __call__(self, processor: ProcessorDescription) -> str:
        self.probed.append(processor.name)
        if self.stands:
            await asyncio.Event().wait()
        return ""

    def has(self, fingerprint: str) -> bool:
        return False

    def note(self, fingerprint: str, *, passed: bool) -> None:
        pass

    @contextmanager
    def keeping(self, bench: EngineBench) -> Iterator[None]:
        """With a look every five seconds."""
        monitor = ProcessorMonitor(bench.clock, bench.clusters, self, self, lambda: self.cores)
        monitor.begin()
        task = asyncio.create_task(monitor.run())
        yield
        task.cancel()
