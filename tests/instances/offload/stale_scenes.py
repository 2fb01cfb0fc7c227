"""Seeded offload scenes in which some of the served have had no new result for long: a link that was down, a box
that was busy with something else.
"""

from dataclasses import replace
from random import Random

from appliance.policies.offload.base import Client, OffloadInput
from tests.instances.offload.scenes import LINKS, NETWORKS, RATES, SLAS, new_client

FPS = 60.0
NOW_MS = 5000.0
AGES_MS = (100.0, 1500.0)
"""How long ago the last result of a stale client was captured."""
FRESH_MS = (50.0, 200.0)
"""The same of everybody else."""


def stale_scene(seed: int, clients: tuple[int, int] = (4, 24)) -> OffloadInput:
    """`clients` (least and most) on one network and link, some of them at the door; of the served a third or so is
    stale.
    """
    random = Random(seed)
    network, link, sla = random.choice(tuple(NETWORKS)), random.choice(tuple(LINKS)), random.choice(tuple(SLAS))
    share, at_door = random.uniform(0.1, 0.6), random.choice((0.0, 0.0, 0.3, 0.6))
    served, waiting = [], []
    for index in range(random.randint(*clients)):
        client = new_client(random, index, LINKS[link], SLAS[sla], RATES)
        if random.random() < at_door:
            waiting.append(client)
        else:
            age_ms = random.uniform(*(AGES_MS if random.random() < share else FRESH_MS))
            served.append(_shown(client, age_ms))
    return OffloadInput(
        fps=FPS,
        now_ms=NOW_MS + random.uniform(0.0, 100.0),
        horizon_ms=1000.0,
        inference_ms=NETWORKS[network],
        clients=tuple(served),
        waiting=tuple(waiting),
    )


def _shown(client: Client, age_ms: float) -> Client:
    """With a newest frame that is `age_ms` old and was sent, answered and shown as soon as could be."""
    frame = int((NOW_MS - age_ms) * FPS / 1000.0)
    captured_ms = 1000.0 * frame / FPS
    return replace(
        client,
        last_frame=frame,
        last_arrival_ms=captured_ms + client.uplink_ms,
        last_result_frame=frame,
        last_result_ms=min(NOW_MS, captured_ms + client.uplink_ms + 10.0 + client.downlink_ms),
    )
