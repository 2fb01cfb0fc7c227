"""Step 2c, *verify*: the mean stride of every client under a plan, over the displayed frames of the horizon (AR-15)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from appliance.policies.offload.drop import EPSILON
from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.ledger import Opening, Slot

BATCH_EFFORT = 8
"""What it costs to pack and verify a batch, in requests of it."""


@dataclass(slots=True)
class Verified:
    """A set of clients with its plan: `slots` without the head, mean stride by client, the members whose SLA breaks."""

    members: list[int]
    slots: list[Slot]
    strides: dict[int, float]
    broken: list[int]
    effort: int = 0
    """What it has cost, in requests that were packed, those of plans that gave way to it among them."""
    leaves_out: bool = False
    """Whether it begins with the previous plan, and somebody who is not in that is due before its end."""

    @property
    def ok(self) -> bool:
        return not self.broken


TIGHT = 1e-9
"""Frames by which an allowed stride may be passed: rounding, no more."""


def mean_strides(fleet: Fleet, state: Opening, members: Iterable[int], slots: Sequence[Slot]) -> dict[int, float]:
    """Mean stride in frames of each member; infinite for one that sees no result within the horizon. O(requests).

    `slots` in order of their start, without the head: its results are in the opening already.
    """
    shown, since, total, counted = state.shown[:], state.since[:], state.total[:], state.counted[:]
    per_ms, to = fleet.frames_per_ms, fleet.display_to
    latencies = [network.latency_ms for network in fleet.networks]
    down = [ms * per_ms + (1.0 - EPSILON) for ms in fleet.down_ms]
    for start, network, requests in slots:
        end = (start + latencies[network][len(requests)]) * per_ms
        for i, frame in requests:
            display = int(end + down[i])  # rounds up
            if display < to:
                before = shown[i]
                if before >= 0:
                    total[i] += before * (display - since[i])
                else:
                    counted[i] = display
                shown[i] = frame
                since[i] = display
    strides = {}
    for i in members:
        displays = to - counted[i]
        if shown[i] < 0 or displays <= 0:
            strides[i] = float("inf")
        else:
            strides[i] = (counted[i] + to - 1) / 2.0 - (total[i] + shown[i] * (to - since[i])) / displays
    return strides


def violators(fleet: Fleet, strides: dict[int, float]) -> list[int]:
    """Members whose drop passes their SLA."""
    allowed = fleet.allowed
    return [i for i, stride in strides.items() if not stride <= allowed[i] + TIGHT]


def verified(fleet: Fleet, state: Opening, members: Sequence[int], slots: list[Slot]) -> Verified:
    """The plan of `members` with what it does to them."""
    strides = mean_strides(fleet, state, members, slots)
    effort = BATCH_EFFORT * len(slots) + sum([len(requests) for _, _, requests in slots])
    return Verified(list(members), slots, strides, violators(fleet, strides), effort)


def drop_of(fleet: Fleet, i: int, stride: float) -> float:
    """Expected drop against the reference setup."""
    rate, of_reference = fleet.rate[i], fleet.clients[i].drop_rate
    if rate == of_reference:
        return rate * (stride - fleet.reference[i]) + fleet.gap[i]
    return rate * stride - of_reference * fleet.reference[i] + fleet.gap[i]


@dataclass(frozen=True, slots=True)
class Soonest:
    """The horizon of one client under the best plan there could be: its next frame alone on the box, then the reference
    setup for ever.

    `before`: Σ stride over the displayed frames until the next result; `after`: displayed frames from then on;
    `latency`: their stride, at least.
    """

    before: float
    after: int
    latency: int


def soonest(fleet: Fleet, state: Opening, i: int) -> Soonest:
    """What no plan whatever can better for client i.

    A client that was never shown anything begins to count with its next result.
    """
    network = fleet.networks[fleet.network[i]]
    frame = state.earliest[i]
    quickest = network.quickest_ms + fleet.up_ms[i] + fleet.down_ms[i]
    latency = int(quickest * fleet.frames_per_ms + (1.0 - EPSILON))
    display = min(frame + latency, fleet.display_to)
    after = fleet.display_to - display
    if state.shown[i] < 0:
        return Soonest(0.0, after, latency)
    stale = (display - state.since[i]) * state.shown[i] + state.total[i]
    before = (state.counted[i] + display - 1) / 2.0 * (display - state.counted[i]) - stale
    return Soonest(before, after, latency)


def is_hopeless(fleet: Fleet, state: Opening, i: int) -> bool:
    """Whether no plan whatever can keep the SLA of i in this horizon."""
    best = soonest(fleet, state, i)
    if state.shown[i] < 0:
        return best.after <= 0 or not best.latency <= fleet.allowed[i] + TIGHT
    displays = fleet.display_to - state.counted[i]
    return not best.before + best.after * best.latency <= (fleet.allowed[i] + TIGHT) * displays


def allowed_after(fleet: Fleet, state: Opening, i: int) -> float:
    """Mean stride that client i may have from its next result on: the SLA's, or less where the result shown now is
    so old that it has to be made good.
    """
    best = soonest(fleet, state, i)
    if state.shown[i] < 0 or best.after <= 0:
        return fleet.allowed[i]
    displays = fleet.display_to - state.counted[i]
    return min(fleet.allowed[i], (fleet.allowed[i] * displays - best.before) / best.after)
