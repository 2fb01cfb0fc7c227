"""A device: sends one application's real inputs over HTTP at a steady rate, and reports each answer.

Run as a process of its own (`python -m appliance.demo.device`) by the fleet. Like a camera it never queues: what it
cannot send in time it drops. It ends when its standard input does.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from appliance.client import Client, UnexpectedAnswer
from appliance.clock import NS_PER_MS, NS_PER_S, Clock, SystemClock, pause_s
from appliance.demo.fleet import DeviceOrder
from appliance.demo.frame_device import FrameDevice
from appliance.demo.recognised import Nearest, in_words
from appliance.demo.reporting import report
from appliance.domain.errors import ApplianceError, LimitReached, ModelUnavailable, Unavailable, UnknownApplication
from appliance.terminal.media import content_type_of
from appliance.wire.predict import PredictShape

WAIT_S = 0.5
"""Between tries while the application has no variant yet, and after a broken connection."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One input on its way."""

    path: Path
    sequence_id: str | None = None
    is_first: bool = False
    is_last: bool = False


def main() -> None:
    """Read the orders, leave when standard input ends, send until then."""
    facts = json.loads(sys.stdin.readline())
    order = DeviceOrder(**{**facts, "inputs": tuple(facts["inputs"])})
    threading.Thread(target=_leave_with_the_demo, daemon=True).start()
    if order.is_clip:
        from appliance.demo.clip import Clip  # OpenCV: most devices do without

        Clip(order, SystemClock()).run()
    with Client(order.url, order.key) as client:
        if order.is_pipeline:
            FrameDevice(order, client, SystemClock()).run(moments(order.rate_per_s, SystemClock()))
        else:
            Device(order, client, SystemClock()).run()


def _leave_with_the_demo() -> None:
    sys.stdin.read()
    os._exit(0)  # a request may be under way in the main thread; nobody waits for its answer any more


def shots(order: DeviceOrder) -> Iterator[Shot]:
    """The inputs in turn, for ever; each round of a stream is a sequence of its own."""
    count, rounds = len(order.inputs), 0
    while True:
        sequence_id = f"demo-{os.getpid()}-{rounds}" if order.is_stream else None
        for at, path in enumerate(order.inputs):
            yield Shot(Path(path), sequence_id, at == 0 and order.is_stream, at == count - 1 and order.is_stream)
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

    def __init__(self, order: DeviceOrder, client: Client, clock: Clock) -> None:
        self._order = order
        self._client = client
        self._clock = clock
        self._nearest = Nearest()
        self._has_begun = False

    def run(self) -> None:
        """Send for ever; an input is sent again only while the application does not serve yet."""
        for _, shot in zip(moments(self._order.rate_per_s, self._clock), shots(self._order), strict=False):
            while not self._send(shot):
                pause_s(WAIT_S)

    def _send(self, shot: Shot) -> bool:
        """One request; False: the application has no variant yet, ask again."""
        body = shot.path.read_bytes()
        begin_ns = self._clock.now_ns()
        try:
            answer = self._client.predict(
                self._order.application,
                body,
                content_type=content_type_of(shot.path),
                sequence_id=shot.sequence_id,
                sequence_start=shot.is_first,
                sequence_end=shot.is_last,
            )
        except (UnknownApplication, ModelUnavailable) as error:
            if not self._has_begun:
                return False
            self._fail(error)
        except (ApplianceError, UnexpectedAnswer, httpx.TransportError) as error:
            self._fail(error)
        else:
            self._has_begun = True
            self._report_answer(shot, body, begin_ns, answer)
        return True

    def _report_answer(self, shot: Shot, body: bytes, begin_ns: int, answer: PredictShape) -> None:
        now_ns = self._clock.now_ns()
        report(
            kind="answer",
            at_ns=now_ns,
            latency_ms=(now_ns - begin_ns) / NS_PER_MS,
            variant=answer.variant,
            accuracy=answer.accuracy,
            is_warm=answer.warm,
            recognised=self._words(shot, body, answer),
        )

    def _words(self, shot: Shot, body: bytes, answer: PredictShape) -> str:
        said = answer.task_fields
        if "embedding" not in said:
            return in_words(self._order.task, said)
        name = body.decode() if shot.path.suffix == ".txt" else shot.path.stem
        return self._nearest.in_words(name.strip(), said["embedding"])

    def _fail(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        report(kind="failure", at_ns=self._clock.now_ns(), reason=reason)
        pause_s((error.retry_after_s if isinstance(error, LimitReached | Unavailable) else None) or WAIT_S)


if __name__ == "__main__":
    main()
