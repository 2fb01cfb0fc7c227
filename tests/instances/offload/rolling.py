"""A box over many scheduling periods: clients come, stay and go; every plan is carried out for one period, and the
next one starts from what came of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from appliance.policies.offload.base import Batch, Client, OffloadInput, OffloadPlan, OffloadPolicy
from tests.checkers.offload import check
from tests.instances.offload.scenes import LINKS, NETWORKS, RATES, SLAS, new_client

PERIOD_MS = 200.0
DOOR = 10
"""Clients that wait at any time."""


@dataclass
class Stay:
    """One client: its state, what it was shown, until when it stays."""

    client: Client
    leaves_ms: float
    results: list[tuple[float, int]] = field(default_factory=list)


@dataclass
class Played:
    """What came of it.

    `drops`: (realised mean drop over the whole service, SLA) of every client that was served a second or longer.
    """

    served_mean: float
    removals: int
    admissions: int
    drops: list[tuple[float, float]]
    faults: list[str]
    problems: list[OffloadInput]
    plans: list[OffloadPlan]


def play(
    policy: OffloadPolicy,
    seed: int,
    network: str,
    link: str,
    sla: str,
    seconds: float = 10.0,
    warm_up_s: float = 2.0,
    checked: bool = False,
    rates: tuple[float, float] = RATES,
) -> Played:
    """Plan every 200 ms for a second ahead, nothing late. Served counts from `warm_up_s` on."""
    random = Random(seed)
    played = Played(0.0, 0, 0, [], [], [], [])
    serving: dict[str, Stay] = {}
    waiting: dict[str, Client] = {}
    batches: tuple[Batch, ...] = ()
    counts: list[int] = []
    number, now = 0, 0.0
    table = NETWORKS[network]
    while now < seconds * 1000.0:
        for name in [n for n, stay in serving.items() if stay.leaves_ms <= now]:
            _close(serving.pop(name), now, table, played)
        while len(waiting) < DOOR:
            client = new_client(random, number, LINKS[link], SLAS[sla], rates)
            waiting[client.name] = client
            number += 1
        running = [b for b in batches if b.start_ms < now]
        busy = max((b.start_ms + table[len(b.requests)] for b in running), default=0.0)
        problem = OffloadInput(
            fps=60.0,
            now_ms=now,
            horizon_ms=1000.0,
            inference_ms=table,
            clients=tuple(snapshot(stay, now) for stay in serving.values()),
            waiting=tuple(waiting.values()),
            busy_until_ms=busy,
            previous=batches,
        )
        plan = policy.plan(problem)
        played.problems.append(problem)
        played.plans.append(plan)
        if checked:
            played.faults += [f"at {now}: {fault}" for fault in check(problem, plan).faults]
        for name in plan.removed:
            _close(serving.pop(name), now, table, played)
        for name in plan.admitted:
            serving[name] = Stay(waiting.pop(name), now + random.uniform(4000.0, 12000.0))
        if now >= warm_up_s * 1000.0:
            counts.append(len(plan.clients))
            played.removals += len(plan.removed)
            played.admissions += len(plan.admitted)
        still_running = [b for b in running if b.start_ms + table[len(b.requests)] > now]
        batches = carry_out((*still_running, *plan.batches), serving, table, now)
        now += PERIOD_MS
    for stay in serving.values():
        _close(stay, now, table, played)
    played.served_mean = sum(counts) / len(counts)
    return played


def carry_out(
    batches: tuple[Batch, ...], serving: dict[str, Stay], table: Mapping[int, float], now: float, fps: float = 60.0
) -> tuple[Batch, ...]:
    """Run what starts within the period; what is still under way after it comes back."""
    then = now + PERIOD_MS
    for batch in batches:
        end = batch.start_ms + table[len(batch.requests)]
        for name, frame in batch.requests:
            stay = serving.get(name)
            if stay is None:
                continue
            client = stay.client
            capture = 1000.0 * frame / fps
            if capture < then and frame > (client.last_frame if client.last_frame is not None else -1):
                arrival = capture + client.uplink_ms
                if arrival <= then:
                    stay.client = replace(client, last_frame=frame, last_arrival_ms=arrival)
            shown = (end + client.downlink_ms, frame)
            if batch.start_ms < then and shown not in stay.results:
                stay.results.append(shown)
    return tuple(b for b in batches if b.start_ms + table[len(b.requests)] + 50.0 > then)


def snapshot(stay: Stay, now: float) -> Client:
    """The client with its newest result that has arrived."""
    come = [(frame, ms) for ms, frame in stay.results if ms <= now]
    if not come:
        return stay.client
    frame, ms = max(come)
    return replace(stay.client, last_result_frame=frame, last_result_ms=ms)


def _close(stay: Stay, now: float, table: Mapping[int, float], played: Played) -> None:
    """Account for a client that goes: its realised drop over all frames displayed since its first result."""
    strides, newest, results = [], -1, sorted(stay.results)
    if not results:
        return
    first = int(results[0][0] * 0.06) + 1
    position = 0
    for display in range(first, int(now * 0.06)):
        while position < len(results) and results[position][0] <= display / 0.06 + 1e-6:
            newest = max(newest, results[position][1])
            position += 1
        strides.append(display - newest)
    if len(strides) < 60:
        return
    client = stay.client
    one = -int(-table[1] * 0.06 // 1)
    latency = -int(-(client.uplink_ms + table[1] + client.downlink_ms) * 0.06 // 1)
    reference = latency + (one - 1) / 2.0
    played.drops.append((client.drop_rate * (sum(strides) / len(strides) - reference), client.accuracy_slo))
