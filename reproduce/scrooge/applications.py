"""The three applications that Scrooge and Nexus are compared on (§4.1, Figure 1), and what their workers cost.

*Given*: stages, frame rates, latency SLO, prices (Table 2; a machine without a GPU, footnote 11), how many times as
quick a V100 is for the detector and for YOLO, objects in a frame (§2), loading and just-in-time compilation (§4.4).
*Fitted*: run times, to what the text says of the detectors' and PRNet's throughputs (§4.3) and of what concurrency
saves (§4.4); CPU stages, to how many front ends Nexus needs (§4.2). *Assumed*: the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.policies.allocation.base import Profile, WorkerType
from reproduce.scrooge.profiles import Measured, Network, profiles_of

P100, V100, CPU = "P100", "V100", "cpu"
PRICES: Mapping[str, float] = {P100: 2.07, V100: 3.06, CPU: 0.83}
"""USD an hour."""
CORES = 6
"""Of each machine; a CPU stage has one of them for each item."""
LOAD_S = 5.0
"""Weights and just-in-time compilation; of a CPU stage nothing."""
SLO_MS = 400.0


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
    fps: tuple[float, float]
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


VIDEOS = (8.94, 4.0, 0.37)
"""Objects a frame: vid1, the middle of vid2's range, vid3 (§2)."""

TRAFFIC = Application(
    "traffic",
    {
        "inception": Network(alone=12.0, alone_item=27.0, beside=6.0, beside_item=14.0, quicker=1.11),
        "vehicles": Network(alone=8.0, alone_item=34.0, beside=4.0, beside_item=9.0, quicker=1.21),
        "faces": Network(alone=8.0, alone_item=34.0, beside=4.0, beside_item=9.0, quicker=1.21),
    },
    (Edge("inception", "vehicles", "vehicles"), Edge("inception", "faces", "persons")),
    (2.0, 5.0),
    [{"vehicles": mean, "persons": mean / 3.0} for mean in VIDEOS],
)
FACE = Application(
    "face",
    {
        "detector": Network(alone=2.0, alone_item=15.0, beside=4.0, beside_item=30.0, quicker=1.21),
        "crop": CpuStage(180.0),
        "prnet": Network(alone=0.5, alone_item=4.0, beside=2.0, beside_item=8.0, quicker=1.21),
    },
    (Edge("detector", "crop"), Edge("crop", "prnet", "faces")),
    (12.0, 30.0),
    [{"faces": mean} for mean in (1.0, 1.5, 2.0)],
    front_ends=6,
)
TRACKER = Application(
    "tracker",
    {
        "mobilenet": Network(alone=8.0, alone_item=22.0, beside=6.0, beside_item=20.0, quicker=1.21),
        "patches": CpuStage(80.0),
        "triplet": Network(alone=1.0, alone_item=3.0, beside=2.0, beside_item=2.0, quicker=1.21),
    },
    (Edge("mobilenet", "patches"), Edge("patches", "triplet", "persons")),
    (15.0, 40.0),
    [{"persons": mean} for mean in VIDEOS],
    front_ends=4,
)
APPLICATIONS: Mapping[str, Application] = {one.name: one for one in (TRAFFIC, FACE, TRACKER)}
