"""A device with a camera: streams the frames of a clip through the SDK, and reports each answer and what the box makes
of its promise. Run in the process of a device (`appliance.demo.device`).
"""

from itertools import cycle
from typing import Any

import cv2

from appliance.client.device import Box, Device, Latency
from appliance.client.errors import UnexpectedAnswer
from appliance.clock import NS_PER_S, Clock, pause_s
from appliance.demo.device import WAIT_S, DeviceOrder, Tell, moments, report_failure
from appliance.demo.figures import Failed, Seen, Streamed
from appliance.demo.recognised import in_words
from appliance.domain.errors import ApplianceError, ModelUnavailable, UnknownApplication
from appliance.domain.session import FrameEnd

SLO_MS = 500.0
TOLD_NS = NS_PER_S
"""How often the box is asked what it has kept."""
ENDS = (FrameEnd.LATE, FrameEnd.DROPPED, FrameEnd.LOST)


class Clip:
    """One device and its clip."""

    def __init__(self, order: DeviceOrder, clock: Clock, tell: Tell) -> None:
        self._order = order
        self._clock = clock
        self._tell = tell
        self._promise = Latency(SLO_MS, order.rate_per_s)
        self._frames = cycle(order.inputs)

    def run(self) -> None:
        """For ever; a session that ends is begun anew."""
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
                with device:
                    self._stream(device)
            except (UnknownApplication, ModelUnavailable):
                pause_s(WAIT_S)  # it is being imported
            except (ApplianceError, UnexpectedAnswer, OSError) as error:
                report_failure(error, self._tell)

    def _stream(self, device: Device) -> None:
        """Until the session has ended: new results, frames that have none, and now and then the promise."""
        of_frame, failed, told_ns = None, dict.fromkeys(ENDS, 0), 0
        for _ in moments(self._order.rate_per_s, self._clock):
            if device.error is not None or device.state == "ended":
                return
            frame = cv2.imread(str(next(self._frames)))
            assert frame is not None
            shown, now_ns = device.see(frame), self._clock.now_ns()
            if shown.answer is not None and shown.of_frame != of_frame:
                of_frame = shown.of_frame
                self._tell(self._seen(shown.answer, device.latencies_ms[-1]))
            for end in ENDS:
                for _ in range(device.counts.ends[end] - failed[end]):
                    self._tell(Failed(f"a frame was {end.value}"))
                failed[end] = device.counts.ends[end]
            if now_ns - told_ns >= TOLD_NS:
                told_ns = now_ns
                self._tell_session(device)

    def _seen(self, answer: Any, latency_ms: float) -> Seen:
        return Seen(
            at_ns=self._clock.now_ns(),
            latency_ms=latency_ms,
            variant=answer["variant"],
            accuracy=answer["accuracy"],
            is_warm=answer["warm"],
            recognised=in_words(self._order.task, answer),
        )

    def _tell_session(self, device: Device) -> None:
        """What the box has kept of its promise; what it does not tell now, it tells the next time."""
        try:
            said = device.box_says()
        except (ApplianceError, UnexpectedAnswer, OSError):
            return
        streamed = Streamed(
            application=self._order.application,
            promised=f"{self._promise.rate_rps:.3g}/s within {SLO_MS:.0f} ms",
            state=said["state"],
            windows=said["windows"],
            kept=said["kept"],
            captured=device.counts.captured,
            sent=device.counts.sent,
            in_time=device.counts.ends[FrameEnd.ANSWERED],
        )
        self._tell(streamed)
