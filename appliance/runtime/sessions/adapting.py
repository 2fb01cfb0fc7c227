"""From sessions with promises of latency to a problem of adaptation, and from its plan to what each device is told.

The planner knows one zoo, and workers that are its own. A pool (the sessions of one tenant at one application, above
one accuracy) has a share of all workers' time: to run at that share is to run all the time with rates that are larger
by as much. What a frame takes beside its transfer and its run (the way to the box, decoding, the way back, the longest
run of others) comes off the SLO.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.clock import NS_PER_MS
from appliance.domain.session import LatencyPromise, SessionPlan
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network
from appliance.policies.adaptation.zoo import filtered, monotone
from appliance.policies.sending.pictures import QUALITY_LOW, quality_share
from appliance.policies.sending.sender import BUSY_MAX
from appliance.runtime.sessions.link import BPS_MAX
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.sent import BODY_BYTES, QUALITY, usual_bytes
from appliance.runtime.sessions.worker_lanes import PlannedWorker
from appliance.runtime.sessions.zoo import Rung

VALID_NS = 1_500 * NS_PER_MS
"""Three periods: a plan that was lost on the way is followed by another."""
SLO_LEFT_MS_MIN = 0.1
"""A client without any budget is one that nothing serves, not a malformed problem."""


@dataclass(frozen=True, slots=True)
class FrameOverhead:
    """What a frame takes beside its transfer and its own run and wait, milliseconds."""

    decode_ms: float
    foreign_ms: float
    """The longest run of others."""


def problem_of(
    members: Sequence[LiveSession],
    clients: Sequence[Client],
    rungs: Sequence[Rung],
    workers: int,
    previous: Sequence[str | None],
    seed: int = 0,
) -> AdaptationInput:
    """The problem of a pool; `clients` as of `client_of`, one for each member."""
    any_bytes = _typical_bytes(members)
    found = (
        Network(r.name, r.accuracy, any_bytes if r.size is None else usual_bytes(r.size), r.worst_ms) for r in rungs
    )
    networks = monotone(filtered(found, {name for name in previous if name is not None}))
    known = {network.name for network in networks}
    return AdaptationInput(
        networks=networks,
        workers=workers,
        clients=tuple(_sending_something(client, networks) for client in clients),
        previous=tuple(name if name in known else None for name in previous),
        seed=seed,
        # All of them, the nearest first: how many there is memory for is not the planner's to know.
        prefetch_per_worker=max(1, len(networks)),
    )


def plans_of(
    plan: AdaptationPlan, members: Sequence[LiveSession], rungs: Mapping[str, Rung], now_ns: int
) -> dict[str, SessionPlan]:
    """What each mapped session is told, by id; nothing who is no member any more."""
    by_id = {live.id: live for live in members}
    told = {}
    for worker in plan.workers:
        rung = rungs[worker.network]
        for live in _those(by_id, worker.clients):
            interval = interval_of(live)
            told[live.id] = SessionPlan(
                number=live.next_number(),
                variant=rung.name,
                size=rung.size,
                quality=QUALITY,
                interval=interval,
                frames=(),
                wait_ms=live.next_due(now_ns)[1],
                valid_until_ns=now_ns + VALID_NS,
                accuracy=accuracy_of(rung),
            )
    return told


def with_variant(plan: SessionPlan, rung: Rung) -> SessionPlan:
    """The same plan for frames on another variant."""
    return replace(plan, variant=rung.name, size=rung.size, accuracy=accuracy_of(rung))


def workers_of(plan: AdaptationPlan, members: Sequence[LiveSession]) -> list[PlannedWorker]:
    """Return what each worker does for sessions that are members still."""
    there = {live.id for live in members}
    return [
        PlannedWorker(worker.worker, worker.batch, frozenset(there.intersection(worker.clients)))
        for worker in plan.workers
    ]


def loads_of(plan: AdaptationPlan, members: Sequence[LiveSession], rungs: Mapping[str, Rung], workers: int) -> float:
    """Share of all workers that a plan takes for those who are members still."""
    by_id = {live.id: live for live in members}
    total = 0.0
    for worker in plan.workers:
        each = rungs[worker.network].usual_ms[worker.batch] / worker.batch / 1000.0
        for live in _those(by_id, worker.clients):
            live.load = rate_of(live) * each / workers
            live.expected_run_ms = rungs[worker.network].usual_ms[worker.batch]
            total += live.load
    return total


def _those(by_id: Mapping[str, LiveSession], ids: Sequence[str]) -> Iterator[LiveSession]:
    """Who of them is there."""
    return (by_id[id] for id in ids if id in by_id)


def least_load(live: LiveSession, rungs: Sequence[Rung], workers: int, beside: FrameOverhead) -> float:
    """Share of all workers that the promise takes at least: with the variant that takes least and is in time."""
    promise = live.promise
    assert isinstance(promise, LatencyPromise)
    found = [min(ms / batch for batch, ms in rung.usual_ms.items()) for rung in rungs if keeps(live, rung, beside)]
    each = min(found, default=min((min(rung.usual_ms.values()) for rung in rungs), default=0.0))
    return promise.rate_rps * each / 1000.0 / workers


def keeps(live: LiveSession, rung: Rung, beside: FrameOverhead) -> bool:
    """Whether its frames are in time on a variant, on the link as it is (eq. 5)."""
    left_ms = _slo_left_ms(live, beside)
    left_ms -= live.link.transfer_ms(_bytes_share(live) * live.sent.expected_bytes(rung.size))
    return 2.0 * min(rung.worst_ms.values()) <= left_ms


def interval_of(live: LiveSession) -> int:
    """Every so many frames one is sent: the promised rate, or a little less where it is no part of the frame rate."""
    return max(1, math.ceil(live.session.fps / rate_of(live) - 1e-6))


def rate_of(live: LiveSession) -> float:
    """Promised frames per second; never more than the device captures."""
    assert isinstance(live.promise, LatencyPromise)
    return min(live.promise.rate_rps, live.session.fps)


def accuracy_of(rung: Rung) -> float | None:
    """Points of a variant that was measured."""
    accuracy = rung.servable.variant.accuracy
    return None if accuracy is None else accuracy.points


def client_of(live: LiveSession, share: float, beside: FrameOverhead, *, is_cautious: bool = True) -> Client:
    """One session; `share` of all workers' time that its pool has. Frames that are larger than others' of the same size
    make the link narrower by as much: a network has one frame size. What frames take on the link that are as large for
    every network comes off the SLO. The device keeps the link free for a part of the time, as `Sender` does. Cautious:
    frames are in time though the link is as much slower than expected as devices allow for when they fit their pictures
    to it.
    """
    margin = live.link.margin if is_cautious else 1.0
    bandwidth_bps = live.link.bandwidth_bps / margin / _bytes_share(live)
    left_ms = _slo_left_ms(live, beside)
    most_ms = margin * BUSY_MAX * 1000.0 * interval_of(live) / live.session.fps
    if live.sent.is_as_asked:
        bandwidth_bps /= live.sent.share_of_usual
    else:
        takes_ms = 8000.0 * live.sent.expected_bytes(None) / bandwidth_bps
        left_ms = left_ms - takes_ms if takes_ms <= most_ms else 0.0
        bandwidth_bps = BPS_MAX
    return Client(
        name=live.id,
        rate_rps=rate_of(live) / share,
        slo_ms=max(SLO_LEFT_MS_MIN, left_ms),
        bandwidth_bps=bandwidth_bps,
        transfer_ms_max=most_ms,
    )


def client_at_the_box(live: LiveSession, beside: FrameOverhead) -> Client:
    """One session that has the box for itself, on the box's own wire."""
    assert isinstance(live.promise, LatencyPromise)
    slo_ms = max(SLO_LEFT_MS_MIN, live.promise.slo_ms - beside.decode_ms - beside.foreign_ms)
    return Client(name=live.id, rate_rps=rate_of(live), slo_ms=slo_ms, bandwidth_bps=BPS_MAX)


def _sending_something(client: Client, networks: Sequence[Network]) -> Client:
    """The smallest pictures are sent however narrow the link is."""
    smallest_ms = min((8000.0 * network.input_bytes / client.bandwidth_bps for network in networks), default=0.0)
    return replace(client, transfer_ms_max=max(smallest_ms, client.transfer_ms_max))


def way_ms(live: LiveSession) -> float:
    """What a frame and its answer take on the way, whatever their size."""
    return live.head_delay_ms + live.link.fixed_ms + live.down_ms


def _bytes_share(live: LiveSession) -> float:
    """Of what frames take at the plan's quality, the least that is sent before pictures become smaller: devices that
    say their quality lower that first where the link does not carry more (`policies/sending`)."""
    return quality_share(QUALITY_LOW) / quality_share(QUALITY) if live.lowers_quality else 1.0


def _slo_left_ms(live: LiveSession, beside: FrameOverhead) -> float:
    assert isinstance(live.promise, LatencyPromise)
    return live.promise.slo_ms - way_ms(live) - beside.decode_ms - beside.foreign_ms


def _typical_bytes(members: Sequence[LiveSession]) -> float:
    """Of frames without a size in pixels, of devices of which none has come."""
    known = [live.sent.body_bytes for live in members if live.sent.body_bytes is not None]
    return sum(known) / len(known) if known else BODY_BYTES
