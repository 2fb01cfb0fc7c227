"""Instances of the joint choice: zoos with their accuracy gaps, clients on both links, SLAs from 0.02 to 0.06."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from appliance.policies.offload.base import Client, OffloadInput, Variant
from tests.instances.adaptation import quick
from tests.instances.offload.scenes import LINKS, new_client

LARGE = {1: 20.0, 2: 29.0, 3: 38.0, 4: 47.0, 6: 65.0, 8: 83.0}
MEDIUM = {1: 9.0, 2: 12.5, 3: 16.0, 4: 19.5, 6: 26.5, 8: 33.5, 12: 47.5}
SMALL = {1: 5.0, 2: 6.5, 3: 8.0, 4: 9.5, 6: 12.5, 8: 15.5, 12: 21.5, 16: 27.5}
Row = tuple[str, float, float, Mapping[int, float]]
"""Name, accuracy gap, share of the first network's frame in bytes, latency ms by batch."""
SIZES: Sequence[Row] = (("large", 0.0, 1.0, LARGE), ("medium", 0.030, 0.5, MEDIUM), ("small", 0.045, 0.25, SMALL))
"""Three input sizes of one network."""
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)


def _table(fixed: float, each: float) -> dict[int, float]:
    return {size: fixed + each * size for size in BATCHES}


SPREAD: Sequence[Row] = (
    ("transformer", 0.0, 1.0, _table(1.0, 5.0)),
    ("compact", 0.035, 0.283, _table(0.3, 0.4)),
    ("tiny", 0.044, 0.2, _table(0.3, 0.2)),
)
"""Networks of different kinds, 12 to 25 times apart in cost, with nothing in between."""


def _yolo() -> Sequence[Row]:
    """The adaptation family's zoo on a quick accelerator, those whose gap leaves something of the widest SLA.

    Its accuracy is concave in the cost.
    """
    zoo = sorted(quick(), key=lambda n: (-n.accuracy, n.name))
    best = zoo[0]
    rows = [(n.name, best.accuracy - n.accuracy, n.input_bytes / best.input_bytes, dict(n.latency_ms)) for n in zoo]
    return tuple(row for row in rows if row[1] < 0.05)


YOLOV5 = (
    ("yolov5x6", 0.550, 1.0, 26.2, 19.4),
    ("yolov5l6", 0.537, 1.0, 15.8, 10.5),
    ("yolov5m6", 0.513, 1.0, 11.1, 6.8),
    ("yolov5x", 0.507, 0.25, 12.1, 4.8),
)
"""Published (the README of release 7.0): mAP 50-95 on COCO, share of a frame of 1280 px, V100 ms of a batch of 1,
and a frame in a batch of 32. The others of the release lose more than the widest SLA."""


def _yolov5(speed: float) -> Sequence[Row]:
    """The published zoo on an accelerator `speed` times a V100; latency between the two published batches is linear."""
    rows = []
    for name, accuracy, share, one, in_32 in YOLOV5:
        each = (32 * in_32 - one) / 31
        table = {size: value / speed for size, value in _table(one - each, each).items()}
        rows.append((name, round(YOLOV5[0][1] - accuracy, 4), share, table))
    return tuple(rows)


ZOOS: Mapping[str, Sequence[Row]] = {
    "sizes": SIZES,
    "spread": SPREAD,
    "yolo": _yolo(),
    "yolov5": _yolov5(1.0),
    "yolov5, 4 x quicker": _yolov5(4.0),
}
TWO_TIERS = ((0.02, 0.02), (0.06, 0.06))
"""Health care and tourism, to take the paper's examples: every other pair of clients needs the strict SLA."""
THREE_TIERS = ((0.02, 0.02), (0.04, 0.04), (0.06, 0.06))
"""The SLAs of the paper's evaluation, all in one crowd."""
UNIFORM = ((0.02, 0.06),)


def with_zoo(client: Client, travel_ms: float, zoo: Sequence[Row] = SIZES) -> Client:
    """`travel_ms`: the part of the uplink that a smaller frame saves on."""
    return replace(
        client,
        variants=tuple(
            Variant(name, gap, client.uplink_ms - travel_ms * (1.0 - share), table) for name, gap, share, table in zoo
        ),
    )


def zoo_scene(
    seed: int, clients: int = 40, tiers: Sequence[tuple[float, float]] = TWO_TIERS, zoo: Sequence[Row] = SIZES
) -> OffloadInput:
    """An empty box before a crowd of which half is on 5G and half on LTE, over the tiers of SLAs in turn."""
    random = Random(seed)
    waiting = []
    for i in range(clients):
        link = ("5G", "LTE")[i % 2]
        client = new_client(random, i, LINKS[link], tiers[i // 2 % len(tiers)], (0.004, 0.009))
        waiting.append(with_zoo(client, {"5G": 2.6, "LTE": 9.0}[link], zoo))
    return OffloadInput(
        fps=60.0, now_ms=random.uniform(0.0, 100.0), horizon_ms=1000.0, inference_ms=zoo[0][3], waiting=tuple(waiting)
    )


FRESH_SLAS = (0.04, 0.12)
"""Against fresh results: over LTE the way alone loses 0.02 to 0.04."""
STEP, SLOWEST = 0.35, 4.0
"""Of links that change: standard deviation of the logarithm from one instant to the next; the most that the way takes,
and the least, as factors."""


def changing_scenes(seed: int, clients: int, zoo: Sequence[Row], instants: int = 5) -> list[OffloadInput]:
    """The same crowd before an empty box at several instants, against fresh results, the link of each slower or quicker
    than a moment ago."""
    random = Random(seed)
    travel_ms = {"5G": 2.6, "LTE": 9.0}
    links = [LINKS[("5G", "LTE")[i % 2]] for i in range(clients)]
    crowd = [(new_client(random, i, link, FRESH_SLAS, (0.004, 0.009)), 0.0) for i, link in enumerate(links)]
    found = []
    for instant in range(instants):
        crowd = [(client, max(-1.0, min(1.0, way + random.gauss(0.0, STEP)))) for client, way in crowd]
        waiting = []
        for i, (client, way) in enumerate(crowd):
            usual_ms = travel_ms[("5G", "LTE")[i % 2]]
            now_ms = usual_ms * SLOWEST**way
            moved = replace(client, uplink_ms=client.uplink_ms - usual_ms + now_ms, reference_stride=0.0)
            waiting.append(with_zoo(moved, now_ms, zoo))
        found.append(
            OffloadInput(
                fps=60.0, now_ms=1000.0 * instant, horizon_ms=1000.0, inference_ms=zoo[0][3], waiting=tuple(waiting)
            )
        )
    return found


def only(problem: OffloadInput, variant: str) -> OffloadInput:
    """The same crowd with one fixed variant for all."""

    def fixed(client: Client) -> Client:
        return replace(client, variants=tuple(v for v in client.variants if v.name == variant))

    return replace(problem, clients=tuple(map(fixed, problem.clients)), waiting=tuple(map(fixed, problem.waiting)))
