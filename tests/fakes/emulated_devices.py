"""Devices of a scenario with the SDK's own sockets: cameras whose pictures are nothing but bytes, and tracking that is
looked up. What becomes of their promises is tallied as the lab does it.
"""

import heapq
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from appliance.client.device import Accuracy, Box, Device, Latency, Promise
from appliance.client.device.device import _Kept as Kept
from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock, pause_s
from appliance.domain.session import FrameEnd, Notice, NoticeKind
from appliance.lab.drop_rates import Rates
from appliance.lab.outcome import Answer, Kind
from appliance.lab.sessions.camera import Camera
from appliance.lab.sessions.ladder import Ladder
from appliance.lab.sessions.losses import Losses
from appliance.lab.sessions.tally import AccuracyTally, LatencyTally
from appliance.wire.stream import ResultMessage
from tests.fakes.emulated_box import BODY
from tests.fakes.network.network import Place

LOOK_S = 0.1
LINGER_S = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One device of a scenario. Times are nanoseconds after its start."""

    name: str
    entry: str
    application: str
    promise: Promise
    fps: float
    weight: float
    slo_ms: float | None
    link: dict[str, float]
    uplink_bps: Callable[[int], float]
    """Of the emulated link, at a time."""
    arrives_ns: int
    leaves_ns: int
    camera: Camera
    rates: Rates
    ladder: Ladder
    accuracies: dict[str, float]
    reference_stride: float
    """Frames; of the box that a drop is measured against."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame of an emulated camera; stands in for an array."""

    number: int
    side_px: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.side_px, self.side_px

    def copy(self) -> "Picture":
        return self


class Emulated(Device):
    """A device whose camera is a `Camera` of the lab."""

    def __init__(self, box: Box, plan: Plan, start_ns: int) -> None:
        super().__init__(
            box,
            plan.application,
            fps=plan.fps,
            promise=plan.promise,
            name=plan.name,
            weight=plan.weight,
            wait=True,
            encode=self._bytes,
        )
        self._order["link"] = plan.link
        self.plan = plan
        self.start_ns = start_ns
        self.tally: LatencyTally | AccuracyTally = (
            AccuracyTally(plan.promise.drop_max, plan.reference_stride, plan.uplink_bps)
            if isinstance(plan.promise, Accuracy)
            else LatencyTally()
        )
        self.answers: list[Answer] = []
        self.removals = 0
        self._sides: dict[int, int] = {}
        self._ends: list[tuple[ResultMessage, FrameEnd | None, float]] = []
        self._losses = Losses(plan.accuracies, {})
        self._is_sent: set[int] = set()
        self._captured_ms: dict[int, float] = {}
        """Of frames that were sent and have not ended."""
        self._is_due = False

    def _bytes(self, frame: Picture, size_px: int, quality: int) -> bytes:
        self._sides[frame.number] = size_px
        return BODY.ljust(self.plan.camera.bytes_of(size_px, quality))

    def capture(self, now_ns: int) -> None:
        """The next frame of its camera; `now_ns` on the clock."""
        number = self._frame + 1
        shown = self.see(Picture(number, self.plan.camera.side_px))
        since_ns = now_ns - self.start_ns
        self._take_ends()
        if isinstance(self.tally, AccuracyTally):
            self.tally.displayed(shown.frame, since_ns, self._rate(now_ns))
        elif self._is_due:
            self.tally.captured(shown.frame, since_ns)

    def looked_at(self, now_ns: int) -> bool:
        """Whether it is served, told to its tally."""
        is_served = self.state == "served"
        self.tally.served(now_ns - self.start_ns, is_served=is_served)
        return is_served

    def close(self, now_ns: int) -> None:
        """It captures nothing more, and the answers are there; what has none was lost."""
        self._take_ends()
        for frame in list(self._captured_ms):
            lost = ResultMessage(frame=frame, outcome=FrameEnd.LOST)
            self._ended(lost, FrameEnd.LOST, now_ns / NS_PER_MS)
        self.tally.served(now_ns - self.start_ns, is_served=False)
        self.tally.close()

    def _rate(self, now_ns: int) -> float:
        return self.plan.rates.at(now_ns - self.start_ns - self.plan.arrives_ns)

    def _offer(self, number: int, frame: Any, now_ms: float) -> bool:
        self._is_due = super()._offer(number, frame, now_ms)
        return self._is_due

    def _track(self, number: int, frame: Any, came: Sequence[Kept], is_due: bool) -> None:
        """Looked up: what a result of this age loses is known."""
        now_ns = self._clock.now_ns()
        for one in came:
            if self._kept is not None:
                stride, before = one.frame - self._kept.frame, self._kept.variant
                drop = self._losses.between(before, one.variant, self._rate(now_ns), stride)
                self._drops.observe(before, one.variant, stride, drop)
            self._before, self._kept = self._kept, one
        if came:
            self._report_drops(came[-1].variant)

    def _take_ends(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, []
        for result, end, now_ms in ends:
            self._ended(result, end, now_ms)

    def _ended(self, result: ResultMessage, end: FrameEnd | None, now_ms: float) -> None:
        captured_ms = self._captured_ms.pop(result.frame, None)
        if end is None or captured_ms is None:
            return
        plan, variant = self.plan, None if result.answer is None else str(result.answer["variant"])
        accuracy = None if variant is None else plan.accuracies[variant]
        latency_ns = int((now_ms - captured_ms) * NS_PER_MS)
        is_late = plan.slo_ms is not None and latency_ns > plan.slo_ms * NS_PER_MS
        kind: Kind = "warm" if variant is not None else "failed" if end is FrameEnd.LOST else "dropped"
        self.answers.append(
            Answer(
                plan.application,
                kind,
                int(captured_ms * NS_PER_MS) - self.start_ns,
                latency_ns,
                variant,
                accuracy,
                is_late or end is FrameEnd.LATE,
                plan.slo_ms is not None,
                result.cause or "",
                latency_ns,
            )
        )
        if variant is not None and isinstance(self.tally, AccuracyTally):
            self.tally.result(result.frame, self._losses.of(variant))
        elif variant is not None and not is_late and isinstance(self.tally, LatencyTally):
            self.tally.answered(result.frame, plan.ladder.accuracy(variant, self._sides.get(result.frame, 1 << 20)))

    # -- the line's thread, with the lock held -------------------------------------------------------------------------

    def reports(self) -> dict[str, Any]:
        for frame, sent in self._sender._sent.items():
            if frame not in self._is_sent:
                self._is_sent.add(frame)
                self._captured_ms[frame] = sent.captured_ms
                if isinstance(self.tally, AccuracyTally):
                    self.tally.sent(frame)
        return super().reports()

    def answered(self, result: ResultMessage, picture: bytes | None, end: FrameEnd | None, now_ms: float) -> None:
        self._ends.append((result, end, now_ms))
        super().answered(result, picture, end, now_ms)

    def noticed(self, notice: Notice) -> None:  # type: ignore[override]  # the message of the same name
        self.removals += notice.kind is NoticeKind.REMOVED
        super().noticed(notice)  # type: ignore[arg-type]


class Cameras:
    """Every device of a scenario, in one thread for all cameras; each has a thread for its sockets, in its network."""

    def __init__(self, plans: Sequence[Plan], places: dict[str, Place] | None, boxes: dict[str, Box]) -> None:
        """`places` None: all are in this network."""
        self._plans = plans
        self._places = places
        self._boxes = boxes
        self._clock = SystemClock()
        self._joining: list[threading.Thread] = []
        self.devices: dict[str, Emulated] = {}
        """Those that have joined, by name."""
        self.served: dict[str, float] = {plan.entry: 0.0 for plan in plans}
        """By entry: devices served, summed over looks."""
        self.looks = 0
        self.late_ms: list[float] = []
        """How late frames were captured: what the machine could not do in time."""

    def run(self, start_ns: int, end_ns: int) -> None:
        """Until the last has left; instants on the clock."""
        clock, tie = self._clock, count()
        due: list[tuple[int, int, Plan]] = [(start_ns + plan.arrives_ns, next(tie), plan) for plan in self._plans]
        heapq.heapify(due)
        begun: dict[str, int] = {}
        look_ns = start_ns
        while due:
            at_ns, _, plan = heapq.heappop(due)
            while (now_ns := clock.now_ns()) < at_ns or now_ns >= look_ns:
                if now_ns >= look_ns:
                    look_ns += int(LOOK_S * NS_PER_S)
                    self._look(now_ns, end_ns)
                else:
                    pause_s(min(at_ns, look_ns) / NS_PER_S - now_ns / NS_PER_S)
            device = self.devices.get(plan.name)
            if plan.name not in begun:
                begun[plan.name] = now_ns
                self._join(plan, start_ns)
            elif device is not None:
                self.late_ms.append((now_ns - at_ns) / NS_PER_MS)
                device.capture(now_ns)
            following_ns = at_ns + int(NS_PER_S / plan.fps)
            if following_ns < start_ns + plan.leaves_ns:
                heapq.heappush(due, (max(following_ns, now_ns - int(NS_PER_S)), next(tie), plan))
        for thread in self._joining:
            thread.join()
        pause_s(LINGER_S)
        for device in self.devices.values():
            device.close(min(clock.now_ns(), end_ns))
        leaving = [threading.Thread(target=device.leave) for device in self.devices.values()]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()

    def _join(self, plan: Plan, start_ns: int) -> None:
        def join() -> None:
            device = Emulated(self._boxes[plan.name], plan, start_ns)
            device.join()
            self.devices[plan.name] = device

        def inside() -> None:
            if self._places is None:
                join()
            else:
                self._places[plan.name].run(join)

        thread = threading.Thread(target=inside, name=f"join {plan.name}")
        thread.start()
        self._joining.append(thread)

    def _look(self, now_ns: int, end_ns: int) -> None:
        if now_ns >= end_ns:
            return
        self.looks += 1
        for device in list(self.devices.values()):
            self.served[device.plan.entry] += device.looked_at(now_ns)


__all__ = ["Accuracy", "Box", "Cameras", "Emulated", "Latency", "Plan"]
