"""Re-checks an offload plan frame by frame over the displayed frames of [now, now + horizon).

Shares nothing with the policies but their dataclasses.

Exact arithmetic: every time is a Fraction of the float that the plan holds, so that no rounding of the checker decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from appliance.policies.offload.base import Batch, Client, OffloadInput, OffloadPlan, Variant

ROUNDING_MS = Fraction(1, 10**6)
ROUNDING_DROP = 1e-7


@dataclass(frozen=True)
class Checked:
    """What is wrong, in sentences, and the drop of each served client."""

    faults: tuple[str, ...]
    drops: dict[str, float]


def check(problem: OffloadInput, plan: OffloadPlan) -> Checked:
    """Every constraint of the family, once more."""
    faults = [*_membership(problem, plan), *_batches(problem, plan), *_orders(problem, plan)]
    drops = {}
    clients = {c.name: c for c in (*problem.clients, *problem.waiting)}
    for served in plan.clients:
        client = clients[served.name]
        variant = next((v for v in client.variants if v.name == served.variant), None)
        drop = _drop(problem, plan, client, variant)
        drops[client.name] = drop
        if drop > client.accuracy_slo + ROUNDING_DROP:
            faults.append(f"{client.name} drops {drop:.6f}, its SLA is {client.accuracy_slo}")
        if abs(drop - served.expected_drop) > 1e-6:
            faults.append(f"{client.name} drops {drop:.6f}, the plan says {served.expected_drop:.6f}")
    return Checked(tuple(faults), drops)


def _membership(problem: OffloadInput, plan: OffloadPlan) -> Iterator[str]:
    before = {c.name for c in problem.clients}
    waiting = {c.name for c in problem.waiting}
    served = [s.name for s in plan.clients]
    if len(set(served)) != len(served):
        yield "a client is served twice"
    if set(served) & before != before - set(plan.removed):
        yield "removed and served do not add up"
    if set(served) & waiting != set(plan.admitted):
        yield "admitted and served do not add up"
    for s in plan.clients:
        in_batches = [f for b in plan.batches for name, f in b.requests if name == s.name]
        if sorted(in_batches) != sorted(s.frames):
            yield f"frames of {s.name} and batches do not agree"


def _batches(problem: OffloadInput, plan: OffloadPlan) -> Iterator[str]:
    clients = {c.name: c for c in (*problem.clients, *problem.waiting)}
    served = {s.name: s for s in plan.clients}
    free = Fraction(max(problem.now_ms, problem.busy_until_ms))
    for batch in plan.batches:
        start = Fraction(batch.start_ms)
        if start < free - ROUNDING_MS:
            yield f"batch at {batch.start_ms} starts while the processor is busy"
        if not problem.now_ms <= batch.start_ms < problem.now_ms + problem.horizon_ms:
            yield f"batch at {batch.start_ms} starts outside the horizon"
        names = [name for name, _ in batch.requests]
        if len(set(names)) != len(names):
            yield f"batch at {batch.start_ms} holds two frames of one client"
        latency = _latencies(problem, clients, batch).get(len(names))
        if latency is None:
            yield f"batch at {batch.start_ms} has a size without a latency: {len(names)}"
            continue
        for name, frame in batch.requests:
            if name not in served:
                yield f"batch at {batch.start_ms} holds {name}, who is not served"
            elif served[name].variant != batch.variant:
                yield f"batch at {batch.start_ms} mixes variants"
            elif _arrival(problem, clients[name], batch.variant, frame) > start + ROUNDING_MS:
                yield f"frame {frame} of {name} arrives after its batch starts"
        free = start + Fraction(latency)


def _orders(problem: OffloadInput, plan: OffloadPlan) -> Iterator[str]:
    promised = {request for b in problem.previous for request in b.requests}
    clients = {c.name: c for c in (*problem.clients, *problem.waiting)}
    newest: dict[str, int] = {}
    for batch in plan.batches:
        for name, frame in batch.requests:
            client = clients[name]
            if frame <= newest.get(name, -1):
                yield f"{name} sends frame {frame} again, or late"
            newest[name] = frame
            if (name, frame) in promised:
                continue
            capture = Fraction(1000 * frame) / Fraction(problem.fps)
            if capture < Fraction(problem.now_ms) + Fraction(client.downlink_ms) - ROUNDING_MS:
                yield f"{name} cannot hear of frame {frame} before its capture"
            if client.last_frame is not None and frame <= client.last_frame:
                yield f"{name} has sent frame {frame} already"


def _latencies(problem: OffloadInput, clients: dict[str, Client], batch: Batch) -> dict[int, float]:
    if batch.variant is None:
        return dict(problem.inference_ms)
    tables = [v.inference_ms for name, _ in batch.requests for v in clients[name].variants if v.name == batch.variant]
    return dict(tables[0]) if tables else {}


def _arrival(problem: OffloadInput, client: Client, variant: str | None, frame: int) -> Fraction:
    uplink = next((v.uplink_ms for v in client.variants if v.name == variant), client.uplink_ms)
    return Fraction(1000 * frame) / Fraction(problem.fps) + Fraction(uplink)


def _drop(problem: OffloadInput, plan: OffloadPlan, client: Client, variant: Variant | None) -> float:
    """Play the results out over the displayed frames, one by one."""
    fps = Fraction(problem.fps)
    clients = {c.name: c for c in (*problem.clients, *problem.waiting)}
    results: list[tuple[Fraction, int]] = []
    if client.last_result_ms is not None and client.last_result_frame is not None:
        results.append((Fraction(client.last_result_ms), client.last_result_frame))
    running = [b for b in problem.previous if b.start_ms < problem.now_ms]
    for batch in (*running, *plan.batches):
        for name, frame in batch.requests:
            if name == client.name:
                table = _latencies(problem, clients, batch)
                size = len(batch.requests)
                end = Fraction(batch.start_ms) + Fraction(table[size])
                results.append((end + Fraction(client.downlink_ms), frame))
    strides = []
    display = ceil(Fraction(problem.now_ms) * fps / 1000)
    while Fraction(1000 * display) / fps < Fraction(problem.now_ms) + Fraction(problem.horizon_ms):
        shown = [f for ms, f in results if ms <= Fraction(1000 * display) / fps + ROUNDING_MS]
        if shown:
            strides.append(display - max(shown))
        display += 1
    if not strides:
        return float("inf")
    mean = Fraction(sum(strides), len(strides))
    gap = variant.accuracy_gap if variant else 0.0
    own = None if variant is None else variant.drop_rate
    rate = client.drop_rate if own is None else own
    return rate * float(mean) - client.drop_rate * float(_reference(problem, client)) + gap


def _reference(problem: OffloadInput, client: Client) -> Fraction:
    if client.reference_stride is not None:
        return Fraction(client.reference_stride)
    fps = Fraction(problem.fps)
    one = Fraction(problem.inference_ms[1])
    total = (Fraction(client.uplink_ms) + one + Fraction(client.downlink_ms)) * fps / 1000
    latency = _up(total)
    interval = max(1, _up(one * fps / 1000))
    return Fraction(sum(range(latency, latency + interval)), interval)


def _up(frames: Fraction) -> int:
    """Ceiling, forgiving what floats add to whole numbers."""
    whole = floor(frames + Fraction(1, 2))
    return whole if abs(frames - whole) < Fraction(1, 10**9) else ceil(frames)
