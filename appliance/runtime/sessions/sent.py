"""How many bytes the pictures of one device have, by the size that its plan asks for.

Most devices scale their pictures to that size: bytes then grow with its pixels. Others send their camera's pictures as
they are, whatever is asked: those have as many bytes for every variant. What is larger than the plan asked for shows
which of the two a device is.
"""

from appliance.clock import NS_PER_S
from appliance.policies.sending.pictures import SIZE_EXPONENT, quality_share

QUALITY = 75
"""Of JPEG, that plans ask for; a device sends less where its link does not carry as much."""
BYTES_PER_PIXEL = 0.13
"""Of a JPEG of quality 75 with a longer side of 640 pixels, by the square of that, before a device has sent any."""
PICTURE_FACTOR: float = BYTES_PER_PIXEL * 640.0 ** (2.0 - 2.0 * SIZE_EXPONENT)
"""The same over its pixels to the power by which bytes grow."""
BODY_BYTES = 40_000.0
"""Of what has no size in pixels, before a device has sent any."""
ON_ITS_WAY_NS = NS_PER_S
"""So long after another plan pictures may come that were made for the one before."""
SMOOTHING = 0.2
"""Weight of the newest picture."""


class SentPictures:
    """Of one device. All instants are the caller's."""

    def __init__(self) -> None:
        self.is_as_asked = True
        """Whether the device scales its pictures to the size of its plan, as far as is known."""
        self.body_bytes: float | None = None
        """Of a picture at the quality of plans; None: none has come."""
        self._factor: float | None = None  # bytes over pixels to the power by which they grow
        self._asked: int | None = None
        self._before: tuple[int, int] = (0, 0)  # the largest size that was asked for before, and until when it counts
        self._is_planned = False

    def ask(self, size: int | None, now_ns: int) -> None:
        """The device has a plan: pictures of that longer side in pixels; None: of any."""
        if size != self._asked:
            self._before = self._largest_asked(now_ns), now_ns + ON_ITS_WAY_NS
        self._asked, self._is_planned = size, True

    def observe(self, body_bytes: int, quality: int | None, size: int | None, now_ns: int) -> None:
        """A picture of so many bytes, or the head of one. `quality` None: that of plans; `size`, its longer side, None:
        nothing says it, so it is what was asked for of a device that scales its pictures."""
        usual_bytes = bytes_at_quality(body_bytes, quality)
        self.body_bytes = _smoothed(self.body_bytes, usual_bytes)
        if self._is_planned and self._asked is None:
            self.is_as_asked = False
        elif self._is_planned and size is not None:
            self.is_as_asked = size <= self._largest_asked(now_ns)
        side = size or (self._asked if self.is_as_asked else None)
        if side:
            self._factor = _smoothed(self._factor, usual_bytes / raised_pixels(side))

    def expected_bytes(self, size: int | None, quality: int = QUALITY) -> float:
        """Of a picture where a plan asks for such a one; `size` None: for any."""
        if size is None or not self.is_as_asked:
            return self.body_bytes or BODY_BYTES
        return usual_bytes(size) * self.share_of_usual * quality_share(quality) / quality_share(QUALITY)

    @property
    def share_of_usual(self) -> float:
        """Bytes of its pictures against those that others' of the same size are taken to have."""
        return 1.0 if self._factor is None else self._factor / PICTURE_FACTOR

    def _largest_asked(self, now_ns: int) -> int:
        """That what comes now may have been made for."""
        size, until_ns = self._before
        return max(self._asked or 0, size if now_ns < until_ns else 0)


def usual_bytes(size: int) -> float:
    """Of a picture with that longer side in pixels, before a device has sent any."""
    return PICTURE_FACTOR * raised_pixels(size)


def raised_pixels(size: int) -> float:
    """Pixels of a square picture to the power by which its bytes grow: as devices expect it of theirs."""
    raised: float = float(size) ** (2.0 * SIZE_EXPONENT)
    return raised


def bytes_at_quality(body_bytes: float, quality: int | None) -> float:
    """What a picture of so many bytes and of a quality (None: that of plans) would take at the quality of plans."""
    return body_bytes if quality is None else body_bytes * quality_share(QUALITY) / quality_share(quality)


def _smoothed(before: float | None, value: float) -> float:
    return value if before is None else before + SMOOTHING * (value - before)
