"""The clients of one problem as columns: what every packer reads in its inner loop, computed once a plan.

Index = place by name.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from appliance.policies.offload.arrivals import predicted_uplink_ms
from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.policies.offload.drop import EPSILON, first_frame_at, latency_frames, reference_stride


@dataclass(frozen=True, slots=True)
class Network:
    """A network (or variant) by batch size; `sizes` ascending; `fitting[n]` = the largest size that n requests fill,
    0 if none.
    """

    name: str | None
    sizes: tuple[int, ...]
    latency_ms: Mapping[int, float]
    fitting: tuple[int, ...]
    quickest_ms: float

    @classmethod
    def of(cls, name: str | None, latency_ms: Mapping[int, float]) -> "Network":
        sizes = tuple(sorted(latency_ms))
        fitting = [0] * (sizes[-1] + 1)
        for size in sizes:
            fitting[size] = size
        for n in range(1, len(fitting)):
            fitting[n] = fitting[n] or fitting[n - 1]
        return cls(name, sizes, latency_ms, tuple(fitting), min(latency_ms.values()))

    def fit(self, requests: int) -> int:
        """The largest size that `requests` fill; 0 if even the smallest is larger."""
        return self.fitting[requests] if requests < len(self.fitting) else self.sizes[-1]


@dataclass(slots=True)
class Fleet:
    """Columns by client.

    `allowed` = mean stride in frames that the SLA allows, the variant's gap taken off; infinite where nothing drops;
    `aimed` = the same less what is kept free of it.
    """

    problem: OffloadInput
    frames_per_ms: float
    display_from: int
    display_to: int
    networks: tuple[Network, ...]
    clients: tuple[Client, ...]
    network: list[int]
    up_ms: list[float]
    down_ms: list[float]
    reference: list[float]
    allowed: list[float]
    aimed: list[float]
    gap: list[float]
    rate: list[float]
    """Of its variant: lost with each frame of stride."""
    is_served: list[bool]
    """True for `clients` of the problem, False for `waiting`."""

    @property
    def frame_ms(self) -> float:
        return 1000.0 / self.problem.fps

    @property
    def end_ms(self) -> float:
        return self.problem.now_ms + self.problem.horizon_ms


Choice = Mapping[str, Variant]
"""Client → the variant that it runs; a client that is not there runs the problem's own network."""


@dataclass(frozen=True, slots=True)
class Common:
    """Columns that are the same whatever variants the clients run: of all fleets of one problem."""

    clients: tuple[Client, ...]
    networks: tuple[Network, ...]
    up_ms: tuple[float, ...]
    """Expected, of the client's own network: the regression over its arrivals is most of the cost of a fleet."""
    reference: tuple[float, ...]
    is_served: tuple[bool, ...]


def common_of(problem: OffloadInput) -> Common:
    """O(N log N), and a regression for each client that has arrivals."""
    served = {client.name for client in problem.clients}
    clients = tuple(sorted((*problem.clients, *problem.waiting), key=lambda c: c.name))
    middle = (problem.now_ms + problem.horizon_ms / 2.0) * problem.fps / 1000.0
    up = [
        predicted_uplink_ms(c.arrivals, c.uplink_ms, problem.fps, middle) if c.arrivals else c.uplink_ms
        for c in clients
    ]
    return Common(
        clients=clients,
        networks=(Network.of(None, problem.inference_ms), *_variants(clients)),
        up_ms=tuple(up),
        reference=tuple(_references(problem, clients, up)),
        is_served=tuple([c.name in served for c in clients]),
    )


def fleet_of(problem: OffloadInput, choice: Choice | None = None, common: Common | None = None) -> Fleet:
    """All clients of the problem, each on its chosen variant; without a choice, on the variant with the smallest gap.

    `common`: of the same problem, where several fleets of it are made. O(N) beside that.
    """
    common = common or common_of(problem)
    clients, reference = common.clients, list(common.reference)
    if choice is None:
        choice = most_accurate(clients)
    count = len(clients)
    network, gap, up = [0] * count, [0.0] * count, list(common.up_ms)
    rate = [client.drop_rate for client in clients]
    if choice:
        index = {n.name: k for k, n in enumerate(common.networks)}
        for i, client in enumerate(clients):
            variant = choice.get(client.name)
            if variant is not None:
                network[i], gap[i] = index[variant.name], variant.accuracy_gap
                rate[i] = client.drop_rate if variant.drop_rate is None else variant.drop_rate
                up[i] = max(0.0, up[i] - client.uplink_ms + variant.uplink_ms)
    return Fleet(
        problem=problem,
        frames_per_ms=problem.fps / 1000.0,
        display_from=first_frame_at(problem.now_ms, problem.fps),
        display_to=first_frame_at(problem.now_ms + problem.horizon_ms, problem.fps),
        networks=common.networks,
        clients=clients,
        network=network,
        up_ms=up,
        down_ms=[c.downlink_ms for c in clients],
        reference=reference,
        allowed=[_allowed(*one) for one in zip(clients, reference, gap, rate, strict=True)],
        aimed=[_allowed(c, r, g + c.kept_free, v) for c, r, g, v in zip(clients, reference, gap, rate, strict=True)],
        gap=gap,
        rate=rate,
        is_served=list(common.is_served),
    )


def glance_of(fleet: Fleet, share: float) -> Fleet:
    """The same clients over that share of the horizon, from now on: what a plan of it costs is less by as much."""
    problem = replace(fleet.problem, horizon_ms=share * fleet.problem.horizon_ms)
    return replace(fleet, problem=problem, display_to=first_frame_at(problem.now_ms + problem.horizon_ms, problem.fps))


def most_accurate(clients: Iterable[Client]) -> dict[str, Variant]:
    """The variant with the smallest gap (then name) of each client that has candidates."""
    return {c.name: min(c.variants, key=lambda v: (v.accuracy_gap, v.name)) for c in clients if c.variants}


def _variants(clients: Iterable[Client]) -> tuple[Network, ...]:
    """All variants by name.

    Where clients disagree about a latency, the longest counts, for the sizes that all of them know.
    """
    tables: dict[str, Mapping[int, float]] = {}
    for client in clients:
        for variant in client.variants:
            table = tables.setdefault(variant.name, variant.inference_ms)
            if table is not variant.inference_ms and table != variant.inference_ms:
                common = {n: max(ms, variant.inference_ms[n]) for n, ms in table.items() if n in variant.inference_ms}
                tables[variant.name] = common or table
    return tuple(Network.of(name, tables[name]) for name in sorted(tables))


def _allowed(client: Client, reference: float, gap: float, rate: float) -> float:
    slo = client.accuracy_slo - gap
    if rate == client.drop_rate > 0.0:
        return slo / rate + reference
    slo += client.drop_rate * reference
    if rate > 0.0:
        return slo / rate
    return float("inf") if slo >= 0.0 else -float("inf")


def _references(problem: OffloadInput, clients: Sequence[Client], up_ms: Sequence[float]) -> list[float]:
    """Mean stride of the reference setup by client. Without a latency for batch 1 the smallest batch stands for it."""
    one = problem.inference_ms.get(1) or problem.inference_ms[min(problem.inference_ms)]
    per_ms = problem.fps / 1000.0
    extra = reference_stride(0.0, one, problem.fps) - latency_frames(0.0, one, problem.fps)
    return [
        math.ceil((up + c.downlink_ms + one) * per_ms - EPSILON) + extra
        if c.reference_stride is None
        else c.reference_stride
        for c, up in zip(clients, up_ms, strict=True)
    ]


@dataclass(slots=True)
class Settings:
    """Step 1's answer by client: batch size, interval in frames (0: not even alone), share of the processor it takes
    in full batches.
    """

    batch: list[int]
    interval: list[int]
    load: list[float]


def step1(fleet: Fleet, largest: int | None = None) -> Settings:
    """Step 1 in closed form for all clients at once (§4.4.1, AR-10): the size and interval that would serve the most
    clients like this one.

    An interval is at most the horizon: a client that needs nothing is still looked at once a plan, for a new estimate.
    Ties: the smaller batch.
    """
    count = len(fleet.clients)
    batch, interval, load = [1] * count, [0] * count, [float("inf")] * count
    for index, network in enumerate(fleet.networks):
        of = [i for i in range(count) if fleet.network[i] == index]
        if not of:
            continue
        sizes = np.array([s for s in network.sizes if largest is None or s <= largest] or network.sizes[:1])
        latency = np.array([network.latency_ms[int(size)] for size in sizes])
        network_ms = np.array([fleet.up_ms[i] + fleet.down_ms[i] for i in of])
        allowed = np.array([fleet.aimed[i] for i in of])
        strides = np.ceil((network_ms[:, None] + latency) * fleet.frames_per_ms - EPSILON)
        longest = max(1.0, fleet.problem.horizon_ms * fleet.frames_per_ms)
        intervals = np.floor(np.minimum(2.0 * (allowed[:, None] - strides) + 1.0, longest) + EPSILON)
        gain = np.where(intervals >= 1.0, intervals * (sizes / latency), 0.0)
        best = gain.argmax(axis=1)
        rows = np.arange(len(of))
        chosen = np.where(gain[rows, best] > 0.0, intervals[rows, best], 0.0)
        loads = 1.0 / (fleet.frame_ms * np.maximum(gain[rows, best], 1e-12))
        for i, b, n, share in zip(of, sizes[best].tolist(), chosen.tolist(), loads.tolist(), strict=True):
            batch[i], interval[i] = b, int(n)
            load[i] = share if n >= 1 else float("inf")
    return Settings(batch, interval, load)
