"""What each client has when the plan begins: its newest result, the frames already promised, the head of the plan that can no longer change.

Overlap (§4.4.2 (1), AR-17): batches of the previous plan stay as they are while one of their members has captured, or will have before a new order can
reach it, its frame; later ones are planned anew. A promised frame is never ordered twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.policies.offload.base import Batch
from appliance.policies.offload.drop import first_frame_at
from appliance.policies.offload.fleet import Fleet

NONE = -1
"""No result yet; frame numbers are not negative."""

Slot = tuple[float, int, list[tuple[int, int]]]
"""A batch inside a packer: start ms, network index, [(client index, frame)]."""


@dataclass(slots=True)
class Opening:
    """Columns at the beginning: `shown` = frame whose result is displayed, since display `since`; `total` = Σ of shown frames before `since`;
    `counted` = first display that counts; `earliest` = first frame that may be ordered; `last` = newest frame sent or promised (NONE: none)."""

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
    """The state of all clients, with the results of what is under way; those `without` leave the head. O(N + previous requests)."""
    problem = fleet.problem
    now, fps = problem.now_ms, problem.fps
    count = len(fleet.clients)
    state = Opening(
        [NONE] * count,
        [0] * count,
        [0] * count,
        [0] * count,
        [0] * count,
        [NONE] * count,
        [],
        max(now, problem.busy_until_ms),
    )
    results: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for i, client in enumerate(fleet.clients):
        if client.last_result_ms is not None and client.last_result_frame is not None:
            results[i].append((first_frame_at(client.last_result_ms, fps), client.last_result_frame))
        if client.last_frame is not None:
            state.last[i] = client.last_frame
        state.earliest[i] = max(first_frame_at(now + fleet.down_ms[i], fps), state.last[i] + 1, 0)
    if problem.previous:
        _take_over(fleet, state, results, without)
    for i in range(count):
        if len(results[i]) > 1:
            results[i].sort()
        _play(fleet, state, i, results[i])
        state.earliest[i] = max(state.earliest[i], state.last[i] + 1)
    return state


def _play(fleet: Fleet, state: Opening, i: int, results: list[tuple[int, int]]) -> None:
    """Fold results, (display, frame) in order of display, into the columns of client i."""
    shown, since, total, counted = NONE, fleet.display_from, 0, fleet.display_to
    for display, frame in results:
        if frame <= shown:
            continue
        display = min(max(display, fleet.display_from), fleet.display_to)
        if shown == NONE:
            counted = display
        else:
            total += shown * (display - since)
        shown, since = frame, display
    state.shown[i], state.since[i], state.total[i], state.counted[i] = shown, since, total, counted


def _take_over(fleet: Fleet, state: Opening, results: list[list[tuple[int, int]]], without: frozenset[int]) -> None:
    """Results of running batches, and the head: the batches that can no longer change, with the clients that are still here."""
    problem = fleet.problem
    place = {client.name: i for i, client in enumerate(fleet.clients) if i not in without}
    networks = {network.name: k for k, network in enumerate(fleet.networks)}
    ordered = sorted(problem.previous, key=lambda b: b.start_ms)
    planned = [b for b in ordered if b.start_ms >= problem.now_ms and b.variant in networks]
    orderable = {c.name: first_frame_at(problem.now_ms + c.downlink_ms, problem.fps) for c in fleet.clients}
    kept = len(planned)
    while kept and not _is_promised(planned[kept - 1], orderable):
        kept -= 1
    state.rest = planned[kept:]
    for batch in ordered:
        members = [(place[name], frame) for name, frame in batch.requests if name in place]
        if batch.start_ms < problem.now_ms and members and batch.variant in networks:
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
    for i, frame in members:
        results[i].append((first_frame_at(end_ms + fleet.down_ms[i], fleet.problem.fps), frame))
        state.last[i] = max(state.last[i], frame)


def _is_promised(batch: Batch, orderable: dict[str, int]) -> bool:
    """Whether a member has captured its frame, or will have before a new order reaches it."""
    return any([frame < orderable.get(name, 0) for name, frame in batch.requests])
