"""Our packer: the most urgent client first, its batch filled with others that allow its size, whoever they are in the
order of arrival.

Plain ARISE walks requests in order of arrival; where neighbours allow different sizes, runs stay short. And its grace
period keeps the processor idle. Here (1) the client whose next batch is due first leads, and the batch takes the next
most urgent ones that allow the size, past those that do not; (2) the grace period lies before the start, while the
processor still works on the batch before: requests are expected that much earlier, and a late one costs nothing; (3)
due times come from what the SLA of each client allows, with the mean wait for the next frame and the next display taken
into account.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.offload.drop import EPSILON
from appliance.policies.offload.fleet import Fleet
from appliance.policies.offload.ledger import Opening, Slot


@dataclass(slots=True)
class Pace:
    """Columns by client: largest batch it should run in, ms between its batches (0: not even alone), share of the
    processor that this takes.
    """

    batch: list[int]
    period_ms: list[float]
    load: list[float]


def pace(fleet: Fleet, allowed: Sequence[float] | None = None, *, has_choice: bool = False) -> Pace:
    """Step 1 with real latencies: the batch and period that take least of the processor.

    `allowed`: mean strides by client, if not those that are aimed at; of a served client for which that is too little
    even alone, all that it allows, unless it `has_choice` of another network.

    A frame waits half an interval for its batch on average, and a result half of one for its display, so the mean
    stride at period P (frames) and latency x is x + 1 + (P − 1)/2, where x includes the grace period.
    """
    count = len(fleet.clients)
    limits = fleet.aimed if allowed is None else allowed
    result = Pace([1] * count, [0.0] * count, [float("inf")] * count)
    for index, network in enumerate(fleet.networks):
        of = [i for i in range(count) if fleet.network[i] == index] if len(fleet.networks) > 1 else list(range(count))
        if not of:
            continue
        fillable = [size for size in network.sizes if size <= len(of)] or network.sizes[:1]
        sizes = np.array(fillable)
        latency = np.array([network.latency_ms[size] for size in fillable])
        fixed = np.array([fleet.up_ms[i] + fleet.down_ms[i] for i in of])
        limit = np.array([limits[i] for i in of])
        per_ms = fleet.frames_per_ms
        strides = (fixed[:, None] + latency * (1.0 + fleet.problem.grace)) * per_ms + 1.0
        if allowed is None and not has_choice:
            for row in np.flatnonzero(limit < strides.min(axis=1) - 1.0).tolist():
                limit[row] = fleet.allowed[of[row]] if fleet.is_served[of[row]] else limit[row]
        # Where the mean wait leaves nothing, phases may still fall well: tried with one frame a period, down to no wait
        # at all.
        frames = np.maximum(2.0 * (limit[:, None] - strides) + 1.0, np.where(limit[:, None] >= strides - 1.0, 1.0, 0.0))
        periods = np.minimum(frames / per_ms, fleet.problem.horizon_ms)
        gain = periods * (sizes / latency)
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


@dataclass(frozen=True, slots=True)
class Patience:
    """Shares of its period after which a client may join a batch of others, and after which it may lead one, however
    idle the box is.
    """

    join: float
    lead: float


def pack_due(
    fleet: Fleet,
    state: Opening,
    members: Sequence[int],
    batch: Sequence[int],
    period_ms: Sequence[float],
    patience: Patience,
) -> list[Slot]:
    """Batches until the horizon is full. O(requests · (log clients + those that are passed over))."""
    grace, per_ms, frame_ms, end_ms = fleet.problem.grace, fleet.frames_per_ms, fleet.frame_ms, fleet.end_ms
    of, networks = fleet.network, fleet.networks
    earliest = state.earliest[:]
    travel = [up + grace * networks[k].latency_ms[b] for up, k, b in zip(fleet.up_ms, of, batch, strict=True)]
    join = patience.join
    habits = [
        (up * per_ms - EPSILON, way, join * ms, ms, -b)
        for up, way, ms, b in zip(fleet.up_ms, travel, period_ms, batch, strict=True)
    ]
    line, joins = _line_up(fleet, state, members, period_ms, batch, travel, patience)
    early_ms = [(1.0 - patience.lead) * ms for ms in period_ms]
    period_max_ms = max([period_ms[i] for i in members], default=0.0)
    early_max_ms = (1.0 - patience.lead) * period_max_ms
    # Who may join at t is due by t and this much of the longest period of the network.
    join_early_ms = [(1.0 - join) * ms + EPSILON for ms in _longest_ms(fleet, members, period_ms)]
    is_shared = len({of[i] for i in members}) <= 1
    slots: list[Slot] = []
    t = state.free_ms
    while t < end_ms and line:
        for leader in line:
            due, _, i = leader
            if (due - early_ms[i] <= t and joins[i] <= t) or due - early_max_ms > t:
                break
        if due - early_ms[i] > t or joins[i] > t:
            t = _next_lead_ms(line, joins, early_ms, early_max_ms)
            continue
        network = networks[of[i]]
        if leader[1] == -1:
            chosen = [leader]
        else:
            chosen = _fill(line, leader, joins, t, t + join_early_ms[of[i]], None if is_shared else of)
        size = network.fit(len(chosen)) or network.sizes[0]
        if size > len(chosen):  # even the smallest batch needs more; somebody may join later
            t = min((joins[i] for _, _, i in line if joins[i] > t), default=end_ms)
            continue
        latency = network.latency_ms[size]
        arrive = (t - grace * latency) * per_ms
        requests = []
        for entry in chosen if size == len(chosen) else chosen[:size]:
            line.remove(entry)
            i = entry[2]
            up, way, rest, period, wish = habits[i]
            frame = int(arrive - up)
            if frame < earliest[i]:  # noqa: PLR1730 -- max() is slower, and this loop is the policy's time
                frame = earliest[i]
            requests.append((i, frame))
            frame += 1
            earliest[i] = frame
            sendable = frame * frame_ms + way
            rest += t
            joins[i] = rest if rest > sendable else sendable
            insort(line, (t + period, wish, i))
        slots.append((t, of[leader[2]], requests))
        t += latency
    return slots


def due_ms(fleet: Fleet, state: Opening, i: int, period_ms: float, travel_ms: float) -> float:
    """When the next batch of client i is due, from the newest frame sent or shown; a new client's at once.

    `travel_ms`: what its frames are taken to need until they are there.
    """
    newest = max(state.last[i], state.shown[i])
    if newest < 0:
        return state.earliest[i] * fleet.frame_ms + travel_ms
    return (newest + 0.5) * fleet.frame_ms + travel_ms + period_ms


def _longest_ms(fleet: Fleet, members: Sequence[int], period_ms: Sequence[float]) -> list[float]:
    """The longest period of the members of each network."""
    longest_ms = [0.0] * len(fleet.networks)
    for i in members:
        longest_ms[fleet.network[i]] = max(longest_ms[fleet.network[i]], period_ms[i])
    return longest_ms


def _line_up(
    fleet: Fleet,
    state: Opening,
    members: Sequence[int],
    period_ms: Sequence[float],
    batch: Sequence[int],
    travel: Sequence[float],
    patience: Patience,
) -> tuple[list[Entry], list[float]]:
    """Who is due when, from the newest frame sent or shown, and who may join a batch from when on.

    New clients are due at once.
    """
    line = []
    joins = [0.0] * len(travel)
    for i in members:
        soonest = state.earliest[i] * fleet.frame_ms + travel[i]
        due = due_ms(fleet, state, i, period_ms[i], travel[i])
        joins[i] = max(soonest, due - (1.0 - patience.join) * period_ms[i])
        line.append((due, -batch[i], i))
    line.sort()
    return line, joins


def _fill(
    line: list[Entry], leader: Entry, joins: list[float], t: float, due_max: float, of: Sequence[int] | None
) -> list[Entry]:
    """The leader and the most urgent others that allow its size; if there are too few, the largest smaller size that
    enough allow. Nobody joins who is due
    after `due_max`. `of`: the network of each client, if they differ."""
    most = leader[1]
    missing = -most - 1
    chosen = [leader]
    smaller = []
    own = -1 if of is None else of[leader[2]]
    for entry in line:
        due, wish, i = entry
        if due > due_max:
            break
        if joins[i] <= t and (of is None or of[i] == own) and entry is not leader:
            if wish <= most:
                chosen.append(entry)
                missing -= 1
                if not missing:
                    return chosen
            else:
                smaller.append(entry)
    if not smaller:
        return chosen
    allowed = sorted([e[1] for e in smaller])
    size = at_least = len(chosen)
    for n, wish in enumerate(allowed, at_least + 1):
        if -wish >= n:
            size = n
    if size == at_least:
        return chosen
    return [*chosen, *[e for e in smaller if -e[1] >= size]][:size]


def _next_lead_ms(line: list[Entry], joins: list[float], early_ms: list[float], early_max_ms: float) -> float:
    """When the first client may lead, while none may now."""
    first = float("inf")
    for due, _, i in line:
        if due - early_max_ms >= first:
            break
        first = min(first, max(due - early_ms[i], joins[i]))
    return first
