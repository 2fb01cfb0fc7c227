"""A device behind a link, in virtual time: what becomes of each frame that its camera gives, by a way of sending."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Protocol

from appliance.domain.session import DropCause, FrameEnd
from appliance.policies.sending.schedule import Orders
from appliance.policies.sending.sender import Send, Sender
from tests.instances.sending.links import Link

LOOK_MS = 100.0
DIAL_MS = 250.0
FULL_PX = 640


class Way(Protocol):
    """How a device sends."""

    def captured(self, frame: int, captured_ms: float) -> bool: ...

    def next(self, now_ms: float) -> Send | None: ...

    def smaller(self, size_bytes: int, now_ms: float) -> Send | None: ...

    def sent(self, size_bytes: int, now_ms: float) -> None: ...

    def acknowledged(self, frame: int, now_ms: float) -> None: ...

    def answered(self, frame: int, now_ms: float) -> FrameEnd | None: ...

    def ended(self, frame: int, end: FrameEnd, cause: str | None = None) -> FrameEnd | None: ...

    def is_silent(self, now_ms: float) -> bool: ...

    def interrupted(self) -> None: ...


@dataclass
class Fixed:
    """Every frame as it is, the newest first, `credit` of them unacknowledged; no connection is given up."""

    credit: int
    deadline_ms: float
    keeps_all: bool = False
    """Frames wait for their turn, in place of giving way to the newest."""
    waiting: list[tuple[int, float]] = field(default_factory=list)
    under_way: dict[int, float] = field(default_factory=dict)
    unacknowledged: set[int] = field(default_factory=set)
    in_hand: Send | None = None

    def captured(self, frame: int, captured_ms: float) -> bool:
        if not self.keeps_all:
            self.waiting.clear()
        self.waiting.append((frame, captured_ms))
        return True

    def next(self, now_ms: float) -> Send | None:
        if not self.waiting or len(self.unacknowledged) >= self.credit:
            return None
        frame, captured_ms = self.waiting.pop(0)
        self.in_hand = Send(frame, captured_ms, FULL_PX, 75)
        return self.in_hand

    def smaller(self, size_bytes: int, now_ms: float) -> Send | None:
        return None

    def sent(self, size_bytes: int, now_ms: float) -> None:
        assert self.in_hand is not None
        self.under_way[self.in_hand.frame] = self.in_hand.captured_ms
        self.unacknowledged.add(self.in_hand.frame)

    def acknowledged(self, frame: int, now_ms: float) -> None:
        self.unacknowledged.discard(frame)

    def answered(self, frame: int, now_ms: float) -> FrameEnd | None:
        captured_ms = self.under_way.pop(frame, None)
        if captured_ms is None:
            return None
        return FrameEnd.LATE if now_ms > captured_ms + self.deadline_ms else FrameEnd.ANSWERED

    def ended(self, frame: int, end: FrameEnd, cause: str | None = None) -> FrameEnd | None:
        raise NotImplementedError

    def is_silent(self, now_ms: float) -> bool:
        return False

    def interrupted(self) -> None:
        raise NotImplementedError


@dataclass
class Played:
    """What became of the frames."""

    captured: int = 0
    sent: int = 0
    in_time: int = 0
    late: int = 0
    """Answered too late, or never."""
    latencies_ms: list[float] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)
    reconnects: int = 0


@dataclass
class Camera:
    """What pictures take: their content changes, and what JPEG makes of a size is not exactly the sender's model."""

    random: Random
    full_bytes: float = 40_000.0
    exponent: float = 0.76
    noise: float = 0.06
    content: float = 1.0

    def bytes_of(self, send: Send) -> int:
        quality = {75: 1.0}.get(send.quality, 0.66)
        self.content = min(1.3, max(0.75, self.content * self.random.lognormvariate(0.0, self.noise / 3.0)))
        shrunk = (send.size_px / FULL_PX) ** (2.0 * self.exponent)
        return int(self.full_bytes * shrunk * quality * self.content * self.random.lognormvariate(0.0, self.noise))


class _Play:
    """One run; an event is a method with a fact."""

    def __init__(
        self, way: Way, link: Link, camera: Camera, random: Random, service_ms: float, drops_ms: float | None
    ) -> None:
        """`drops_ms`: from a capture on the box drops its frame where it could not be answered by then."""
        self.played = Played()
        self._way = way
        self._link = link
        self._camera = camera
        self._random = random
        self._service_ms = service_ms
        self._drops_ms = drops_ms
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = count()
        self._connection = 0
        self._is_dialling = False
        self._free_ms = 0.0
        self._captured_ms: dict[int, float] = {}
        self.now = 0.0

    def at(self, when: float, what: Callable[[Any], None], fact: Any = None) -> None:
        heappush(self._events, (when, next(self._order), what, fact))

    def run(self) -> Played:
        while self._events:
            self.now, _, what, fact = heappop(self._events)
            what(fact)
            while (send := self._way.next(self.now)) is not None:
                self._send(send)
        self.played.late = self.played.sent - self.played.in_time
        return self.played

    def capture(self, frame: int) -> None:
        self.played.captured += 1
        self._captured_ms[frame] = self.now
        self._way.captured(frame, self.now)

    def look(self, _: None) -> None:
        if not self._is_dialling and self._way.is_silent(self.now):
            self._is_dialling = True
            self._dial(None)

    def _dial(self, _: None) -> None:
        if not self._way.is_silent(self.now):
            self._is_dialling = False
        elif self._link.is_down(self.now):
            self.at(self.now + DIAL_MS, self._dial)
        else:
            self.at(self.now + 2.0 * self._link.round_trip_ms, self._open)

    def _open(self, _: None) -> None:
        self._is_dialling = False
        if self._way.is_silent(self.now):
            self._connection += 1
            self.played.reconnects += 1
            self._link.fresh(self.now)
            self._way.interrupted()

    def _send(self, send: Send) -> None:
        head_ms = max(self.now, self._link.free_ms) + self._link.one_way_ms()
        size = self._camera.bytes_of(send)
        if (again := self._way.smaller(size, self.now)) is not None:
            size = self._camera.bytes_of(again)
            self._way.smaller(size, self.now)
        self._way.sent(size, self.now)
        self.played.sent += 1
        self.played.sent_bytes.append(size)
        arrived = self._link.sent(size, self.now)
        fact = send.frame, self._connection
        if self._drops_ms is not None and head_ms + self._service_ms > send.captured_ms + self._drops_ms:
            self.at(head_ms + self._link.one_way_ms(), self._drop, fact)
            return
        self.at(arrived + self._link.one_way_ms(), self._acknowledge, fact)
        self._free_ms = max(self._free_ms, arrived) + self._service_ms * self._random.uniform(0.8, 1.3)
        self.at(self._free_ms + self._link.one_way_ms(), self._answer, fact)

    def _acknowledge(self, fact: tuple[int, int]) -> None:
        if fact[1] == self._connection:
            self._way.acknowledged(fact[0], self.now)

    def _drop(self, fact: tuple[int, int]) -> None:
        """Its head has come too late: it is answered so, and nothing is acknowledged."""
        if fact[1] == self._connection:
            self._way.ended(fact[0], FrameEnd.DROPPED, DropCause.HOPELESS)

    def _answer(self, fact: tuple[int, int]) -> None:
        end = self._way.answered(fact[0], self.now) if fact[1] == self._connection else None
        if end is not None:
            self.played.latencies_ms.append(self.now - self._captured_ms[fact[0]])
            self.played.in_time += end is FrameEnd.ANSWERED


def play(
    way: Way,
    link: Link,
    *,
    fps: float,
    seconds: float,
    deadline_ms: float,
    service_ms: float = 20.0,
    seed: int = 0,
    drops: bool = False,
) -> Played:
    """What becomes of the frames of so many seconds; until the last of them has ended. `drops`: the box answers heads
    that come too late."""
    run = _Play(way, link, Camera(Random(seed + 1)), Random(seed), service_ms, deadline_ms if drops else None)
    for frame in range(int(seconds * fps)):
        run.at(1000.0 * frame / fps, run.capture, frame)
    for look in range(int(seconds * 1000.0 / LOOK_MS)):
        run.at(look * LOOK_MS, run.look)
    return run.run()


def sender(fps: float, deadline_ms: float) -> Sender:
    """The device's own way, asked for every frame at full size."""
    made = Sender(fps=fps, deadline_ms=deadline_ms, side_px=FULL_PX)
    made.orders = Orders(size_px=FULL_PX, quality=75)
    return made
