"""A device with a camera: streams the frames of a clip through the SDK, and reports each answer and what the box makes
of its promise. Run in the process of a device (`appliance.demo.device`).
"""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import cv2
import numpy as np

from appliance.client.device import Box, Device, Latency, Shown
from appliance.client.errors import UnexpectedAnswer
from appliance.clock import NS_PER_S, Clock, pause_s
from appliance.demo.fleet import WAIT_S, DeviceOrder, report, report_failure
from appliance.demo.recognised import in_words
from appliance.domain.errors import ApplianceError, ModelUnavailable, UnknownApplication
from appliance.domain.session import FrameEnd

SLO_MS = 500.0
TOLD_NS = NS_PER_S
"""How often the box is asked what it has kept."""
ENDS = (FrameEnd.LATE, FrameEnd.DROPPED, FrameEnd.LOST)


class Clip:
    """One device and its clip."""

    def __init__(self, order: DeviceOrder, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        self._promise = Latency(SLO_MS, order.rate_per_s)
        self._of_frame: int | None = None
        self._failed = dict.fromkeys(ENDS, 0)

    def run(self) -> None:
        """For ever; a session that ends is begun anew."""
        frames = self._frames()
        while True:
            device = self._joined()
            try:
                self._stream(device, frames)
            finally:
                device.leave()

    def _joined(self) -> Device:
        order = self._order
        while True:
            device = Device(
                Box(order.url, order.key),
                order.application,
                fps=order.rate_per_s,
                promise=self._promise,
                name=order.application,
                wait=True,
                clock=self._clock,
            )
            try:
                device.join()
            except (UnknownApplication, ModelUnavailable):
                pause_s(WAIT_S)  # it is being imported
            except (ApplianceError, UnexpectedAnswer, OSError) as error:
                report_failure(error, self._clock)
            else:
                return device

    def _frames(self) -> Iterator[np.ndarray]:
        for path in cycle(self._order.inputs):
            frame = cv2.imread(path)
            assert frame is not None, path
            yield frame

    def _stream(self, device: Device, frames: Iterator[np.ndarray]) -> None:
        """Until the session has ended."""
        self._of_frame, self._failed = None, dict.fromkeys(ENDS, 0)
        period_ns = int(NS_PER_S / self._order.rate_per_s)
        due_ns, told_ns = self._clock.now_ns(), 0
        while device.error is None and device.state != "ended":
            self._tell(device, device.see(next(frames)))
            now_ns = self._clock.now_ns()
            if now_ns - told_ns >= TOLD_NS:
                told_ns = now_ns
                self._tell_session(device)
            due_ns = max(due_ns + period_ns, now_ns)
            pause_s((due_ns - now_ns) / NS_PER_S)

    def _tell(self, device: Device, shown: Shown) -> None:
        """A new result, and frames that have none."""
        now_ns = self._clock.now_ns()
        if shown.answer is not None and shown.of_frame != self._of_frame:
            self._of_frame = shown.of_frame
            answer: Any = shown.answer
            report(
                kind="answer",
                at_ns=now_ns,
                latency_ms=device.latencies_ms[-1],
                variant=answer["variant"],
                accuracy=answer["accuracy"],
                is_warm=answer["warm"],
                recognised=in_words(self._order.task, answer),
            )
        for end in ENDS:
            for _ in range(device.counts.ends[end] - self._failed[end]):
                report(kind="failure", at_ns=now_ns, reason=f"a frame was {end.value}")
            self._failed[end] = device.counts.ends[end]

    def _tell_session(self, device: Device) -> None:
        """What the box has kept of its promise; what it does not tell now, it tells the next time."""
        try:
            said = device.box_says()
        except (ApplianceError, UnexpectedAnswer, OSError):
            return
        report(
            kind="session",
            promised=f"{self._promise.rate_rps:.3g}/s within {SLO_MS:.0f} ms",
            state=said["state"],
            windows=said["windows"],
            kept=said["kept"],
            captured=device.counts.captured,
            sent=device.counts.sent,
            in_time=device.counts.ends[FrameEnd.ANSWERED],
        )
