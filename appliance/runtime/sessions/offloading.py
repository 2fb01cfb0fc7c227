"""From sessions with promises of accuracy to a problem of offload, and from its plan to what each device is told.

The planner counts all clients' frames on one scale, from the pool's epoch on. Each device numbers its own: the shift
between the two follows from the captures of its frames. What is left of it, less than a frame, makes the uplink longer
and the downlink shorter by as much, for the device shows its frames when it captures them. A pool's share of a worker
makes inferences longer by as much, but not those of the reference that drops are counted from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from appliance.clock import NS_PER_MS
from appliance.domain.session import AccuracyPromise, Reference, SessionPlan
from appliance.domain.slots import PlannedBatch
from appliance.domain.states import SessionState
from appliance.policies.offload.base import Batch, Client, OffloadInput, OffloadPlan, Served, Variant
from appliance.policies.offload.drop import reference_stride
from appliance.runtime.sessions.adapting import accuracy_of
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.curves import RATE_PRIOR
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.sent import QUALITY
from appliance.runtime.sessions.zoo import Rung

HORIZON_MS = 1000.0
GRACE = 0.1
VALID_NS = 1_000 * NS_PER_MS
LOST_TIMES, LOST_MS = 1.5, 20.0
"""What a frame may take against the slowest of the latest, and beyond that, before it is given up."""
FIRST_STRIDE = 8.0
"""Frames of age that a promise is taken to allow at most until its device has said how much it loses with each: its
first results, by which it learns that, come quickly."""
FIRST_S = 0.3
"""Between the first frames of a device, until it is known how it numbers them."""
SHIFT_SLACK = 0.75
"""Frames by which a capture may lie beside its place before the shift is another one: jitter is no shift."""


@dataclass(frozen=True, slots=True)
class Lenience:
    """What a promise that cannot be kept for the moment is taken to allow beyond what it does, as shares of the frames
    of age that it leaves: its plan may be as bad as `allowed` says, and aims at what `aimed` says. With the second at 0
    the device sends as often as ever."""

    allowed: float
    aimed: float = 0.0


STRICT, FORGIVING = Lenience(0.0), Lenience(1.0)
WAIVING = tuple(Lenience(1e4, aimed) for aimed in (0.0, 1.0, 3.0, 10.0, 1e4))
"""Anything; with the later ones devices send less often."""
LEFT_MIN = 1.0
"""Frames of age that a promise is taken to leave at least, for shares of them."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The pool's count of frames: frame f is captured at epoch + f / fps."""

    epoch_ns: int
    fps: float

    def ms(self, at_ns: int) -> float:
        """On the planner's scale."""
        return (at_ns - self.epoch_ns) / NS_PER_MS

    @property
    def frame_ms(self) -> float:
        return 1000.0 / self.fps


@dataclass(frozen=True, slots=True)
class Shift:
    """How a device's numbers lie on the pool's scale: number = frame + `frames`; captured `phase_ms` after it."""

    frames: int
    phase_ms: float


def shift_of(live: LiveSession, scale: Scale, before: Shift | None) -> Shift | None:
    """Where the device's numbers lie now; None before its first frame."""
    if not live.arrivals:
        return before
    number, captured_ns, _ = live.arrivals[-1]
    place = scale.ms(captured_ns) / scale.frame_ms
    frame = int(place // 1)
    if before is not None:
        kept = number - before.frames
        if -SHIFT_SLACK < place - kept < 1.0 + SHIFT_SLACK:
            frame = kept
    return Shift(number - frame, max(0.0, (place - frame) * scale.frame_ms))


def clients_of(
    sessions: Sequence[LiveSession],
    rungs: Sequence[Rung],
    scale: Scale,
    shifts: Mapping[str, Shift],
    share: float,
    decode_ms: float = 0.0,
    lenience: Mapping[str, Lenience] = MappingProxyType({}),
    refused: Sequence[Rung] = (),
) -> dict[str, Client]:
    """Sessions as the planner sees them, by id; without those whose promise is out of reach on their link, whatever is
    sent.

    A frame has arrived when it is decoded. `lenience`: of sessions, by id, that are not held to their promises.
    `refused`: variants that cannot run now, of which one may be the best, that promises count from.
    """
    known = (*rungs, *refused)
    tables, best = _tables(rungs, share), _best(known)
    for live in sessions:
        live.curves.know(known, best)
    return {
        live.id: _client(
            live,
            rungs,
            best,
            tables,
            scale,
            shifts.get(live.id),
            decode_ms,
            lenience.get(live.id, STRICT),
        )
        for live in sessions
        if not is_out_of_reach(live, rungs, decode_ms)
    }


def problem_of(
    served: Sequence[LiveSession],
    waiting: Sequence[LiveSession],
    clients: Mapping[str, Client],
    rungs: Sequence[Rung],
    scale: Scale,
    now_ns: int,
    share: float,
    busy_until_ns: int = 0,
    previous: Sequence[Batch] = (),
    refused: Sequence[Rung] = (),
) -> OffloadInput:
    """The problem of a pool. `clients`, `refused`: as of `clients_of`; `previous`: as `previous_of` gives it."""
    best = _best((*rungs, *refused))
    kept = {live.id for live in (*served, *waiting)}
    return OffloadInput(
        fps=scale.fps,
        now_ms=scale.ms(now_ns),
        horizon_ms=HORIZON_MS,
        inference_ms=_tables([best], share)[best.name],
        clients=tuple(clients[live.id] for live in served if live.id in clients),
        waiting=tuple(clients[live.id] for live in waiting if live.id in clients),
        busy_until_ms=max(0.0, scale.ms(busy_until_ns)),
        grace=GRACE,
        previous=tuple(
            Batch(one.start_ms, one.variant, tuple(request for request in one.requests if request[0] in kept))
            for one in previous
            if any(request[0] in kept for request in one.requests)
        ),
    )


def _best(rungs: Sequence[Rung]) -> Rung:
    return max(rungs, key=lambda rung: (rung.accuracy, rung.name))


def _tables(rungs: Sequence[Rung], share: float) -> dict[str, dict[int, float]]:
    return {rung.name: {batch: ms / share for batch, ms in rung.usual_ms.items()} for rung in rungs}


def previous_of(
    batches: Sequence[Batch],
    gates: Batches,
    scale: Scale,
    shifts: Mapping[str, Shift],
    now_ns: int,
    lost_ms: Mapping[str, float],
) -> tuple[list[Batch], int]:
    """The previous plan as it has come out so far, and when the batch that runs now is over.

    Batches that have begun are there with those of their members that came in time and have no result yet, from when
    they began or will; those still to begin as they were planned, from now where that is past. What came to no batch in
    time is in none, nor is what has not come so long after its capture (`lost_ms` by session).
    """
    variants: dict[tuple[str, int], str | None] = {}
    to_begin: list[Batch] = []
    for batch in batches:
        members = [(name, frame) for name, frame in batch.requests if name in shifts]
        numbers = [(name, frame + shifts[name].frames) for name, frame in members]
        variants.update(dict.fromkeys(numbers, batch.variant))
        expected = tuple(
            (name, frame)
            for (name, frame), number in zip(members, numbers, strict=True)
            if gates.is_to_begin(number)
            and (gates.has_come(number) or scale.ms(now_ns) - frame * scale.frame_ms < lost_ms[name])
        )
        if expected:
            joined = gates.joined((expected[0][0], expected[0][1] + shifts[expected[0][0]].frames)).difference(numbers)
            expected += tuple((name, number - shifts[name].frames) for name, number in sorted(joined) if name in shifts)
            to_begin.append(Batch(max(batch.start_ms, scale.ms(now_ns)), batch.variant, expected))
    found: list[Batch] = []
    busy_ns = 0
    for begun in gates.begun():
        requests = tuple(
            (name, number - shifts[name].frames) for name, number in sorted(begun.members) if name in shifts
        )
        if requests:
            variant = next((variants[member] for member in begun.members if member in variants), None)
            found.append(Batch(scale.ms(begun.start_ns), variant, requests))
        if begun.start_ns < now_ns:
            busy_ns = max(busy_ns, begun.end_ns)
    return sorted([*found, *to_begin], key=lambda batch: batch.start_ms), busy_ns


def lost_ms(live: LiveSession, frame_ms: float) -> float:
    """So long after its capture a frame of the session is not expected any more."""
    took = [(done_ns - captured_ns) / NS_PER_MS for _, captured_ns, done_ns in live.arrivals]
    return frame_ms + LOST_TIMES * max(took, default=HORIZON_MS) + LOST_MS


def is_out_of_reach(live: LiveSession, rungs: Sequence[Rung], decode_ms: float) -> bool:
    """Whether a promise against fresh results could not be kept by a box that serves nobody else, whatever it runs."""
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    if promise.reference is not Reference.FRESH:
        return False
    return not any(keeps(live, rung, decode_ms) for rung in sorted(rungs, key=lambda rung: -rung.accuracy))


def keeps(live: LiveSession, rung: Rung, decode_ms: float) -> bool:
    """Whether a box that serves nobody else would keep the promise with that variant."""
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    stride = dedicated_stride(live, rung, live.session.fps, decode_ms)
    if promise.reference is Reference.FRESH:
        return live.drop_of(stride, rung.name) <= promise.drop_max
    return live.drop_beside_dedicated(stride, rung.name) <= promise.drop_max


def dedicated_stride(live: LiveSession, rung: Rung, fps: float, decode_ms: float) -> float:
    """Mean age in frames of what a box would show that serves nobody else, with a variant over the same link."""
    up_ms = decode_ms + live.head_delay_ms
    up_ms += live.link.transfer_ms(live.sent.expected_bytes(rung.size))
    one = rung.usual_ms.get(1) or rung.usual_ms[min(rung.usual_ms)]
    return reference_stride(up_ms + live.down_ms, one, fps)


def plans_of(
    plan: OffloadPlan,
    members: Mapping[str, LiveSession],
    rungs: Mapping[str, Rung],
    best: str,
    scale: Scale,
    shifts: Mapping[str, Shift],
    now_ns: int,
) -> dict[str, SessionPlan]:
    """What each served session is told, by id."""
    return {
        one.name: _told(one, members[one.name], rungs[one.variant or best], scale, shifts.get(one.name), now_ns)
        for one in plan.clients
    }


def gates_of(
    batches: Sequence[Batch],
    rungs: Mapping[str, Rung],
    best: str,
    scale: Scale,
    shifts: Mapping[str, Shift],
    now_ns: int,
) -> list[PlannedBatch]:
    """Which frames wait for one another, of the sessions whose numbers are known."""
    found = []
    for batch in batches:
        members = frozenset((name, frame + shifts[name].frames) for name, frame in batch.requests if name in shifts)
        if not members:
            continue
        rung = rungs[batch.variant or best]
        usual = rung.usual_ms
        size = max((one for one in usual if one <= len(batch.requests)), default=min(usual))
        start_ns = scale.epoch_ns + int(batch.start_ms * NS_PER_MS)
        run_ns = int(usual[size] * NS_PER_MS)
        takes_ns = rung.takes_ns(size, now_ns)
        larger_ns = int(usual[size + 1] * NS_PER_MS) if size == len(members) and size + 1 in usual else None
        grace_ns = int(GRACE * run_ns)
        found.append(PlannedBatch(start_ns, run_ns, grace_ns, members, takes_ns, rung.name, larger_ns))
    return found


def run_ms_max(batches: Sequence[Batch], rungs: Mapping[str, Rung], best: str) -> float:
    """The longest run of planned batches, at its P99."""
    longest = 0.0
    for batch in batches:
        worst = rungs[batch.variant or best].worst_ms
        longest = max(longest, worst[max((one for one in worst if one <= len(batch.requests)), default=min(worst))])
    return longest


def loads_of(
    plan: OffloadPlan, members: Mapping[str, LiveSession], rungs: Mapping[str, Rung], best: str, workers: int
) -> float:
    """Share of all workers that a plan of one of them takes."""
    total = 0.0
    for one in plan.clients:
        rung, live = rungs[one.variant or best], members[one.name]
        live.expected_run_ms = rung.usual_ms[_batch_of(one, rung)]
        live.load = load_of(one, live.session.fps, rung, workers)
        total += live.load
    return min(1.0 / workers, total)


def load_of(served: Served, fps: float, rung: Rung, workers: int) -> float:
    """Share of all workers that one session takes."""
    batch = _batch_of(served, rung)
    return fps / max(1, served.interval) * rung.usual_ms[batch] / batch / 1000.0 / workers


def _batch_of(served: Served, rung: Rung) -> int:
    """The largest that was measured of those that are not larger than its own."""
    return max((size for size in rung.usual_ms if size <= served.batch), default=min(rung.usual_ms))


def _spare(live: LiveSession, best: Rung, fps: float, decode_ms: float) -> float:
    """Frames of age that the promise allows beyond what a box gives that serves nobody else."""
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    if promise.reference is not Reference.FRESH:
        return live.stride_allowed
    return max(0.0, live.stride_allowed - dedicated_stride(live, best, fps, decode_ms))


def _told(served: Served, live: LiveSession, rung: Rung, scale: Scale, shift: Shift | None, now_ns: int) -> SessionPlan:
    numbers: tuple[int, ...] = ()
    wait = 0.0
    interval = max(1, served.interval)
    if shift is None:
        interval = max(interval, math.ceil(FIRST_S * live.session.fps))
    if shift is not None:
        came = -1 if live.newest is None else live.newest
        frames = [frame for frame in served.frames if frame + shift.frames > came]
        numbers = tuple(frame + shift.frames for frame in frames)
        if frames:
            wait = max(0.0, frames[0] * scale.frame_ms + shift.phase_ms - scale.ms(now_ns))
    return SessionPlan(
        number=live.next_number(),
        variant=rung.name,
        size=rung.size,
        quality=QUALITY,
        interval=interval,
        frames=numbers,
        wait_ms=wait,
        valid_until_ns=now_ns + VALID_NS,
        accuracy=accuracy_of(rung),
        expected_drop=served.expected_drop,
    )


def _own_rate(live: LiveSession, rung: Rung, of_best: float) -> float | None:
    """What results of a variant lose with each frame of age; None: as those of the best one."""
    rate = _rate_of(live, rung)
    return rate if live.ageing.is_rate_known and rate != of_best else None


def _rate_of(live: LiveSession, rung: Rung) -> float:
    """What results of a variant lose with each frame of age. Of one that nobody of the application has compared with
    those that the device knows, and that is the best one, no more than is taken to be tried at first: it
    may well age better, and nobody would learn of it.
    """
    curves, promise = live.curves, live.promise
    assert isinstance(promise, AccuracyPromise)
    rate = curves.rate_of(rung.name)
    if not curves.is_guessed(rung.name) or curves.gap_of(rung.name) > 0.0:
        return rate
    return min(rate, max(RATE_PRIOR, promise.drop_max / FIRST_STRIDE))


def _client(
    live: LiveSession,
    rungs: Sequence[Rung],
    best: Rung,
    tables: Mapping[str, Mapping[int, float]],
    scale: Scale,
    shift: Shift | None,
    decode_ms: float,
    lenience: Lenience,
) -> Client:
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    phase_ms = 0.0 if shift is None else shift.phase_ms
    down_ms = live.down_ms - phase_ms
    uplinks = {
        rung.name: phase_ms
        + decode_ms
        + live.head_delay_ms
        + live.link.transfer_ms(live.sent.expected_bytes(rung.size))
        for rung in (best, *rungs)
    }
    curves = live.curves
    rate, allowed, reference = _rate_of(live, best), promise.drop_max, 0.0
    if live.state is SessionState.SERVED and not live.ageing.is_rate_known:
        rate = max(rate, promise.drop_max / FIRST_STRIDE)
    if promise.reference is Reference.FRESH:
        allowed -= curves.base
    else:
        reference = dedicated_stride(live, best, scale.fps, decode_ms)
    spare = _spare(live, best, scale.fps, decode_ms)
    kept_free = rate * live.ageing.kept_free(spare)
    left = rate * max(spare, LEFT_MIN)
    allowed += lenience.allowed * left
    kept_free += (lenience.allowed - lenience.aimed) * left
    # Pictures for another variant than the best one take another time.
    larger_ms = uplinks[best.name] - uplinks.get(live.variant, uplinks[best.name])
    arrivals = (
        ()
        if shift is None
        else tuple((n - shift.frames, scale.ms(done) + decode_ms + larger_ms) for n, _, done in live.arrivals)
    )
    last = arrivals[-1] if arrivals else None
    result = None if shift is None or live.last_result is None else live.last_result
    if result is not None and last is not None and result[0] - (0 if shift is None else shift.frames) > last[0]:
        result = None
    return Client(
        name=live.id,
        drop_rate=rate,
        accuracy_slo=allowed,
        uplink_ms=uplinks[best.name],
        downlink_ms=down_ms,
        last_frame=None if last is None else last[0],
        last_arrival_ms=None if last is None else last[1],
        last_result_frame=None if result is None or shift is None else result[0] - shift.frames,
        last_result_ms=None if result is None else scale.ms(result[2]) + down_ms,
        arrivals=tuple(one for one in arrivals if one[0] >= 0),
        variants=tuple(
            Variant(
                rung.name,
                curves.gap_of(rung.name),
                uplinks[rung.name],
                tables[rung.name],
                _own_rate(live, rung, rate),
            )
            for rung in rungs
        )
        if len(rungs) > 1 or best not in rungs
        else (),
        kept_free=kept_free,
        reference_stride=reference,
    )
