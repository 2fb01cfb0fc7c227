"""Seeded offload problems without a theme: any network, links, SLAs, clients in mid-flight and at the door."""

from dataclasses import replace
from random import Random

from appliance.policies.offload.base import Client, OffloadInput


def drawn(seed: int, clients_max: int = 25) -> OffloadInput:
    """Up to `clients_max` served and as many waiting; some cannot keep their SLA whatever happens."""
    random = Random(seed)
    fps = random.choice([15.0, 24.0, 30.0, 60.0, 60.0, 90.0])
    sizes = sorted({1, *random.sample([1, 2, 3, 4, 5, 6, 8, 12, 16], random.randint(1, 7))})
    fixed, each = random.uniform(1.0, 30.0), random.uniform(0.5, 20.0)
    inference_ms = {n: fixed + each * n for n in sizes}
    now = random.uniform(200.0, 5000.0)
    return OffloadInput(
        fps=fps,
        now_ms=now,
        horizon_ms=random.choice([500.0, 1000.0, 1000.0, 2000.0]),
        inference_ms=inference_ms,
        clients=tuple(
            _in_flight(random, _client(random, i), now, fps, inference_ms[1])
            for i in range(random.randint(0, clients_max))
        ),
        waiting=tuple(_client(random, 100 + i) for i in range(random.randint(0, clients_max))),
        busy_until_ms=now + random.choice([0.0, 0.0, random.uniform(0.0, 40.0)]),
        grace=random.choice([0.1, 0.1, 0.0, 0.3]),
    )


def _client(random: Random, index: int) -> Client:
    return Client(
        name=f"c{index}",
        drop_rate=random.uniform(0.001, 0.02),
        accuracy_slo=random.choice([random.uniform(0.01, 0.1), 0.02, 0.06]),
        uplink_ms=random.uniform(0.0, 40.0),
        downlink_ms=random.uniform(0.0, 30.0),
    )


def _in_flight(random: Random, client: Client, now: float, fps: float, one_ms: float) -> Client:
    frame_ms = 1000.0 / fps
    sent = int(now / frame_ms) - random.randint(1, 8)
    shown = sent - random.choice([0, 0, 3, 6])
    if shown < 0:
        return client
    back = shown * frame_ms + client.uplink_ms + one_ms + client.downlink_ms
    return replace(
        client,
        last_frame=sent,
        last_arrival_ms=sent * frame_ms + client.uplink_ms,
        last_result_frame=shown,
        last_result_ms=min(now, back),
    )
