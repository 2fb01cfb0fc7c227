"""The baselines of the paper (§6.3, AR-29): clients send by themselves at their interval, and the box batches what has
come (the *simulate* step alone).

Where the paper adds and removes clients over time, one plan has to judge a set at once: for the dynamic baselines a set
is served if no request slips a batch (was there when a batch began, and had to wait for a later one) and every SLA
holds; for `static` SLAs alone count. Nothing coordinates the phases, so a new client's first request falls at a phase
of its own, not at the same instant as all others'.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from zlib import crc32

from appliance.policies.offload.admission import Admission, Decision, Packer
from appliance.policies.offload.answer import assemble
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.drop import latency_frames
from appliance.policies.offload.fleet import Fleet, Network, Settings, fleet_of, step1
from appliance.policies.offload.ledger import Opening, Slot
from appliance.policies.offload.verify import Verified, verified

EXPECTED_LOAD = 0.5
FULL, OVERFULL = 1.1, 2.0
"""Of the processor's time within a horizon: more than a baseline can use where no request may slip a batch (a batch
may pass the end), and more than any was seen to use where queues grow for as long as SLAs hold."""
SHARES = (1.0, 0.8, 0.6, 0.4)
"""Intervals tried for a fixed one, as shares of the longest that the SLA allows without queueing."""


def arrivals_by_phase(fleet: Fleet, state: Opening, members: Sequence[int], interval: Sequence[int]) -> dict[int, int]:
    """First frame of each member: the last one plus the interval if it has sent, else at a phase of its own."""
    first = {}
    for i in members:
        if state.last[i] >= 0:
            first[i] = max(state.earliest[i], state.last[i] + interval[i])
        else:
            first[i] = state.earliest[i] + int(_phase(fleet.clients[i].name) * interval[i])
    return first


def _phase(name: str) -> float:
    """In [0, 1): where in its interval a client happens to begin.

    A hash, so that it does not depend on who else is there.
    """
    return crc32(name.encode()) / 2**32


def batch_as_they_come(
    fleet: Fleet, state: Opening, members: Sequence[int], settings: Settings
) -> tuple[list[Slot], set[int]]:
    """Opportunistic batching until the horizon is full, and the clients with a request that slipped a batch."""
    fps = fleet.problem.fps
    coming = [
        (1000.0 * f / fps + fleet.up_ms[i], i, f)
        for i, f in arrivals_by_phase(fleet, state, members, settings.interval).items()
    ]
    heapify(coming)
    here: list[tuple[float, int, int]] = []
    slots: list[Slot] = []
    slipped: set[int] = set()
    t = state.free_ms
    while coming:
        while coming[0][0] <= t:
            _, i, frame = request = heappop(coming)
            here.append(request)
            following = frame + settings.interval[i]
            heappush(coming, (1000.0 * following / fps + fleet.up_ms[i], i, following))
        run = _run(fleet, here, settings.batch) if here else []
        network = fleet.networks[fleet.network[run[0][1]]] if run else None
        size = network.fit(len(run)) if network else 0
        if network is None or not size:
            t = coming[0][0]
            if t >= fleet.end_ms:
                break
            continue
        if t >= fleet.end_ms:
            break
        run, here = run[:size], [r for r in here if r not in run[:size]]
        slipped |= {i for _, i, _ in here}
        slots.append((t, fleet.network[run[0][1]], [(i, frame) for _, i, frame in run]))
        t += network.latency_ms[size]
    return slots, slipped


def _run(fleet: Fleet, here: list[tuple[float, int, int]], batch: Sequence[int]) -> list[tuple[float, int, int]]:
    """The longest run in order of arrival whose clients all allow its size."""
    run: list[tuple[float, int, int]] = []
    limit = 1 << 30
    for request in here:
        i = request[1]
        limit = min(limit, batch[i])
        if len(run) >= limit or any(other[1] == i for other in run):
            break
        if run and fleet.network[i] != fleet.network[run[0][1]]:
            break
        run.append(request)
    return run


Tuning = Callable[[Fleet, Sequence[int]], Settings]
"""The settings of a baseline (columns by client) for one set of clients."""
Found = tuple[Decision, Settings]
"""A decision, with the settings that its plan was built around."""


@dataclass(frozen=True, slots=True)
class Reactive:
    """A baseline: the tunings that are tried, of which the best one counts (the paper searches them offline), and
    whether a slip counts.
    """

    name: str
    tunings: Callable[[OffloadInput], Sequence[Tuning]]
    slips_count: bool = True

    def plan(self, problem: OffloadInput) -> OffloadPlan:
        fleet = fleet_of(problem)
        found = self.best(fleet, step1(fleet).load)
        if found is None:
            raise ValueError(f"{self.name} has no tuning")
        decision, settings = found
        return assemble(fleet, decision, settings.interval, settings.batch, self.name)

    def best(
        self, fleet: Fleet, load: Sequence[float], beat: int = 0, trials_max: float = float("inf")
    ) -> Found | None:
        """What serves the most, the first of equals.

        With `beat`, tunings are left out, and searches end, where they will not serve more than that, and
        the most promising come first. None is begun after `trials_max` plans."""
        found: tuple[Decision, Tuning] | None = None
        trials = 0
        for tuning in _promising(fleet, self.tunings(fleet.problem), beat + 1) if beat else self.tunings(fleet.problem):
            if trials >= trials_max:
                break
            decision = Admission(fleet, load, [self._packer(tuning)], EXPECTED_LOAD).decide(beat)
            trials += decision.trials
            if found is None or len(decision.verified.members) > len(found[0].verified.members):
                found = decision, tuning
                beat = beat and max(beat, len(decision.verified.members))
        return None if found is None else (found[0], found[1](fleet, found[0].verified.members))

    def _packer(self, tuning: Tuning) -> Packer:
        def pack(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
            settings = tuning(fleet, members)
            able = [i for i in members if settings.interval[i] > 0]
            slots, slipped = batch_as_they_come(fleet, state, able, settings)
            plan = verified(fleet, state, members, slots)
            if self.slips_count:
                plan.broken = sorted({*plan.broken, *slipped})
            return plan

        return pack


def _own_settings(fleet: Fleet, members: Sequence[int]) -> Settings:
    """ARISE-α: step 1, client by client."""
    return step1(fleet)


def _without_batches(fleet: Fleet, members: Sequence[int]) -> Settings:
    """Chameleon-like: the interval of each client, batches of the smallest size."""
    return step1(fleet, largest=1)


@dataclass(frozen=True, slots=True)
class _OneForAll:
    """Everybody at one interval: `share` of what the tightest client allows at this batch size.

    `is_capped`: batches at most so large (static); else as
    large as each client allows at that interval (Clipper-like)."""

    batch: int
    share: float
    is_capped: bool

    def __call__(self, fleet: Fleet, members: Sequence[int]) -> Settings:
        network = fleet.networks[fleet.network[members[0]]] if members else fleet.networks[0]
        longest = min((_longest(fleet, i, network, self.batch) for i in members), default=1)
        interval = max(1, int(longest * self.share))
        batch = [self.batch] * len(fleet.clients)
        if not self.is_capped:
            for i in members:
                allowed = [size for size in network.sizes if _longest(fleet, i, network, size) >= interval]
                batch[i] = max(allowed, default=network.sizes[0])
        return Settings(batch, [interval] * len(batch), [0.0] * len(batch))

    def least_load(self, fleet: Fleet, count: int) -> float:
        """Share of the processor's time that `count` clients take at least: were they the laxest, batches as full as
        can be, and every first frame an
        interval late; in units of what a plan can have. Infinite without so many clients."""
        longest = sorted(_longest(fleet, i, fleet.networks[k], self.batch) for i, k in enumerate(fleet.network))
        if count > len(longest):
            return float("inf")
        interval = max(1, int(longest[-count] * self.share))
        most = min(count, self.batch) if self.is_capped else count
        each_ms = [ms / size for network in fleet.networks for size, ms in network.latency_ms.items() if size <= most]
        horizon_ms = fleet.problem.horizon_ms
        requests = count * (horizon_ms * fleet.frames_per_ms / interval - 1.0)
        return requests * min(each_ms, default=0.0) / horizon_ms / (OVERFULL if self.is_capped else FULL)


def _promising(fleet: Fleet, tunings: Sequence[Tuning], count: int) -> list[Tuning]:
    """Those that may carry `count` clients, by the load that this is at least; of equals the first.

    Without a bound: the first place.
    """
    loads = [t.least_load(fleet, count) if isinstance(t, _OneForAll) else 0.0 for t in tunings]
    return [tunings[k] for k in sorted(range(len(tunings)), key=lambda k: loads[k]) if loads[k] <= 1.0]


def _longest(fleet: Fleet, i: int, network: Network, size: int) -> int:
    latency = latency_frames(fleet.up_ms[i] + fleet.down_ms[i], network.latency_ms[size], fleet.problem.fps)
    longest = min(2.0 * (fleet.aimed[i] - latency) + 1.0 + 1e-9, fleet.problem.horizon_ms * fleet.frames_per_ms)
    return int(longest) if longest > 0 else 0


def _same_for_all(problem: OffloadInput, is_capped: bool) -> list[Tuning]:
    return [_OneForAll(size, share, is_capped) for size in sorted(problem.inference_ms) for share in SHARES]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Everybody at one interval, whatever their SLA; batches up to `batch` (static), or with None as large as each
    client allows (Clipper-like).
    """

    interval: int
    batch: int | None

    def __call__(self, fleet: Fleet, members: Sequence[int]) -> Settings:
        count = len(fleet.clients)
        batch = []
        for i in range(count):
            network = fleet.networks[fleet.network[i]]
            if self.batch is not None:
                batch.append(network.fit(self.batch) or network.sizes[0])
            else:
                allowed = [size for size in network.sizes if _longest(fleet, i, network, size) >= self.interval]
                batch.append(max(allowed, default=network.sizes[0]))
        return Settings(batch, [self.interval] * count, [0.0] * count)


def static(interval: int = 3, batch: int = 5) -> Reactive:
    """One interval and batch size for all; SLAs hold on average, slips or not.

    Defaults: the paper's, for depth over 5G at every SLA.
    """
    return Reactive("static", lambda problem: [_Fixed(interval, batch)], slips_count=False)


def clipper_like(interval: int = 3) -> Reactive:
    """Dynamic batches, one interval for all; default: the paper's for depth."""
    return Reactive("clipper-like", lambda problem: [_Fixed(interval, None)])


def static_searched() -> Reactive:
    """Static with the setting that is best for the very problem at hand, found by trying all: stronger than anything
    that could be deployed.
    """
    return Reactive("static, searched", lambda problem: _same_for_all(problem, True), slips_count=False)


def clipper_searched() -> Reactive:
    """Clipper-like with the best interval for the very problem at hand."""
    return Reactive("clipper-like, searched", lambda problem: _same_for_all(problem, False))


def chameleon_like() -> Reactive:
    """Dynamic intervals, no batches."""
    return Reactive("chameleon-like", lambda problem: [_without_batches])


def arise_alpha() -> Reactive:
    """All of ARISE but the adjust step."""
    return Reactive("arise-alpha", lambda problem: [_own_settings])


FLOOR = (static, clipper_like, chameleon_like, arise_alpha, static_searched, clipper_searched)
"""All baselines, the quick ones first."""
FLOOR_TRIALS_MAX = 300
"""Plans tried of one baseline in the floor: bounds a decision."""


def floor(fleet: Fleet, beat: int, trials_max: float = FLOOR_TRIALS_MAX) -> Found | None:
    """What the best of the baselines decides; None where none may serve more than `beat` clients."""
    load = step1(fleet).load
    best: Found | None = None
    for baseline in FLOOR:
        found = baseline().best(fleet, load, beat, trials_max)
        if found is not None and len(found[0].verified.members) > beat:
            best, beat = found, len(found[0].verified.members)
    return best
