"""What each client has when the plan begins: its newest result, the frames already promised, the head of the plan that
can no longer change.

Overlap (§4.4.2 (1), AR-17): batches of the previous plan stay as they are while one of their members has captured, or
will have before a new order can reach it, its frame; later ones are planned anew. A promised frame is never ordered
twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from appliance.policies.offload.base import Batch, Client
from appliance.policies.offload.drop import EPSILON
from appliance.policies.offload.fleet import Fleet

NONE = -1
"""No result yet; frame numbers are not negative."""

Slot = tuple[float, int, list[tuple[int, int]]]
"""A batch inside a packer: start ms, network index, [(client index, frame)]."""


@dataclass(slots=True)
class Opening:
    """Columns at the beginning: `shown` = frame whose result is displayed, since display `since`; `total` = Σ of shown
    frames before `since`;
    `counted` = first display that counts; `earliest` = first frame that may be ordered; `last` = newest frame sent or
    promised (NONE: none)."""

    shown: list[int]
    since: list[int]
    total: list[int]
    counted: list[int]
    earliest: list[int]
    last: list[int]
    head: list[Slot]
    free_ms: float
    """When the processor is free after the head."""
    rest: Sequence[Batch] = ()
    """Batches of the previous plan after the head: free to change, and the way to go on if nothing did."""


def opening(fleet: Fleet, without: frozenset[int] = frozenset()) -> Opening:
    """The state of all clients, with the results of what is under way; those `without` leave the head.

    O(N + previous requests).
    """
    problem, clients, per_ms = fleet.problem, fleet.clients, fleet.frames_per_ms
    now, count = problem.now_ms, len(fleet.clients)
    hears = [ceil((now + down) * per_ms - EPSILON) for down in fleet.down_ms]
    results = [_newest(client, per_ms) for client in clients]
    state = Opening(
        [NONE] * count,
        [fleet.display_from] * count,
        [0] * count,
        [fleet.display_to] * count,
        hears,
        [NONE if client.last_frame is None else client.last_frame for client in clients],
        [],
        max(now, problem.busy_until_ms),
    )
    if problem.previous:
        _take_over(fleet, state, results, without)
    for i, come in enumerate(results):
        if come:
            _play(fleet, state, i, come)
    state.earliest = [max(heard, last + 1, 0) for heard, last in zip(hears, state.last, strict=True)]
    return state


def _newest(client: Client, per_ms: float) -> list[tuple[int, int]]:
    """(display, frame) of the newest result that is there, if any."""
    if client.last_result_ms is None or client.last_result_frame is None:
        return []
    return [(ceil(client.last_result_ms * per_ms - EPSILON), client.last_result_frame)]


def _play(fleet: Fleet, state: Opening, i: int, results: list[tuple[int, int]]) -> None:
    """Fold results, (display, frame), into the columns of client i."""
    if len(results) > 1:
        results.sort()
    shown, since, total, counted = NONE, fleet.display_from, 0, fleet.display_to
    for display, frame in results:
        if frame <= shown:
            continue
        if display < fleet.display_from:
            display = fleet.display_from
        elif display > fleet.display_to:
            display = fleet.display_to
        if shown == NONE:
            counted = display
        else:
            total += shown * (display - since)
        shown, since = frame, display
    state.shown[i], state.since[i], state.total[i], state.counted[i] = shown, since, total, counted


def _take_over(fleet: Fleet, state: Opening, results: list[list[tuple[int, int]]], without: frozenset[int]) -> None:
    """Results of running batches, and the head: the batches that can no longer change, with the clients that are
    still here.
    """
    problem = fleet.problem
    place = {client.name: i for i, client in enumerate(fleet.clients) if i not in without}
    networks = {network.name: k for k, network in enumerate(fleet.networks)}
    ordered = sorted(problem.previous, key=lambda b: b.start_ms)
    planned = [b for b in ordered if b.start_ms >= problem.now_ms and b.variant in networks]
    orderable = {client.name: frame for client, frame in zip(fleet.clients, state.earliest, strict=True)}
    kept = _promised(planned, orderable)
    state.rest = planned[kept:]
    for batch in ordered:
        if batch.start_ms >= problem.now_ms:
            break
        members = [(place[name], frame) for name, frame in batch.requests if name in place]
        if members and batch.variant in networks:
            network = fleet.networks[networks[batch.variant]]
            size = network.fit(len(batch.requests)) or network.sizes[0]
            _deliver(fleet, state, results, members, batch.start_ms + network.latency_ms[size])
    for batch in planned[:kept]:
        index = networks[batch.variant]
        members = [(place[n], f) for n, f in batch.requests if n in place and fleet.network[place[n]] == index]
        network = fleet.networks[index]
        size = network.fit(len(members))
        members = members[:size]
        arrived = [1000.0 * frame / problem.fps + fleet.up_ms[i] for i, frame in members]
        start = max(batch.start_ms, state.free_ms, *arrived) if arrived else fleet.end_ms
        if start >= fleet.end_ms:
            continue
        state.free_ms = start + network.latency_ms[size]
        state.head.append((start, index, members))
        _deliver(fleet, state, results, members, state.free_ms)


def _deliver(
    fleet: Fleet, state: Opening, results: list[list[tuple[int, int]]], members: list[tuple[int, int]], end_ms: float
) -> None:
    per_ms, down_ms, last = fleet.frames_per_ms, fleet.down_ms, state.last
    for i, frame in members:
        results[i].append((ceil((end_ms + down_ms[i]) * per_ms - EPSILON), frame))
        last[i] = max(last[i], frame)


def _promised(planned: Sequence[Batch], orderable: dict[str, int]) -> int:
    """How many batches, from the first on, hold: to the last with a member that has captured its frame, or will have
    before a new order reaches it.
    """
    top = max(orderable.values(), default=0)
    for kept in range(len(planned), 0, -1):
        for name, frame in planned[kept - 1].requests:
            if frame < top and frame < orderable.get(name, 0):
                return kept
    return 0
