"""The three applications that Scrooge and Nexus are compared on (§4.1, Figure 1), and what their workers cost.

*Given*: stages, frame rates, latency SLO, prices (Table 2; a machine without a GPU, footnote 11), how many times as
quick a V100 is for the detector and for YOLO, objects in a frame (§2), loading and just-in-time compilation (§4.4).
*Fitted*: run times, to what the text says of the detectors' and PRNet's throughputs (§4.3) and of what concurrency
saves (§4.4); CPU stages, to how many front ends Nexus needs (§4.2). *Assumed*: the rest.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from appliance.policies.allocation.base import Profile, WorkerType

P100, V100, CPU = "P100", "V100", "cpu"
PRICES: Mapping[str, float] = {P100: 2.07, V100: 3.06, CPU: 0.83}
"""USD an hour."""
CORES = 6
"""Of each machine; a CPU stage has one of them for each item."""
LOAD_S = 5.0
"""Weights and just-in-time compilation; of a CPU stage nothing."""
SLO_MS = 400.0
BATCHES = (1, 2, 4, 8, 16, 32)
CONCURRENCIES = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Network:
    """What a batch takes while so many run on one worker (§3.2), in milliseconds on the slower device; `quicker`: how
    many times as quick the other one is.

    The paper prints a few points of one network only. Here a batch of b needs the device alone for `alone` and b times
    `alone_item`, and for `beside` and b times `beside_item` something else: the processor that feeds it, copies, gaps
    between kernels. Batches that run at once take turns at the device and overlap in all else, so the time of a batch
    among e of them follows by mean value analysis of a closed queue (Reiser and Lavenberg 1980). Throughput rises with
    e up to what the device can do; no interference beyond that is assumed.
    """

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


@dataclass(frozen=True, slots=True)
class Edge:
    """`objects`: which objects of a frame become an item each; None: one item."""

    source: str
    target: str
    objects: str | None = None


@dataclass(frozen=True, slots=True)
class CpuStage:
    """Milliseconds of a core for an item."""

    item_ms: float


@dataclass(frozen=True, slots=True)
class Application:
    """`scenes`: mean objects by kind that cameras see, one of the scenes for each client.

    `front_ends`: machines that Nexus needs for the CPU stage (§4.2); 0 where there is none. `prices`: USD an hour of
    each type of worker, as many as wanted.
    """

    name: str
    stages: Mapping[str, Network | Measured | CpuStage]
    edges: tuple[Edge, ...]
    fps: Sequence[float]
    scenes: Sequence[Mapping[str, float]]
    front_ends: int = 0
    prices: Mapping[str, float] = field(default_factory=lambda: PRICES)
    after: Mapping[str, tuple[Edge, ...]] = field(init=False)
    root: str = field(init=False)

    def __post_init__(self) -> None:
        after = {name: tuple(e for e in self.edges if e.source == name) for name in self.stages}
        targets = {edge.target for edge in self.edges}
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "root", next(name for name in self.stages if name not in targets))

    @property
    def workers(self) -> tuple[WorkerType, ...]:
        """As many as wanted: the paper's 16 machines are enough but for the highest rates."""
        return tuple(WorkerType(name, price) for name, price in self.prices.items())

    def profiles(self, stage: str) -> tuple[Profile, ...]:
        """What planners choose from. A CPU stage has a machine's cores as throughput, and batches of one."""
        made = self.stages[stage]
        if isinstance(made, CpuStage):
            return (Profile(CPU, 1, 1, made.item_ms, 1000.0 * CORES / made.item_ms),)
        if isinstance(made, Measured):
            return made.profiles
        return tuple(profiles_of(made, {P100: 1.0, V100: made.quicker}))

    def run_ms(self, stage: str, worker: str, batch: int, running: int) -> float:
        """Of a batch beside others of its stage, `running` of them in all."""
        made = self.stages[stage]
        if isinstance(made, CpuStage):
            return made.item_ms
        if isinstance(made, Measured):
            return made.takes_ms[worker, batch, running]
        return made.run_ms(batch, running, 1.0 if worker == P100 else made.quicker)


def _application(name: str, facts: dict[str, Any]) -> Application:
    """An application as `applications.toml` has it."""
    stages: dict[str, Network | Measured | CpuStage] = {
        stage: CpuStage(**one) if "item_ms" in one else Network(**one) for stage, one in facts["stages"].items()
    }
    edges = tuple(Edge(*edge) for edge in facts["edges"])
    return Application(name, stages, edges, facts["fps"], facts["scenes"], facts.get("front_ends", 0))


_WRITTEN = tomllib.loads(Path(__file__).with_name("applications.toml").read_text("utf-8"))
APPLICATIONS: Mapping[str, Application] = {name: _application(name, facts) for name, facts in _WRITTEN.items()}
