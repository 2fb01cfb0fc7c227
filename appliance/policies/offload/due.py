"""Our packer: the most urgent client first, its batch filled with others that allow its size, whoever they are in the order of arrival.

Plain ARISE walks requests in order of arrival; where neighbours allow different sizes, runs stay short. And its grace period keeps the processor idle.
Here (1) the client whose next batch is due first leads, and the batch takes the next most urgent ones that allow the size, past those that do not;
(2) the grace period lies before the start, while the processor still works on the batch before: requests are expected that much earlier, and a late one
costs nothing; (3) due times come from what the SLA of each client allows, with the mean wait for the next frame and the next display taken into account.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.offload.drop import EPSILON
from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.ledger import Opening, Slot

REST = 0.5
"""Of its period that a client rests at least between two batches, however idle the box is: twice the frames that its SLA needs, no more."""


@dataclass(slots=True)
class Pace:
    """Columns by client: largest batch it should run in, ms between its batches (0: not even alone), share of the processor that this takes."""

    batch: list[int]
    period_ms: list[float]
    load: list[float]


def pace(fleet: Fleet) -> Pace:
    """Step 1 with real latencies: the batch and period that take least of the processor.

    A frame waits half an interval for its batch on average, and a result half of one for its display, so the mean stride at period P (frames) and latency
    x is x + 1 + (P − 1)/2, where x includes the grace period.
    """
    count = len(fleet.clients)
    result = Pace([1] * count, [0.0] * count, [float("inf")] * count)
    for index, network in enumerate(fleet.networks):
        of = [i for i in range(count) if fleet.network[i] == index] if len(fleet.networks) > 1 else list(range(count))
        if not of:
            continue
        sizes = np.array(network.sizes)
        latency = np.array([network.latency_ms[size] for size in network.sizes])
        fixed = np.array([fleet.up_ms[i] + fleet.down_ms[i] for i in of])
        allowed = np.array([fleet.allowed[i] for i in of])
        per_ms = fleet.frames_per_ms
        strides = (fixed[:, None] + latency * (1.0 + fleet.problem.grace)) * per_ms + 1.0
        periods = np.minimum((2.0 * (allowed[:, None] - strides) + 1.0) / per_ms, fleet.problem.horizon_ms)
        gain = np.where(periods > 1.0 / per_ms, periods * (sizes / latency), 1e-12)
        best = gain.argmax(axis=1)
        rows = np.arange(len(of))
        for i, b, p, g in zip(
            of, sizes[best].tolist(), periods[rows, best].tolist(), gain[rows, best].tolist(), strict=True
        ):
            if g > 1e-9:
                result.batch[i], result.period_ms[i], result.load[i] = b, p, 1.0 / g
    return result


Entry = tuple[float, int, int]
"""(due ms, minus the batch size allowed, client): sorts by urgency; ties: the larger batch, then the place by name."""


def pack_due(
    fleet: Fleet, state: Opening, members: Sequence[int], batch: Sequence[int], period_ms: Sequence[float]
) -> list[Slot]:
    """Batches until the horizon is full. O(requests · (batch + clients that are passed over))."""
    grace, per_ms, frame_ms, end_ms = fleet.problem.grace, fleet.frames_per_ms, fleet.frame_ms, fleet.end_ms
    up, of, networks = fleet.up_ms, fleet.network, fleet.networks
    earliest = state.earliest[:]
    line, rested, lead = _line_up(fleet, state, members, batch, period_ms)
    slots: list[Slot] = []
    t = state.free_ms
    while t < end_ms and line:
        for leader in line:
            if rested[leader[2]] <= t:
                break
        else:
            t = min(rested[i] for _, _, i in line)
            continue
        network = networks[of[leader[2]]]
        chosen = _fill(line, leader, rested, t, of)
        size = network.fit(len(chosen)) or network.sizes[0]
        if size > len(chosen):
            t = min((rested[i] for _, _, i in line if rested[i] > t), default=end_ms)
            continue
        latency = network.latency_ms[size]
        arrive = t - grace * latency
        requests = []
        for entry in chosen[:size]:
            i = entry[2]
            frame = max(int((arrive - up[i]) * per_ms + EPSILON), earliest[i])
            requests.append((i, frame))
            earliest[i] = frame + 1
            rest = t + REST * period_ms[i]
            sendable = (frame + 1) * frame_ms + up[i] + lead[i]
            rested[i] = rest if rest > sendable else sendable
            line.remove(entry)
            insort(line, (t + period_ms[i], entry[1], i))
        slots.append((t, of[leader[2]], requests))
        t += latency
    return slots


def _line_up(
    fleet: Fleet, state: Opening, members: Sequence[int], batch: Sequence[int], period_ms: Sequence[float]
) -> tuple[list[Entry], list[float], list[float]]:
    """Who is due when, from the newest frame sent or shown; who may run again from when on; the grace by client. New clients are due at once."""
    lead = [fleet.problem.grace * fleet.networks[k].latency_ms[b] for k, b in zip(fleet.network, batch, strict=True)]
    line = []
    rested = [0.0] * len(lead)
    for i in members:
        travel = fleet.up_ms[i] + lead[i]
        soonest = due = state.earliest[i] * fleet.frame_ms + travel
        newest = max(state.last[i], state.shown[i])
        if newest >= 0:
            due = (newest + 0.5) * fleet.frame_ms + travel + period_ms[i]
        rested[i] = max(soonest, due - (1.0 - REST) * period_ms[i])
        line.append((due, -batch[i], i))
    line.sort()
    return line, rested, lead


def _fill(line: list[Entry], leader: Entry, rested: list[float], t: float, of: Sequence[int]) -> list[Entry]:
    """The leader and the most urgent others that allow its size; if there are too few, the largest smaller size that enough allow."""
    size = -leader[1]
    chosen = [leader]
    if size == 1:
        return chosen
    network = of[leader[2]]
    for entry in line:
        if -entry[1] >= size and rested[entry[2]] <= t and entry is not leader and of[entry[2]] == network:
            chosen.append(entry)
            if len(chosen) == size:
                return chosen
    ready = [e for e in line if rested[e[2]] <= t and e is not leader and of[e[2]] == network]
    allowed = sorted((-e[1] for e in ready), reverse=True)
    smaller = 1
    while smaller < min(size, len(ready) + 1) and allowed[smaller - 1] > smaller:
        smaller += 1
    return [leader, *[e for e in ready if -e[1] >= smaller][: smaller - 1]]
