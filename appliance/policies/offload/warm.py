"""Warm start: the previous plan goes on as it is, and only what it does not reach any more is packed.

Between two plans little changes: no client comes or goes, links stay what they were. Then the batches of the previous
plan that have not begun are still a plan that keeps every SLA, but for the part of the horizon that is new. A batch
that finds the processor busy, or whose frames come a little later than was thought, starts as much later. What comes of
it is verified like any other plan; where it breaks an SLA, or the previous plan no longer fits, everything is packed
anew.
"""

from collections.abc import Sequence
from dataclasses import replace

from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.ledger import Opening, Slot

GRACE_TAKEN = 1.0
"""Share of the grace period by which frames may come after the start that was planned; where links got slower by more,
batches are to be made anew.
"""


def resumed(fleet: Fleet, state: Opening, members: Sequence[int]) -> tuple[list[Slot], Opening] | None:
    """The rest of the previous plan and the state after it; None where a batch of it cannot stay with its frames.

    O(requests).
    """
    place = {fleet.clients[i].name: i for i in members}
    networks = {network.name: k for k, network in enumerate(fleet.networks)}
    frame_ms, up_ms, of = fleet.frame_ms, fleet.up_ms, fleet.network
    earliest, last, free_ms = state.earliest[:], state.last[:], state.free_ms
    slots: list[Slot] = []
    for start, variant, requests in state.rest:
        k = networks[variant]
        latency = fleet.networks[k].latency_ms.get(len(requests))
        if latency is None:
            return None
        start = max(start, free_ms)
        latest_ms = start + GRACE_TAKEN * fleet.problem.grace * latency
        placed = []
        for name, frame in requests:
            i = place.get(name, -1)
            if i < 0 or of[i] != k or frame < earliest[i]:
                return None
            arrives_ms = frame * frame_ms + up_ms[i]
            if arrives_ms > latest_ms:
                return None
            start = max(start, arrives_ms)
            placed.append((i, frame))
            last[i] = frame
            earliest[i] = frame + 1
        if start >= fleet.end_ms:
            return None
        slots.append((start, k, placed))
        free_ms = start + latency
    return (slots, replace(state, earliest=earliest, last=last, free_ms=free_ms)) if slots else None
