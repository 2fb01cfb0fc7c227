"""Steps 2a and 2b of ARISE (§4.4.2): simulate the arrivals to come, then pack and coordinate them (Algorithm 1)."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.ledger import Opening, Slot

SOONER = 0.3
"""Of what its frames are apart, by which a client may be taken along before it is due."""


def simulate(fleet: Fleet, state: Opening, members: Sequence[int], interval: Sequence[int]) -> Iterator[int]:
    """Clients in the order in which their requests would arrive, for ever: the last arrival plus the interval, again
    and again (AR-11).

    A client without an arrival sends as soon as an order reaches it. Ties: the place by name.
    """
    heap = [(first_arrival_ms(fleet, state, i, interval[i]), i) for i in members]
    heapify(heap)
    frame_ms = fleet.frame_ms
    while heap:
        arrival, i = heap[0]
        yield i
        heapreplace(heap, (arrival + interval[i] * frame_ms, i))


def first_arrival_ms(fleet: Fleet, state: Opening, i: int, interval: float) -> float:
    """When the next request of i arrives if nothing is adjusted: no earlier than a new order can make it."""
    soonest = state.earliest[i] * fleet.frame_ms + fleet.up_ms[i]
    if state.last[i] < 0:
        return soonest
    return max(soonest, (state.last[i] + interval) * fleet.frame_ms + fleet.up_ms[i])


def adjust(fleet: Fleet, state: Opening, requests: Iterable[int], batch: Sequence[int]) -> list[Slot]:
    """Algorithm 1: the longest run of requests whose clients all allow its size, again and again until the horizon is
    full (AR-12, AR-13).

    Differs: a run also ends before a second request of one client, before another network, and goes down to a size that
    has a latency. The slot of a batch begins when the processor is free and its members can have sent a new frame; the
    batch starts a grace period into the slot (AR-18), so that the plan holds when requests are late. Linear in the
    number of requests.
    """
    order = iter(requests)
    waiting: list[int] = []
    slots: list[Slot] = []
    earliest = state.earliest[:]
    slot_ms = state.free_ms
    for first in order:
        waiting.append(first)
        while waiting:
            run = _run(waiting, order, batch, fleet.network)
            network = fleet.networks[fleet.network[run[0]]]
            size = network.fit(len(run)) or network.sizes[0]
            if size > len(run):
                return slots
            waiting = run[size:] + waiting[len(run) :]
            run = run[:size]
            start, placed = coordinate(fleet, earliest, run, slot_ms, fleet.problem.grace * network.latency_ms[size])
            if start >= fleet.end_ms:
                return slots
            slots.append((start, fleet.network[run[0]], placed))
            slot_ms = start + network.latency_ms[size]
    return slots


def paced(
    fleet: Fleet, state: Opening, members: Sequence[int], apart: Sequence[float], batch: Sequence[int]
) -> list[Slot]:
    """As `adjust`, of the requests as they come if the frames of each client are `apart` (frames, by client): a slot
    waits for the first of its members that is due, takes along those that are due soon, and each is due anew by the
    frame that it was given. The processor rests where nobody is due. O(log members) a request.
    """
    earliest = state.earliest[:]
    slots: list[Slot] = []
    slot_ms = state.free_ms
    heap = [(first_arrival_ms(fleet, state, i, apart[i]), i) for i in members]
    heapify(heap)
    while heap:
        run = [heappop(heap)]
        due_ms, first = run[0]
        slot_ms = max(slot_ms, due_ms)
        network, limit = fleet.networks[fleet.network[first]], batch[first]
        while heap:
            due_ms, i = heap[0]
            limit = min(limit, batch[i])
            is_soon = due_ms - slot_ms <= SOONER * apart[i] * fleet.frame_ms or len(run) < network.sizes[0]
            if len(run) >= limit or not is_soon or fleet.network[i] != fleet.network[first]:
                break
            run.append(heappop(heap))
        size = network.fit(len(run)) or network.sizes[0]
        if size > len(run) or slot_ms >= fleet.end_ms:
            break
        for one in run[size:]:
            heappush(heap, one)
        together = [i for _, i in run[:size]]
        start, placed = coordinate(fleet, earliest, together, slot_ms, fleet.problem.grace * network.latency_ms[size])
        if start >= fleet.end_ms:
            break
        slots.append((start, fleet.network[first], placed))
        slot_ms = start + network.latency_ms[size]
        for i, frame in placed:
            heappush(heap, ((frame + apart[i]) * fleet.frame_ms + fleet.up_ms[i], i))
    return slots


def _run(waiting: list[int], order: Iterator[int], batch: Sequence[int], network: Sequence[int]) -> list[int]:
    """The longest permissible run at the head of `waiting`, which grows from `order` as needed."""
    limit = batch[waiting[0]]
    run = [waiting[0]]
    while True:
        if len(run) == len(waiting):
            following = next(order, None)
            if following is None:
                return run
            waiting.append(following)
        i = waiting[len(run)]
        limit = min(limit, batch[i])
        if len(run) >= limit or i in run or network[i] != network[run[0]]:
            return run
        run.append(i)


def coordinate(
    fleet: Fleet, earliest: list[int], run: Sequence[int], slot_ms: float, lead_ms: float
) -> tuple[float, list[tuple[int, int]]]:
    """Start and (client, frame) of a batch: the newest frame of each member that arrives by the beginning of the slot,
    which waits until each has one
    that may be ordered. Moves `earliest` on."""
    fps, per_ms = fleet.problem.fps, fleet.frames_per_ms
    for i in run:
        slot_ms = max(slot_ms, 1000.0 * earliest[i] / fps + fleet.up_ms[i])
    placed = []
    for i in run:
        frame = int((slot_ms - fleet.up_ms[i]) * per_ms + 1e-9)
        if 1000.0 * frame / fps + fleet.up_ms[i] > slot_ms + lead_ms or frame < earliest[i]:
            frame = earliest[i]
        placed.append((i, frame))
        earliest[i] = frame + 1
    return slot_ms + lead_ms, placed
