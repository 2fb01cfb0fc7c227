"""A device: sends the real inputs of an application or a pipeline over HTTP at a steady rate, and reports each answer.

Run as a process of its own by the fleet. Like a camera it never queues: what it cannot send in time it drops. It ends
with the demo.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from appliance.client import Client, UnexpectedAnswer
from appliance.clock import NS_PER_MS, NS_PER_S, Clock, SystemClock, pause_s
from appliance.demo.figures import Failed, Report, Seen
from appliance.demo.recognised import Nearest, cut_out, frame_in_words, in_words
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
from appliance.terminal.media import content_type_of

CLIPS = (TaskKind.OBJECT_DETECTION, TaskKind.FACE_DETECTION)
"""Tasks whose inputs are frames of a clip, streamed by a session."""
WAIT_S = 0.5
"""Between tries while an application has no variant yet, and after an error."""

Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """What one device shall do with an application, or with a pipeline of that name."""

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
        from appliance.demo.clip import Clip  # OpenCV: most devices do without

        Clip(order, SystemClock(), tell).run()
    with Client(order.url, order.key) as client:
        Device(order, client, SystemClock(), tell).run()


def report_failure(error: Exception, tell: Tell) -> None:
    """Tell of it, and wait as long as the box asks for."""
    tell(Failed(str(error) or type(error).__name__))
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


class Device:
    """One device; one thread, one connection, one request at a time."""

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
            name = body.decode() if path.suffix == ".txt" else path.stem
            words = self._nearest.in_words(name.strip(), said["embedding"])
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
