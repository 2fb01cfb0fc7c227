"""A machine whose processors go and come back."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from appliance.domain.hardware import ProcessorDescription
from appliance.runtime.processors.cluster import Cluster
from appliance.runtime.processors.member import Member
from appliance.runtime.processors.monitor import ProcessorMonitor
from tests.fakes.engine import EngineBench


class Machine:
    """Cores that are online, what probes of processors find, and what is remembered of them."""

    def __init__(self, *cores: int, finds: Collection[str | OSError] = ("",)) -> None:
        """Let each probe find the next reason in `finds`, or fail to begin with the next error; the last repeats."""
        self.cores = set(cores)
        self.probed: list[str] = []
        self.stands = False
        """True while probes do not end."""
        self._finds = list(finds)
        self._passed: set[str] = set()

    async def __call__(self, processor: ProcessorDescription) -> str:
        self.probed.append(processor.name)
        if self.stands:
            await asyncio.Event().wait()
        found = self._finds.pop(0) if len(self._finds) > 1 else self._finds[0]
        if isinstance(found, OSError):
            raise found
        return found

    def has(self, fingerprint: str) -> bool:
        return fingerprint in self._passed

    def note(self, fingerprint: str, *, passed: bool) -> None:
        (self._passed.add if passed else self._passed.discard)(fingerprint)

    @contextmanager
    def keeping(self, bench: EngineBench, *, begins: bool = True) -> Iterator[None]:
        """Look after the bench's clusters and its other kind every five seconds; with `begins` as when a box starts."""
        watched: list[Cluster | Member] = [*bench.clusters]
        if bench.other.describe().kind:
            watched.append(bench.member)
        monitor = ProcessorMonitor(bench.clock, watched, self, self, lambda: self.cores)
        if begins:
            monitor.begin()
        task = asyncio.create_task(monitor.run())
        yield
        task.cancel()
