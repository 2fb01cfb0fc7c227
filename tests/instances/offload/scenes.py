"""Seeded offload scenes: the paper's two links (6.1) and SLAs (6.4), a depth-like and a heavy detection-like
network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from appliance.policies.offload.base import Client, OffloadInput

DEPTH: Mapping[int, float] = {
    1: 10.0,
    2: 14.0,
    3: 18.0,
    4: 22.0,
    5: 26.0,
    6: 30.0,
    8: 38.0,
    10: 46.0,
    12: 54.0,
    16: 70.0,
}
"""Latency ms by batch: 6 ms a batch and 4 ms an input, so batches pay up to large sizes (the paper's DenseDepth, Fig.

12, has no figures in print).
"""
DETECTION: Mapping[int, float] = {1: 24.0, 2: 42.0, 3: 61.0, 4: 80.0, 6: 118.0, 8: 156.0}
"""A heavy network on which the benefit of batching ends at once (the paper's ByteTrack: interval 13, mean batch
1.2).
"""
NETWORKS: Mapping[str, Mapping[int, float]] = {"depth": DEPTH, "detection": DETECTION}


@dataclass(frozen=True)
class Link:
    """Milliseconds, mean and standard deviation over the clients: half the round trip plus the time a frame of 50 kB
    (result 10 kB) takes.
    """

    uplink_ms: float
    uplink_sd: float
    downlink_ms: float
    downlink_sd: float


LINKS: Mapping[str, Link] = {"5G": Link(9.6, 1.0, 7.1, 1.0), "LTE": Link(25.1, 3.0, 16.7, 2.5)}
SLAS: Mapping[str, tuple[float, float]] = {
    "0.02": (0.02, 0.02),
    "0.04": (0.04, 0.04),
    "0.06": (0.06, 0.06),
    "mixed": (0.02, 0.06),
}
RATES = (0.005, 0.007)
"""Drop a frame: the paper's easy and hard videos (6.4)."""


def new_client(
    random: Random, index: int, link: Link, sla: tuple[float, float], rates: tuple[float, float] = RATES
) -> Client:
    """A client that was never served."""
    return Client(
        name=f"c{index:03}",
        drop_rate=random.uniform(*rates),
        accuracy_slo=random.uniform(*sla),
        uplink_ms=max(1.0, random.gauss(link.uplink_ms, link.uplink_sd)),
        downlink_ms=max(1.0, random.gauss(link.downlink_ms, link.downlink_sd)),
    )


def waiting_scene(
    seed: int,
    network: str,
    link: str,
    sla: str | tuple[float, float],
    clients: int = 80,
    rates: tuple[float, float] = RATES,
    fps: float = 60.0,
) -> OffloadInput:
    """An empty box and a crowd at its door."""
    random = Random(seed)
    bounds = SLAS[sla] if isinstance(sla, str) else sla
    waiting = tuple(new_client(random, i, LINKS[link], bounds, rates) for i in range(clients))
    return OffloadInput(
        fps=fps,
        now_ms=random.uniform(0.0, 100.0),
        horizon_ms=1000.0,
        inference_ms=NETWORKS[network],
        waiting=waiting,
    )
