"""What a device sends of the frames that its camera gives: which, at which size and quality, and what it skips.

At most `CREDIT` frames are unacknowledged, the newest waits for the next free place and takes the place of an older one
that waited. A frame is made so small that it arrives in time even if its bytes take as much longer than the link's
estimate says as one of a hundred did of late; one that cannot is skipped. So frames queue nowhere, neither here nor in
the socket. Every frame is counted once: captured = sent + skipped (+ the one that waits), sent = answered + late +
dropped + lost (+ under way).

Measured on a halved LTE trace with an outage (15 a second, 40 kB, answers within 150 ms of capture): everything sent
0.00 in time, two unacknowledged 0.54, sizes fitted to half the link's estimate 0.87.

One thread at a time. Times are milliseconds as floats, on one clock of the caller's.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from appliance.domain.session import DropCause, FrameEnd
from appliance.policies.sending.pictures import PictureBytes, rungs
from appliance.policies.sending.schedule import Orders, Schedule
from appliance.policies.sending.spread import TransferMargin
from appliance.policies.sending.transfer import Line, TransferEstimate, Unacknowledged

CREDIT = 2
LARGER_MARGIN = 1.2
"""What the bytes of a larger frame that is tried now and then may take against what is expected, and it is still in
time."""
LARGER_EVERY_MS = 1_000.0
LARGER = 1.6
"""Bytes of a larger frame against what would have been sent; sizes that are all the same say little of the link."""
BUSY_MAX = 0.8
"""Share of the time from one frame to the next that the link may be busy with the first."""
SILENCE_MS = 300.0
"""A frame on its way that is that much overdue: the line may be dead, and another one is tried beside it. No measure of
the link does better: over the LTE, WiFi and synthetic traces, with and without outages, as many frames are in time with
50 ms as with a second, for it only has to pass before the link is back; below 150 ms lines that live are given up.
"""
TRY_MS = 500.0
"""Without a frame on the link for so long, the smallest picture is sent although it should be late: nobody learns of a
link that has become better from frames that are not sent. Doubled with each such try that fails."""
TRY_MS_MAX = 4_000.0
SERVICE_MS = 40.0
"""From the acknowledgement to the result, before there was one."""
SERVICE_MEMORY = 0.15
DEVIATIONS = 2.0
"""Of the service time beyond its mean that are allowed for."""


_TOO_LATE = (DropCause.HOPELESS, DropCause.EXPIRED)
"""Why the box drops a frame by its head where that has come too late."""


class Skip(StrEnum):
    """Why a frame was not sent."""

    NOT_PLANNED = "not planned"
    """The plan asks for others."""
    NEWER = "newer"
    """It waited for a place, and a newer one came."""
    LATE = "late"
    """Not even the smallest picture of it would arrive in time."""
    NOT_SERVED = "not served"
    """The session waits, or has no line to the box."""


@dataclass(slots=True)
class Counts:
    """Frames so far."""

    captured: int = 0
    sent: int = 0
    skips: Counter[Skip] = field(default_factory=Counter)
    ends: Counter[FrameEnd] = field(default_factory=Counter)

    @property
    def skipped(self) -> int:
        return self.skips.total()


@dataclass(frozen=True, slots=True)
class Send:
    """A frame to be encoded so and sent now."""

    frame: int
    captured_ms: float
    size_px: int
    quality: int


@dataclass(slots=True)
class _Sent:
    captured_ms: float
    sent_ms: float
    size_bytes: int
    begins_ms: float
    """When its bytes were to go, the latency counted."""
    takes_ms: float
    """What they were expected to take."""
    acknowledged_ms: float | None = None
    is_of_old_line: bool = False
    """The line has broken since: when its result comes says nothing of how long the box takes."""


class Sender:
    """The frames of one session. `aspect`: shorter side of the camera's picture / longer side."""

    def __init__(self, *, fps: float, deadline_ms: float | None, side_px: int = 640, aspect: float = 0.75) -> None:
        """`deadline_ms`: from a capture to its answer; None: no answer is too late, as long as the link keeps up."""
        self._frame_ms = 1000.0 / fps
        self._deadline_ms = deadline_ms
        self._side_px = side_px
        self._aspect = aspect
        self._schedule = Schedule()
        self._waiting: tuple[int, float] | None = None
        self._in_hand: Send | None = None
        self._sent: dict[int, _Sent] = {}
        self._service = [SERVICE_MS, SERVICE_MS / 4.0]
        self._larger_ms = 0.0
        self._last_sent_ms = -TRY_MS
        self._is_unknown = False
        self._is_too_late = False
        """The head of the frame that ended last came too late."""
        self._try_ms = TRY_MS
        self._newest_sent: int | None = None
        self.credit = CREDIT
        """Frames that may be unacknowledged."""
        self.orders: Orders | None = None
        """What the box asks for; None: it asks for nothing, and nothing is sent."""
        self.transfer = TransferEstimate()
        self.margin = TransferMargin()
        self.pictures = PictureBytes()
        self.counts = Counts()

    def resized(self, width: int, height: int) -> None:
        """The camera's pictures have this size, in pixels."""
        self._side_px, self._aspect = max(width, height), min(width, height) / max(width, height)

    # -- what comes ----------------------------------------------------------------------------------------------------

    def captured(self, frame: int, captured_ms: float) -> bool:
        """The camera gave a frame; numbers rise. Whether it now waits to be sent."""
        self.counts.captured += 1
        if self.orders is None:
            self.counts.skips[Skip.NOT_SERVED] += 1
            return False
        if not self._schedule.is_due(frame, self.orders):
            self.counts.skips[Skip.NOT_PLANNED] += 1
            return False
        if self._waiting is not None:
            self.counts.skips[Skip.NEWER] += 1
        self._waiting = frame, captured_ms
        return True

    def acknowledged(self, frame: int, now_ms: float) -> None:
        """Its bytes have arrived."""
        sent = self._sent.get(frame)
        if sent is not None and sent.acknowledged_ms is None:
            sent.acknowledged_ms = now_ms
            self._is_unknown = self._is_too_late = False
            self.margin.observe(now_ms - sent.begins_ms, sent.takes_ms)
            self.transfer.observe(sent.size_bytes, sent.sent_ms, now_ms)

    def answered(self, frame: int, now_ms: float) -> FrameEnd | None:
        """Its result came: in time or late. None: it had ended before."""
        sent = self._sent.get(frame)
        if sent is None:
            return None
        self.acknowledged(frame, now_ms)  # a result without its acknowledgement before it stands for both
        assert sent.acknowledged_ms is not None
        if not sent.is_of_old_line:
            self._observe_service(now_ms - sent.acknowledged_ms)
        is_late = self._deadline_ms is not None and now_ms > sent.captured_ms + self._deadline_ms
        self._try_ms = self._try_ms if is_late else TRY_MS
        return self.ended(frame, FrameEnd.LATE if is_late else FrameEnd.ANSWERED)

    def ended(self, frame: int, end: FrameEnd, cause: str | None = None) -> FrameEnd | None:
        """It ended so, by the box's word. None: it had ended before.

        Of one whose head came too late nothing is acknowledged, so nothing would ever be learnt of a link that has
        become slower: after two in a row how it is now nobody knows, as after an interruption.
        """
        sent = self._sent.pop(frame, None)
        if sent is None:
            return None
        if sent.acknowledged_ms is None and cause in _TOO_LATE:
            self._is_unknown = self._is_unknown or self._is_too_late
            self._is_too_late = True
        self.counts.ends[end] += 1
        return end

    def interrupted(self) -> None:
        """The line is gone, and with it what was not acknowledged; results of the rest may come over a new one.

        On that one the smallest picture goes first, alone: how the link is now nobody knows. Where that is lost, too,
        the next try waits longer each time.
        """
        lost = [frame for frame, sent in self._sent.items() if sent.acknowledged_ms is None]
        for frame in lost:
            self.ended(frame, FrameEnd.LOST)
        if lost and self._is_unknown:
            self._try_ms = min(TRY_MS_MAX, 2.0 * self._try_ms)
        self._is_unknown = self._is_unknown or bool(lost)
        for sent in self._sent.values():
            sent.is_of_old_line = True
        self.transfer.interrupted()

    def closed(self) -> None:
        """Nothing will come any more."""
        for frame in list(self._sent):
            self.ended(frame, FrameEnd.LOST)
        if self._waiting is not None:
            self._waiting = None
            self.counts.skips[Skip.NOT_SERVED] += 1
        if self._in_hand is not None:
            self.given_up()

    # -- what to do ----------------------------------------------------------------------------------------------------

    def next(self, now_ms: float) -> Send | None:
        """What to encode now. Then it is `sent`, or `given_up`; until then nothing else is to be done."""
        unacknowledged = self.unacknowledged()
        if self._waiting is None or self._in_hand is not None or self.orders is None:
            return None
        if len(unacknowledged) >= self.credit:
            return None
        (frame, captured_ms), self._waiting = self._waiting, None
        line = self.transfer.line(now_ms, unacknowledged)
        fitted = self._fitted(self.orders, line, captured_ms, now_ms, is_alone=not unacknowledged)
        if fitted is None:
            self.counts.skips[Skip.LATE] += 1
            return None
        self._in_hand = Send(frame, captured_ms, *fitted)
        return self._in_hand

    def smaller(self, size_bytes: int, now_ms: float) -> Send | None:
        """What is in hand has so many bytes: None where it may be sent, else how to encode it in place of that.

        Learns what such pictures take.
        """
        assert self._in_hand is not None and self.orders is not None
        send = self._in_hand
        self.pictures.observe(self.pixels(send.size_px), send.quality, size_bytes)
        line = self.transfer.line(now_ms, self.unacknowledged())
        if self._deadline_ms is None:
            return None
        left_ms = send.captured_ms + self._deadline_ms - self.service_ms
        margin = min(LARGER_MARGIN, self.margin.factor)
        if line.acknowledged_ms(size_bytes, margin) <= left_ms:
            return None
        for side, quality in rungs(send.size_px, self.orders.quality):
            is_smaller = side < send.size_px or quality < send.quality
            expected = self.pictures.expected(self.pixels(side), quality)
            if is_smaller and line.acknowledged_ms(expected, margin) <= left_ms:
                self._in_hand = Send(send.frame, send.captured_ms, side, quality)
                return self._in_hand
        return None

    def sent(self, size_bytes: int, now_ms: float) -> None:
        """What was in hand is on its way."""
        assert self._in_hand is not None
        self._newest_sent, self._last_sent_ms = self._in_hand.frame, now_ms
        line = self.transfer.line(now_ms, self.unacknowledged())
        begins_ms, takes_ms = line.free_ms + line.latency_ms, size_bytes * line.ms_a_byte
        self._sent[self._in_hand.frame] = _Sent(self._in_hand.captured_ms, now_ms, size_bytes, begins_ms, takes_ms)
        self._in_hand = None
        self.counts.sent += 1

    def given_up(self) -> None:
        """What was in hand cannot be encoded, or its line is gone."""
        assert self._in_hand is not None
        self._in_hand = None
        self.counts.skips[Skip.LATE] += 1

    def is_silent(self, now_ms: float) -> bool:
        """Whether the line looks dead: a frame on its way is overdue by far."""
        unacknowledged = self.unacknowledged()
        if not unacknowledged:
            return False
        size, sent_ms = unacknowledged[0]
        return now_ms - sent_ms > SILENCE_MS + 2.0 * (self.transfer.latency_ms + size * self.transfer.ms_a_byte)

    def unacknowledged(self) -> list[Unacknowledged]:
        """What is on its way to the box, the oldest first."""
        return [
            Unacknowledged(sent.size_bytes, sent.sent_ms)
            for sent in self._sent.values()
            if sent.acknowledged_ms is None
        ]

    @property
    def service_ms(self) -> float:
        """From an acknowledgement to its result, with what is allowed for."""
        return self._service[0] + DEVIATIONS * self._service[1]

    @property
    def under_way(self) -> int:
        """Frames sent that have not ended."""
        return len(self._sent)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of ours is on its way to the box."""
        return not self.unacknowledged()

    def is_under_way(self, frame: int) -> bool:
        """Whether a frame was sent and has not ended."""
        return frame in self._sent

    @property
    def known_to(self) -> int | None:
        """The frame up to which the end of all that was sent is known; None: nothing was sent."""
        return min(self._sent) - 1 if self._sent else self._newest_sent

    def pixels(self, size_px: int) -> float:
        """Of a picture whose longer side is that long; the camera's own where that is smaller."""
        side = min(size_px, self._side_px)
        return side * side * self._aspect

    # -- inside --------------------------------------------------------------------------------------------------------

    def _fitted(
        self, orders: Orders, line: Line, captured_ms: float, now_ms: float, is_alone: bool
    ) -> tuple[int, int] | None:
        """The largest picture that is in time by the margin; now and then a larger one, or one in spite of all."""
        tries = list(rungs(min(orders.size_px, self._side_px), orders.quality))
        smallest = tries[-1]
        if self._is_unknown:
            return smallest if is_alone and now_ms - self._last_sent_ms >= self._try_ms / 2.0 else None
        in_time = hardly = math.inf
        larger = 0.0
        if self._deadline_ms is not None:
            left_ms = captured_ms + self._deadline_ms - self.service_ms - line.latency_ms - line.free_ms
            margin = self.margin.factor
            in_time = left_ms / line.ms_a_byte / margin
            hardly = max(in_time, left_ms / line.ms_a_byte / LARGER_MARGIN)
            larger = min(LARGER * in_time, hardly)
        unhurried = orders.interval * self._frame_ms * BUSY_MAX / line.ms_a_byte
        may_be_larger = is_alone and now_ms - self._larger_ms >= LARGER_EVERY_MS
        for side, quality in tries:
            expected = self.pictures.expected(self.pixels(side), quality)
            if expected <= min(in_time, unhurried):
                return side, quality
            if may_be_larger and expected <= larger:
                self._larger_ms = now_ms
                return side, quality
        # More than the link carries at this rate, so that newer frames will take the place of others; or less sure to
        # be in time than larger ones have to be, for nothing else can be sent.
        if self.pictures.expected(self.pixels(smallest[0]), smallest[1]) <= hardly:
            return smallest
        if is_alone and now_ms - self._last_sent_ms >= self._try_ms:
            self._try_ms = min(TRY_MS_MAX, 2.0 * self._try_ms)
            return smallest
        return None

    def _observe_service(self, took_ms: float) -> None:
        mean, deviation = self._service
        error = took_ms - mean
        self._service = [mean + SERVICE_MEMORY * error, deviation + SERVICE_MEMORY * (abs(error) - deviation)]
