"""A device: what its camera gives goes in, what to show now comes out, and the box is asked meanwhile.

    with Device(Box(url, key), "street", fps=15, promise=Latency(slo_ms=150, rate_rps=15)) as device:
        while True:
            draw(frame := camera.read(), device.see(frame).objects)

`see` never waits for the network: a thread of its own holds the sockets (`line.py`), decides what to send
(`policies/sending/`) and brings results; `see` moves the objects of the newest result on to the frame at hand.
With `pipeline="signs"` in the place of an application frames go through several networks; the objects are then those of
the first stage that finds some, and `answer` has the whole tree.
"""

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from appliance.client.device.answers import drop_between, drop_of, found_in
from appliance.client.device.encoding import Encode, Frame, encoded, kept
from appliance.client.device.line import Line
from appliance.client.device.opencv import has_opencv
from appliance.client.device.session import Box, Promise
from appliance.client.device.tracking.tracker import Found, Tracked, Tracker
from appliance.client.errors import UnexpectedAnswer
from appliance.clock import NS_PER_MS, Clock, SystemClock
from appliance.domain.accuracy import ACCURACY
from appliance.domain.session import FrameEnd, VariantDrop
from appliance.policies.sending.curves import DropCurves
from appliance.policies.sending.drop import Drop
from appliance.policies.sending.schedule import Orders
from appliance.policies.sending.sender import Counts, Sender
from appliance.wire.stream import HEAD_BYTES_MAX, Notice, PlanMessage, ResultMessage

KEPT_SHOWN = 64
"""Frames whose shown boxes are remembered until their fresh result comes."""
LATENCIES_KEPT = 4096
FRAMES_KEPT = 2
"""The one that waits to be sent, and the one that is being encoded."""
PLACES = 5
"""Of the shares that are reported: heads are small."""
CURVES_BYTES_MAX = HEAD_BYTES_MAX // 2
"""Of JSON that tells them by variant. The box breaks the stream off at a head that is too large."""
SERVED = "served"


@dataclass(frozen=True, slots=True)
class Shown:
    """What to show with a frame."""

    frame: int
    """Its number: frame intervals since the first one."""
    objects: tuple[Tracked, ...]
    """Where the objects of the newest result are now; none for tasks that find none."""
    answer: Mapping[str, Any] | None
    """The newest result as it came, for its frame `of_frame`; None before the first."""
    picture: bytes | None
    """Of a result that is a picture."""
    of_frame: int | None
    age_ms: float | None
    """From the capture of that frame to that of this one."""
    state: str
    """Of the session: `served`, `waiting`, `suspended` or `ended`."""


@dataclass(frozen=True, slots=True)
class _Came:
    """A result on its way from the line to `see`."""

    frame: int
    answer: Mapping[str, Any]
    picture: bytes | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was shown with a frame that was sent."""

    of_frame: int
    variant: str
    found: Found | None
    boxes: Any
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The newest result."""

    frame: int
    variant: str
    answer: Mapping[str, Any]
    picture: bytes | None
    found: Found | None


class Device:
    """One camera, one application or pipeline, one session. `see` from one thread at a time."""

    def __init__(
        self,
        box: Box,
        application: str | None = None,
        *,
        pipeline: str | None = None,
        fps: float,
        promise: Promise,
        name: str | None = None,
        weight: float = 1.0,
        wait: bool = False,
        clock: Clock | None = None,
        encode: Encode = encoded,
    ) -> None:
        """`pipeline`: in the place of an application; of it there is a promise of latency only. `wait`: where the
        promise is not possible now, wait until it is, in place of an error. `encode`: for devices that make JPEGs of
        frames in hardware.
        """
        if (application is None) == (pipeline is None):
            raise TypeError("a device names an application or a pipeline")
        target = {"pipeline": pipeline} if application is None else {"application": application}
        self._box = box
        self._fps = fps
        self._promise = promise
        self._order: dict[str, Any] = {**target, "fps": fps, "promise": promise.order(), "weight": weight}
        self._order |= {"wait": wait} | ({} if name is None else {"name": name})
        self._clock = clock or SystemClock()
        self._encode = encode
        self._lock = threading.Lock()
        self._sender = Sender(fps=fps, deadline_ms=getattr(promise, "slo_ms", None))
        self.line: Line | None = None
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._captured: OrderedDict[int, float] = OrderedDict()
        self._came: deque[_Came] = deque(maxlen=8)
        self._tracker = Tracker() if has_opencv() else None
        self._seen: OrderedDict[int, _Seen] = OrderedDict()
        self._kept: _Kept | None = None
        self._before: _Kept | None = None
        self._is_other = False
        self._drops = DropCurves()
        self._known: dict[str, Any] = {}
        """Its drop curves, as they are reported."""
        self._drop: Drop | None = None
        self._size: tuple[int, int] | None = None
        self._frame = -1
        self._began_ms: float | None = None
        self._stride_sum = 0.0
        self._strides = 0
        self.session: dict[str, Any] = {}
        """As the box answered when it began."""
        self.state = "waiting"
        self.notices: deque[Notice] = deque(maxlen=100)
        """What the box said of the session, the newest last."""
        self.error: Exception | None = None
        """Why there is no stream any more."""
        self.plans = 0
        """How many plans have come."""
        self.accuracies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        """Of the variants that answered, shares of 1, of the latest answers that say so."""
        self.accuracy_meaning = ACCURACY
        """What these are called, as the latest answer says: agreement with the original where there are no labels."""
        self.latencies_ms: deque[float] = deque(maxlen=LATENCIES_KEPT)
        """From capture to result, of the latest."""

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def join(self) -> None:
        """Ask for the session, and begin to stream. Raises: as `Box.begin`."""
        self.session = self._box.begin(self._order)
        self.state = str(self.session.get("state", self.state))
        self.line = Line(
            self._box,
            str(self.session["id"]),
            self._sender,
            self._lock,
            self._taken_frame,
            self,
            self._clock,
            self._encode,
        )
        self.line.start()

    def leave(self, *, is_told: bool = True) -> None:
        """End the stream and the session; the box forgets it, or has it end by itself where it cannot be reached.
        `is_told`: whether the box is asked to; one that does not answer is waited for.
        """
        from appliance.domain.errors import ApplianceError  # not before: client/errors.py

        if self.line is None:
            return
        self.line.stop()
        with self._lock:
            self._sender.closed()
        try:
            if is_told:
                self._box.end(str(self.session["id"]))
        except (OSError, ApplianceError, UnexpectedAnswer):
            pass  # it is gone, or it will find out
        self.state = "ended"

    # -- the camera's side ---------------------------------------------------------------------------------------------

    def see(self, frame: Frame) -> Shown:
        """The next frame; what to show with it. Takes the time of tracking and of a copy, and waits for nothing."""
        now_ms = self._clock.now_ns() / NS_PER_MS
        number = self._numbered(now_ms)
        self._captured[number] = now_ms
        while len(self._captured) > KEPT_SHOWN:
            self._captured.popitem(last=False)
        is_due = self._offer(number, frame, now_ms)
        came = self._taken()
        self._track(number, frame, came, is_due)
        if is_due and self._kept is not None:
            self._remember(number)
        if self._kept is not None:
            self._stride_sum += number - self._kept.frame
            self._strides += 1
        return self._shown(number, now_ms)

    def box_says(self) -> dict[str, Any]:
        """The session as the box has it, with its windows. Raises: as `Box.begin`."""
        return self._box.shown(str(self.session["id"]))

    @property
    def counts(self) -> Counts:
        """Frames so far; captured = sent + skipped, but for one that waits."""
        return self._sender.counts

    @property
    def under_way(self) -> int:
        """Frames that were sent and have not ended."""
        return self._sender.under_way

    @property
    def reconnects(self) -> int:
        """How often the line was made anew."""
        return max(0, (self.line.connects if self.line else 0) - 1)

    @property
    def stride_mean(self) -> float | None:
        """Mean age of what was shown, in frames; None before the first result."""
        return self._stride_sum / self._strides if self._strides else None

    @property
    def drop(self) -> Drop | None:
        """What tracking loses, of the newest variant; None where nobody knows yet."""
        return self._drop

    @property
    def drop_mean(self) -> float | None:
        """Mean drop of what was shown against fresh results, as this device estimates it, a share of 1."""
        stride = self.stride_mean
        return None if self._drop is None or stride is None else self._drop.at(stride)

    @property
    def uplink_mbps(self) -> float:
        """What the uplink is taken for."""
        return self._sender.transfer.mbps

    def _numbered(self, now_ms: float) -> int:
        """Frames are numbered by the clock, at the rate that the session was asked for: the box plans them ahead by it,
        and a camera that is a little slower would fall behind its own plan. What it leaves out has no frame.
        """
        if self._began_ms is None:
            self._began_ms = now_ms
        self._frame = max(self._frame + 1, round((now_ms - self._began_ms) * self._fps / 1000.0))
        return self._frame

    def _offer(self, number: int, frame: Frame, now_ms: float) -> bool:
        """Give a frame to the line, if it is to be sent."""
        size = None if isinstance(frame, bytes) else (frame.shape[1], frame.shape[0])
        with self._lock:
            if size is not None and size != self._size:
                self._size = size
                self._sender.resized(*size)
            is_due = self._sender.captured(number, now_ms)
            if is_due and self._sender.orders is not None:
                is_ours = self._encode is encoded  # others may want the whole frame
                self._frames[number] = kept(frame, self._sender.orders.size_px if is_ours else None)
                while len(self._frames) > FRAMES_KEPT:
                    self._frames.popitem(last=False)
        if is_due and self.line is not None:
            self.line.wake()
        return is_due

    def _taken(self) -> list[_Kept]:
        """The results that came since the last frame, in the order of their frames; older ones than shown are none."""
        with self._lock:
            came = list(self._came)
            self._came.clear()
        newest = -1 if self._kept is None else self._kept.frame
        width = None if self._size is None else self._size[0]
        results = []
        for one in sorted(came, key=lambda one: one.frame):
            if one.frame > newest:
                newest = one.frame
                variant = str(one.answer.get("variant", ""))
                results.append(_Kept(one.frame, variant, one.answer, one.picture, found_in(one.answer, width)))
        return results

    def _track(self, number: int, frame: Frame, came: Sequence[_Kept], is_due: bool) -> None:
        newest = came[-1] if came else None
        if self._tracker is not None and not isinstance(frame, bytes):
            found = None if newest is None else newest.found
            renewed = None if newest is None or found is None else (newest.frame, found)
            self._tracker.observe(number, frame, renewed, is_sent=is_due)
        for one in came:
            self._compare(one)
            self._before, self._kept = self._kept, one
        if self._tracker is not None and self._before is not None:
            self._tracker.forget(self._before.frame)

    def _remember(self, number: int) -> None:
        assert self._kept is not None
        boxes = None if self._tracker is None else self._tracker.boxes
        kept = self._kept
        self._seen[number] = _Seen(kept.frame, kept.variant, kept.found, boxes, kept.answer)
        while len(self._seen) > KEPT_SHOWN:
            self._seen.popitem(last=False)

    def _compare(self, fresh: _Kept) -> None:
        """What was shown for its frame, and of every other one also what the result before the last would have become,
        against a result: without different strides nobody could tell base from rate. Where another variant answers now,
        it shows what the results of the one before are behind its own.
        """
        drops = self._drops
        seen = self._seen.pop(fresh.frame, None)
        if seen is not None:
            stride = fresh.frame - seen.of_frame
            if fresh.found is None:
                drop = drop_between(seen.answer, fresh.answer)
                if drop is not None:
                    drops.observe(seen.variant, fresh.variant, stride, drop)
            elif seen.found is not None and seen.boxes is not None:
                drops.observe(seen.variant, fresh.variant, stride, drop_of(seen.boxes, seen.found, fresh.found))
        self._is_other = not self._is_other
        older = self._before if self._is_other else None
        if older is not None and older.found is not None and fresh.found is not None and self._tracker is not None:
            boxes = self._tracker.carried(older.found, older.frame, fresh.frame)
            if boxes is not None:
                stride = fresh.frame - older.frame
                drops.observe(older.variant, fresh.variant, stride, drop_of(boxes, older.found, fresh.found))
        self._report_drops(fresh.variant)

    def _report_drops(self, variant: str) -> None:
        """Have the box told what results of each variant lose with age; `variant` is the newest one's."""
        fitted, known = self._drops.fitted(variant), _told(self._drops.known())
        with self._lock:
            self._drop, self._known = fitted, known

    def _shown(self, number: int, now_ms: float) -> Shown:
        kept = self._kept
        if kept is None:
            return Shown(number, (), None, None, None, None, self.state)
        captured_ms = self._captured.get(kept.frame)
        age_ms = (number - kept.frame) * 1000.0 / self._fps if captured_ms is None else now_ms - captured_ms
        objects = () if kept.found is None or self._tracker is None else self._tracker.shown()
        return Shown(number, objects, kept.answer, kept.picture, kept.frame, age_ms, self.state)

    def _taken_frame(self, number: int) -> Frame | None:
        """To be encoded: it is kept here no longer, nor is any older one."""
        frame = self._frames.pop(number, None)
        for older in [older for older in self._frames if older < number]:
            del self._frames[older]
        return frame

    # -- the line's side: in its thread, with the lock held ------------------------------------------------------------

    def planned(self, plan: PlanMessage) -> None:
        """What to send from now on."""
        self.state = SERVED
        self.plans += 1
        frames = plan.frames or (() if plan.next is None else (plan.next,))
        self._sender.credit = plan.credit
        self._sender.orders = Orders(
            size_px=plan.size or Orders().size_px,
            quality=plan.quality,
            interval=float(plan.interval),
            frames=frozenset(frames),
        )

    def answered(self, result: ResultMessage, picture: bytes | None, end: FrameEnd | None, now_ms: float) -> None:
        """A frame has ended; with its answer where there is one."""
        captured_ms = self._captured.get(result.frame)
        if result.answer is None:
            return
        if end is not None and captured_ms is not None:
            self.latencies_ms.append(now_ms - captured_ms)
        if isinstance(accuracy := result.answer.get("accuracy"), float):
            self.accuracies.append(accuracy)
            self.accuracy_meaning = result.answer.get("accuracy_meaning") or ACCURACY
        self._came.append(_Came(result.frame, result.answer, picture))

    def noticed(self, notice: Notice) -> None:
        """The box says something of the session."""
        self.notices.append(notice)
        self.state = str(notice.state)
        if self.state != SERVED:
            self._sender.orders = None

    def refused(self, error: Exception) -> None:
        """There is no stream for this session any more: the box does not have it for us, or our own line failed."""
        self.error = error
        self.state = "ended"
        self._sender.orders = None

    def reports(self) -> dict[str, Any]:
        """What the box is told with whatever is sent."""
        counts, latency_ms = self._sender.counts, self._sender.transfer.latency_ms
        said: dict[str, Any] = {"captured": counts.captured, "skipped": counts.skipped}
        said |= {"rtt_ms": latency_ms, "downlink_ms": latency_ms / 2.0}
        if self._kept is not None:
            said["shown"] = self._kept.frame
        if self._drop is not None:
            said["drop_rate"] = self._drop.rate
        if self._known:
            said["drop_curves"] = self._known
        return said


def _told(known: Mapping[str, VariantDrop]) -> dict[str, Any]:
    """Curves as they are reported: as many gaps as there is room for once all rates are told, then no more rates."""
    told: dict[str, Any] = {}
    left = CURVES_BYTES_MAX
    for name, drop in known.items():
        rate = {"rate": round(drop.rate, PLACES), "gaps": {}}
        left -= _json_bytes({name: rate})
        if left < 0:
            return told
        told[name] = rate
    for name, curve in told.items():
        for of, gap in known[name].gaps.items():
            said = {of: round(gap, PLACES)}
            left -= _json_bytes(said)
            if left < 0:
                return told
            curve["gaps"] |= said
    return told


def _json_bytes(value: object) -> int:
    return len(json.dumps(value))
