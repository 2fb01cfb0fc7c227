"""A device: sends real inputs to an application or a pipeline at a steady rate, and reports each answer.

The fleet runs each device in a thread. Clips go through a session of the SDK, with a promise; every other input is a
request over HTTP. A device does not queue: it drops inputs that it cannot send in time.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import cv2
import httpx

from appliance.client import Client, UnexpectedAnswer
from appliance.client.device import Box, Device, Latency
from appliance.clock import NS_PER_MS, NS_PER_S, Clock, SystemClock, pause_s
from appliance.demo.figures import Report, Seen, Streamed
from appliance.demo.recognised import Nearest, cut, cut_out, frame_in_words, in_words
from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import (
    ApplianceError,
    LimitReached,
    ModelUnavailable,
    PipelineNotPossible,
    Unavailable,
    UnknownApplication,
    UnknownClient,
)
from appliance.domain.session import FrameEnd
from appliance.terminal.media import content_type_of

CLIPS = (TaskKind.OBJECT_DETECTION, TaskKind.FACE_DETECTION)
"""Tasks whose inputs are frames of a clip, streamed by a session."""
WAIT_S = 0.5
"""Between tries while an application has no variant yet, and after an error."""
SLO_MS = 500.0
"""Promised latency of a clip."""
TOLD_NS = NS_PER_S
"""Time between two questions how the promise was kept."""
ENDS = (FrameEnd.LATE, FrameEnd.DROPPED, FrameEnd.LOST)

Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """Orders of a device: the application or pipeline to ask, with which inputs and how often."""

    url: str
    key: str
    """A device key of its own; it opens this one application."""
    application: str
    task: str
    """Empty: it is a pipeline."""
    rate_per_s: float
    inputs: tuple[Path, ...]
    """Files, sent in turn."""


def run(order: DeviceOrder, tell: Tell) -> None:
    """Send for ever."""
    if order.task in CLIPS:
        Clip(order, SystemClock(), tell).run()
    with Client(order.url, order.key) as client:
        Sender(order, client, SystemClock(), tell).run()


def report_failure(error: Exception, tell: Tell) -> None:
    """Tell of it, and wait as long as the box asks for."""
    tell(str(error) or type(error).__name__)
    pause_s((error.retry_after_s if isinstance(error, LimitReached | Unavailable) else None) or WAIT_S)


def shots(order: DeviceOrder) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The inputs in turn, for ever, and where each is in its sequence; each round of sound is a sequence of its own."""
    rounds = 0
    while True:
        for path in order.inputs:
            place = {
                "sequence_id": f"demo-{os.getpid()}-{rounds}",
                "sequence_start": path == order.inputs[0],
                "sequence_end": path == order.inputs[-1],
            }
            yield path, place if order.task == TaskKind.VOICE_ACTIVITY else {}
        rounds += 1


def moments(rate_per_s: float, clock: Clock, pause: Callable[[float], None] = pause_s) -> Iterator[None]:
    """Returns at each moment to send; moments that passed meanwhile are dropped."""
    period_ns = int(NS_PER_S / rate_per_s)
    due_ns = clock.now_ns()
    while True:
        pause(max(0, due_ns - clock.now_ns()) / NS_PER_S)
        yield
        passed = max(0, clock.now_ns() - due_ns) // period_ns
        due_ns += period_ns * (passed + 1)


class Sender:
    """A device with one thread, one connection, one request at a time."""

    def __init__(self, order: DeviceOrder, client: Client, clock: Clock, tell: Tell) -> None:
        self._order = order
        self._client = client
        self._clock = clock
        self._tell = tell
        self._nearest = Nearest()
        self._has_begun = False
        self._id: str | None = None
        """As which client of the pipeline it sends."""

    def run(self) -> None:
        """Send for ever; an input is sent again only while the application does not serve yet."""
        for _, shot in zip(moments(self._order.rate_per_s, self._clock), shots(self._order), strict=False):
            while not self._is_sent(*shot):
                pause_s(WAIT_S)

    def _is_sent(self, path: Path, place: dict[str, Any]) -> bool:
        """One request; False: the application has no variant yet, ask again."""
        body = path.read_bytes()
        begin_ns = self._clock.now_ns()
        try:
            facts = self._answer(path, body, place) if self._order.task else self._frame(path, body)
        except UnknownClient:
            self._id = None  # the box was silent, or this device: it joins anew with the next frame
        except (ApplianceError, UnexpectedAnswer, httpx.TransportError) as error:
            if not self._has_begun and isinstance(error, UnknownApplication | ModelUnavailable):
                return False
            report_failure(error, self._tell)
        else:
            self._has_begun = True
            now_ns = self._clock.now_ns()
            self._tell(Seen(at_ns=now_ns, latency_ms=(now_ns - begin_ns) / NS_PER_MS, **facts))
        return True

    def _answer(self, path: Path, body: bytes, place: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.predict(self._order.application, body, content_type=content_type_of(path), **place)
        said = answer.task_fields
        if "embedding" in said:
            name = f"“{cut(body.decode(), 32)}”" if path.suffix == ".txt" else f"picture {int(path.stem) + 1}"
            words = self._nearest.in_words(name, said["embedding"])
        else:
            words = in_words(self._order.task, said)
        return {"variant": answer.variant, "accuracy": answer.accuracy, "is_warm": answer.warm, "recognised": words}

    def _frame(self, path: Path, body: bytes) -> dict[str, Any]:
        kind = content_type_of(path)
        frame = self._client.run_pipeline(self._order.application, body, content_type=kind, client=self._joined())
        facts = {"is_in_time": frame.in_time, "items": cut_out(frame.items), "cost_s": frame.cost.seconds}
        return facts | {"recognised": frame_in_words(frame.items)}

    def _joined(self) -> str | None:
        """None: the box cannot hold the SLO for one more, and the frame goes unplanned."""
        if self._id is None:
            try:
                self._id = self._client.join_pipeline(self._order.application, self._order.rate_per_s).id
            except PipelineNotPossible:
                return None
        return self._id


class Clip:
    """A device with a camera: streams the frames of a clip, and reports what the box makes of its promise, too."""

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
                    self._tell(f"a frame was {end.value}")
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
