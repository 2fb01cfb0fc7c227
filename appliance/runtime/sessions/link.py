"""What is known of one device's link: how long a frame of so many bytes takes to arrive.

The clock of a frame starts with its head and ends with its body (JF-06); a body that follows another one on its heels
counts from the end of that. The size over the time alone is 3-7 times too low for small frames on quick links, so the
time is fitted over the size where frames of several sizes have come; else it is all bytes over all times. A body of one
packet says how long any frame takes, and nothing of the rate, nor does one that takes hardly longer than to look at it.
"""

from collections import deque
from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.policies.sending.spread import TransferMargin
from appliance.policies.sending.transfer import MEASURED_BYTES_MIN

RECENT_NS = NS_PER_S
"""Transfers that count: the past second ..."""
RECENT_MIN = 4
"""... and as many of those before as make this ..."""
OLD_NS = 10 * NS_PER_S
"""... unless they are older than this: they speak of another link."""
SAMPLES_MAX = 16
SPREAD_MIN = 1.5
"""The largest of the frames over the smallest, for a fit over sizes."""
APART_MIN = 1.2
"""Of two frames, for the slope between them; they differ by as much as can be measured, too."""
SHORT_MS = 0.5
"""What takes less has come before the box looked for it, or about as long as that takes: it is not measured."""
BPS_MIN, BPS_MAX = 1e3, 1e10
PRIOR_BPS = 10e6
"""Of a link that nothing is known of."""


class Transfer(NamedTuple):
    """A body that came whole: its bytes, the time that it took, and when that was."""

    body_bytes: int
    ms: float
    done_ns: int


class LinkEstimate:
    """The uplink of one device. All instants are the caller's."""

    def __init__(self, prior_bps: float | None = None, rtt_ms: float = 0.0) -> None:
        self.rtt_ms = rtt_ms
        """Of a small message and its answer; 0: not known."""
        self._prior_bps = min(BPS_MAX, max(BPS_MIN, prior_bps or PRIOR_BPS))
        self._transfers: deque[Transfer] = deque(maxlen=SAMPLES_MAX)
        """Of at least `MEASURED_BYTES_MIN`."""
        self._small_ms: deque[float] = deque(maxlen=SAMPLES_MAX)
        """What smaller bodies took."""
        self._done_ns = 0
        """When the last body had come, of whatever size."""
        self._begun: dict[int, tuple[int, int]] = {}
        """Frame → when its head came, and the bytes that it says will follow (0: it does not say)."""
        self._fit: tuple[float, float] | None = None
        """Milliseconds that any frame takes, and those for each byte; None: to be computed."""
        self._margin = TransferMargin()

    def begin(self, frame: int, body_bytes: int | None, now_ns: int) -> None:
        """A head has come, its body follows."""
        self._begun[frame] = now_ns, body_bytes or 0

    def end(self, frame: int, body_bytes: int, now_ns: int) -> float:
        """The body is complete; returns the milliseconds that it took by itself."""
        begun_ns, _ = self._begun.pop(frame, (now_ns, 0))
        begun_ns = max(begun_ns, min(self._done_ns, now_ns))
        took_ms = (now_ns - begun_ns) / NS_PER_MS
        if body_bytes > 0:
            self._done_ns = now_ns
            self._learn(body_bytes, took_ms, now_ns)
        return took_ms

    def _learn(self, body_bytes: int, took_ms: float, now_ns: int) -> None:
        if body_bytes < MEASURED_BYTES_MIN:
            self._small_ms.append(took_ms)
        else:
            fixed_ms, by_byte_ms = self._fitted()
            if self._transfers and by_byte_ms * body_bytes >= SHORT_MS:
                self._margin.observe(took_ms - fixed_ms, by_byte_ms * body_bytes)
            self._transfers.append(Transfer(body_bytes, took_ms, now_ns))
        self._fit = None

    def broken(self, frame: int) -> None:
        """Its body will not come."""
        self._begun.pop(frame, None)

    def reset(self) -> None:
        """The line was broken: what is under way is lost, and what comes next may come over another link."""
        self._begun.clear()

    def forget(self) -> None:
        """Nothing has come for so long that what came speaks of another link."""
        self._transfers.clear()
        self._small_ms.clear()
        self._fit = None
        self._margin = TransferMargin()

    def expect(self, bps: float) -> None:
        """What the device takes it for; counts until transfers were seen."""
        if BPS_MIN <= bps <= BPS_MAX:
            self._prior_bps = bps
            self._fit = None

    @property
    def last_ns(self) -> int | None:
        """When the last body had come that was large enough to be measured."""
        return self._transfers[-1].done_ns if self._transfers else None

    @property
    def fixed_ms(self) -> float:
        """What a frame takes however small it is, from head to body."""
        return self._fitted()[0]

    @property
    def bandwidth_bps(self) -> float:
        """Bits in a second, beside `fixed_ms`."""
        return 8000.0 / self._fitted()[1]

    @property
    def margin(self) -> float:
        """What bytes take at most of what is expected of them, as a factor; the device counts with the same."""
        return self._margin.factor

    def transfer_ms(self, body_bytes: float, now_ns: int | None = None) -> float:
        """Of a frame of so many bytes. With `now_ns`, one that is under way for longer than it should shows that the
        link has got worse since."""
        fixed, by_byte = self._fitted()
        usually = expected = fixed + by_byte * body_bytes
        if now_ns is None:
            return expected
        for begun_ns, bytes_ in self._begun.values():
            usual = fixed + by_byte * (bytes_ or body_bytes)
            elapsed = (now_ns - begun_ns) / NS_PER_MS
            if elapsed <= usual:
                continue
            is_measured = (bytes_ or body_bytes) >= MEASURED_BYTES_MIN and usual >= SHORT_MS
            expected = max(expected, usually * elapsed / usual if is_measured else usually + elapsed - usual)
        return expected

    def _fitted(self) -> tuple[float, float]:
        if self._fit is None:
            self._fit = _fit(_recent(self._transfers), self._small_ms, self._prior_bps)
        return self._fit


def _recent(transfers: deque[Transfer]) -> list[Transfer]:
    """Those that count, oldest first."""
    if not transfers:
        return []
    last_ns = transfers[-1].done_ns
    kept = [
        one
        for at, one in enumerate(reversed(transfers))
        if last_ns - one.done_ns <= RECENT_NS or (at < RECENT_MIN and last_ns - one.done_ns <= OLD_NS)
    ]
    return kept[::-1]


def _fit(transfers: list[Transfer], small_ms: Collection[float], prior_bps: float) -> tuple[float, float]:
    """Milliseconds for any frame, and for each byte."""
    quickest = 8000.0 / BPS_MAX
    if not transfers:
        return median(small_ms) if small_ms else 0.0, 8000.0 / prior_bps
    sizes = [one.body_bytes for one in transfers]
    if len(transfers) >= RECENT_MIN and max(sizes) >= SPREAD_MIN * min(sizes):
        slopes = [
            (b.ms - a.ms) / (b.body_bytes - a.body_bytes)
            for at, a in enumerate(transfers)
            for b in transfers[at + 1 :]
            if _are_apart(a.body_bytes, b.body_bytes)
        ]
        slope = median(slopes) if slopes else 0.0
        fixed = median(one.ms - slope * one.body_bytes for one in transfers)
        if slope > quickest and fixed >= 0.0:
            return fixed, slope
    return 0.0, 8000.0 / min(BPS_MAX, max(BPS_MIN, _mean_bps(transfers)))


def _are_apart(first: int, second: int) -> bool:
    least, most = min(first, second), max(first, second)
    return most >= APART_MIN * least and most - least >= MEASURED_BYTES_MIN


def _mean_bps(transfers: Sequence[Transfer]) -> float:
    """All bits over all times. Of frames of one size that is the harmonic mean of their rates (JF-06)."""
    measured = [one for one in transfers if one.ms >= SHORT_MS]
    if 2 * len(measured) < len(transfers):  # quicker than can be measured: what took longer, something else held up
        measured = [one._replace(ms=max(one.ms, SHORT_MS)) for one in transfers]
    return 8000.0 * sum(one.body_bytes for one in measured) / sum(one.ms for one in measured)
