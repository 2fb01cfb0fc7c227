"""Profiles of emulated networks: what a batch takes while so many run on one worker (Scrooge §3.2).

The paper prints a few points of one network only. Here a batch of b needs the device alone for `alone` and b times
`alone_item`, and for `beside` and b times `beside_item` milliseconds something else: the processor that feeds it,
copies, gaps between kernels. Batches that run at once take turns at the device and overlap in all else, so the time of
a batch among e of them follows by mean value analysis of a closed queue (Reiser and Lavenberg 1980). Throughput rises
with e up to what the device can do; no interference beyond that is assumed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from appliance.policies.allocation.base import Profile

BATCHES = (1, 2, 4, 8, 16, 32)
CONCURRENCIES = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Network:
    """Milliseconds on the slower device; `quicker`: how many times as quick the other one is."""

    alone: float
    alone_item: float
    beside: float
    beside_item: float
    quicker: float

    def run_ms(self, batch: int, concurrency: int, speed: float = 1.0) -> float:
        """Of one batch while `concurrency` of them run, on a device of that speed."""
        return _run_ms(self, batch, concurrency) / speed


@cache
def _run_ms(network: Network, batch: int, concurrency: int) -> float:
    alone = network.alone + network.alone_item * batch
    beside = network.beside + network.beside_item * batch
    waiting = taken = 0.0
    for running in range(1, concurrency + 1):
        at_device = alone * (1.0 + waiting)
        taken = at_device + beside
        waiting = running * at_device / taken
    return taken


def profiles_of(network: Network, speeds: dict[str, float]) -> Iterator[Profile]:
    """On each worker type, whose speed is given."""
    for worker, speed in speeds.items():
        for batch in BATCHES:
            for concurrency in CONCURRENCIES:
                yield Profile(worker, batch, concurrency, network.run_ms(batch, concurrency, speed))


@dataclass(frozen=True, slots=True)
class Measured:
    """A network whose times somebody has measured: `takes_ms` by worker type, batch and how many run at once, from 1 of
    either on without a gap below the largest ones.
    """

    takes_ms: Mapping[tuple[str, int, int], float]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """What was measured, and nothing else (SC-05)."""
        return tuple(
            Profile(worker, batch, running, ms) for (worker, batch, running), ms in sorted(self.takes_ms.items())
        )
