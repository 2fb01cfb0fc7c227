"""From sessions with promises of accuracy to a problem of offload, and from its plan to what each device is told.

The planner counts all clients' frames on one scale, from the pool's epoch on. Each device numbers its own: the shift
between the two follows from the captures of its frames, and what is left of it, less than a frame, counts as uplink. A
pool's share of a worker makes inferences longer by as much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.clock import NS_PER_MS
from appliance.domain.session import AccuracyPromise, Reference, SessionPlan
from appliance.policies.offload.base import Batch, Client, OffloadInput, OffloadPlan, Served, Variant
from appliance.policies.offload.drop import reference_stride
from appliance.runtime.sessions.adapting import QUALITY, accuracy_of
from appliance.runtime.sessions.batches import PlannedBatch
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.zoo import Rung

HORIZON_MS = 1000.0
GRACE = 0.1
VALID_NS = 1_000 * NS_PER_MS
SHIFT_SLACK = 0.75
"""Frames by which a capture may lie beside its place before the shift is another one: jitter is no shift."""


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


def problem_of(
    served: Sequence[LiveSession],
    waiting: Sequence[LiveSession],
    rungs: Sequence[Rung],
    scale: Scale,
    shifts: Mapping[str, Shift],
    now_ns: int,
    share: float,
    decode_ms: float = 0.0,
    busy_until_ns: int = 0,
    previous: Sequence[Batch] = (),
) -> OffloadInput:
    """The problem of a pool. Sessions whose promise is out of reach on their link, whatever is sent, are left out.

    A frame has arrived when it is decoded.
    """
    tables = {rung.name: {batch: ms / share for batch, ms in rung.usual_ms.items()} for rung in rungs}
    best = max(rungs, key=lambda rung: (rung.accuracy, rung.name))
    kept = {live.id for live in (*served, *waiting)}
    clients = {
        live.id: _client(live, rungs, best, tables, scale, shifts.get(live.id), decode_ms)
        for live in (*served, *waiting)
    }
    return OffloadInput(
        fps=scale.fps,
        now_ms=scale.ms(now_ns),
        horizon_ms=HORIZON_MS,
        inference_ms=tables[best.name],
        clients=tuple(clients[live.id] for live in served if clients[live.id].accuracy_slo >= 0.0),
        waiting=tuple(clients[live.id] for live in waiting if clients[live.id].accuracy_slo >= 0.0),
        busy_until_ms=max(0.0, scale.ms(busy_until_ns)),
        grace=GRACE,
        previous=tuple(
            Batch(one.start_ms, one.variant, tuple(request for request in one.requests if request[0] in kept))
            for one in previous
            if any(request[0] in kept for request in one.requests)
        ),
    )


def dedicated_stride(live: LiveSession, best: Rung, fps: float, decode_ms: float) -> float:
    """Mean age in frames of what a box would show that serves nobody else, over the same link."""
    up_ms = decode_ms + live.head_delay_ms
    up_ms += live.link.transfer_ms(best.frame_bytes(live.bytes_per_pixel, live.body_bytes))
    one = best.usual_ms.get(1) or best.usual_ms[min(best.usual_ms)]
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
        found.append(PlannedBatch(start_ns, run_ns, int(GRACE * run_ns), members, takes_ns))
    return found


def loads_of(plan: OffloadPlan, members: Mapping[str, LiveSession], rungs: Mapping[str, Rung], best: str) -> float:
    """Share of one worker that a plan takes."""
    total = 0.0
    for one in plan.clients:
        rung, live = rungs[one.variant or best], members[one.name]
        batch = max((size for size in rung.usual_ms if size <= one.batch), default=min(rung.usual_ms))
        live.expected_run_ms = rung.usual_ms[batch]
        live.load = live.session.fps / max(1, one.interval) * rung.usual_ms[batch] / batch / 1000.0
        total += live.load
    return min(1.0, total)


def _told(served: Served, live: LiveSession, rung: Rung, scale: Scale, shift: Shift | None, now_ns: int) -> SessionPlan:
    numbers: tuple[int, ...] = ()
    wait = 0.0
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
        interval=max(1, served.interval),
        frames=numbers,
        wait_ms=wait,
        valid_until_ns=now_ns + VALID_NS,
        accuracy=accuracy_of(rung),
        expected_drop=served.expected_drop,
    )


def _client(
    live: LiveSession,
    rungs: Sequence[Rung],
    best: Rung,
    tables: Mapping[str, Mapping[int, float]],
    scale: Scale,
    shift: Shift | None,
    decode_ms: float,
) -> Client:
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    phase_ms = 0.0 if shift is None else shift.phase_ms
    uplinks = {
        rung.name: phase_ms
        + decode_ms
        + live.head_delay_ms
        + live.link.transfer_ms(rung.frame_bytes(live.bytes_per_pixel, live.body_bytes))
        for rung in rungs
    }
    allowed = promise.drop_max
    if promise.reference is Reference.FRESH:
        one = tables[best.name].get(1) or tables[best.name][min(tables[best.name])]
        stride = reference_stride(uplinks[best.name] + live.down_ms, one, scale.fps)
        allowed -= live.drop_base + live.drop_rate * stride
    arrivals = (
        () if shift is None else tuple((n - shift.frames, scale.ms(done) + decode_ms) for n, _, done in live.arrivals)
    )
    last = arrivals[-1] if arrivals else None
    result = None if shift is None or live.last_result is None else live.last_result
    if result is not None and last is not None and result[0] - (0 if shift is None else shift.frames) > last[0]:
        result = None
    return Client(
        name=live.id,
        drop_rate=live.drop_rate,
        accuracy_slo=allowed,
        uplink_ms=uplinks[best.name],
        downlink_ms=live.down_ms,
        last_frame=None if last is None else last[0],
        last_arrival_ms=None if last is None else last[1],
        last_result_frame=None if result is None or shift is None else result[0] - shift.frames,
        last_result_ms=None if result is None else scale.ms(result[2]) + live.down_ms,
        arrivals=tuple(one for one in arrivals if one[0] >= 0),
        variants=tuple(
            Variant(rung.name, max(0.0, best.accuracy - rung.accuracy) / 100.0, uplinks[rung.name], tables[rung.name])
            for rung in rungs
        )
        if len(rungs) > 1
        else (),
    )
