"""How many bytes a picture will have as JPEG, by its size and quality: learnt from those that were encoded."""

from collections.abc import Iterator

SIZE_EXPONENT = 0.82
"""Bytes grow as this power of the pixels: smaller pictures have more detail a pixel (Jellyfish's traffic videos, 128 to
640 pixels: 10 to 144 kB)."""
QUALITY_SHARES = ((20, 0.38), (30, 0.48), (45, 0.63), (60, 0.77), (75, 1.0), (85, 1.4), (95, 2.7))
"""Quality → bytes against quality 75, of photographs; linear between."""
PRIOR_BYTES = 40_000.0
"""At 640 × 480 and quality 75, before anything was encoded."""
_PRIOR_PIXELS = 640 * 480
MEMORY = 0.3
"""Weight of the newest picture."""
SIDE_STEP = 32
"""Sizes are multiples of what networks halve five times."""
SIDE_MIN = 96
SIDE_SHARE_MIN = 0.3
"""Of the size that was asked for: below it nothing is recognised any more."""
QUALITY_LOW = 45
"""At one size the quality goes down to this before the size does."""


def quality_share(quality: float) -> float:
    """Bytes at a quality against those at 75."""
    below = QUALITY_SHARES[0]
    for above in QUALITY_SHARES:
        if quality <= above[0]:
            span = above[0] - below[0]
            return above[1] if span == 0 else below[1] + (quality - below[0]) / span * (above[1] - below[1])
        below = above
    return below[1]


class PictureBytes:
    """Of one camera; its content changes slowly."""

    def __init__(self) -> None:
        self._factor: float = PRIOR_BYTES / _PRIOR_PIXELS**SIZE_EXPONENT

    def expected(self, pixels: float, quality: float) -> float:
        """Bytes."""
        bytes_: float = self._factor * pixels**SIZE_EXPONENT * quality_share(quality)
        return bytes_

    def observe(self, pixels: float, quality: float, size_bytes: int) -> None:
        """One was encoded."""
        factor = size_bytes / (pixels**SIZE_EXPONENT * quality_share(quality))
        self._factor += MEMORY * (factor - self._factor)


def rungs(size_px: int, quality: int) -> Iterator[tuple[int, int]]:
    """(Longer side, quality) that may be sent where so much is asked for, from the largest down."""
    side, least = size_px, max(SIDE_MIN, SIDE_SHARE_MIN * size_px)
    qualities = (quality, QUALITY_LOW) if quality > QUALITY_LOW else (quality,)
    while side == size_px or side >= least:
        for each in qualities:
            yield side, each
        side = (side - 1) // SIDE_STEP * SIDE_STEP
