"""A device: sends the real inputs of an application or a pipeline over HTTP at a steady rate, and reports each answer.

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
from appliance.demo.fleet import WAIT_S, DeviceOrder, report, report_failure
from appliance.demo.recognised import Nearest, cut_out, frame_in_words, in_words
from appliance.domain.errors import (
    ApplianceError,
    ModelUnavailable,
    PipelineNotPossible,
    UnknownApplication,
    UnknownClient,
)
from appliance.terminal.media import content_type_of


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
        Device(order, client, SystemClock()).run()


def _leave_with_the_demo() -> None:
    sys.stdin.read()
    os._exit(0)  # a request may be under way in the main thread; its answer is of no use any more


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
        self._id: str | None = None
        """As which client of the pipeline it sends."""

    def run(self) -> None:
        """Send for ever; an input is sent again only while the application does not serve yet."""
        for _, shot in zip(moments(self._order.rate_per_s, self._clock), shots(self._order), strict=False):
            while not self._is_sent(shot):
                pause_s(WAIT_S)

    def _is_sent(self, shot: Shot) -> bool:
        """One request; False: the application has no variant yet, ask again."""
        body = shot.path.read_bytes()
        begin_ns = self._clock.now_ns()
        try:
            facts = (self._frame if self._order.is_pipeline else self._answer)(shot, body)
        except UnknownClient:
            self._id = None  # the box was silent, or this device: it joins anew with the next frame
        except (ApplianceError, UnexpectedAnswer, httpx.TransportError) as error:
            if not self._has_begun and isinstance(error, UnknownApplication | ModelUnavailable):
                return False
            report_failure(error, self._clock)
        else:
            self._has_begun = True
            now_ns = self._clock.now_ns()
            report(kind="answer", at_ns=now_ns, latency_ms=(now_ns - begin_ns) / NS_PER_MS, **facts)
        return True

    def _answer(self, shot: Shot, body: bytes) -> dict[str, object]:
        answer = self._client.predict(
            self._order.application,
            body,
            content_type=content_type_of(shot.path),
            sequence_id=shot.sequence_id,
            sequence_start=shot.is_first,
            sequence_end=shot.is_last,
        )
        said = answer.task_fields
        if "embedding" in said:
            name = body.decode() if shot.path.suffix == ".txt" else shot.path.stem
            words = self._nearest.in_words(name.strip(), said["embedding"])
        else:
            words = in_words(self._order.task, said)
        return {"variant": answer.variant, "accuracy": answer.accuracy, "is_warm": answer.warm, "recognised": words}

    def _frame(self, shot: Shot, body: bytes) -> dict[str, object]:
        kind = content_type_of(shot.path)
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


if __name__ == "__main__":
    main()
