"""What pictures of an emulated camera take, by the size that is sent: as the variants of a model say of theirs."""

import math
from bisect import bisect_left
from collections.abc import Sequence

from appliance.policies.sending.pictures import SIZE_EXPONENT, quality_share
from appliance.policies.sending.schedule import Orders

QUALITY = 75
"""What sizes in scenarios are taken to be of."""
BYTES_MIN = 200
WITHOUT_SIZE_BYTES = 1000.0
"""Of a frame of a model whose variants say nothing of theirs."""


class Camera:
    """`points`: (longer side in pixels, bytes) of the variants that say so; `body_bytes` where none has a side.
    `least_px`: its pictures have no shorter side, however small those of the variants are.
    """

    def __init__(
        self, points: Sequence[tuple[int, float]], body_bytes: float = WITHOUT_SIZE_BYTES, least_px: int = 0
    ) -> None:
        self._points = sorted({side: size for side, size in points}.items())
        self._body_bytes = body_bytes
        self._usual_px = self._points[-1][0] if self._points else Orders().size_px
        """Longer side of the pictures that `body_bytes` is of."""
        self.side_px = max(self._usual_px, least_px)
        """Of its pictures; no device sends larger ones."""

    def bytes_of(self, side_px: int, quality: int) -> int:
        """Of a picture scaled to that side."""
        share = quality_share(quality) / quality_share(QUALITY)
        return max(BYTES_MIN, round(self._at(side_px) * share))

    def _at(self, side_px: int) -> float:
        """A power law between neighbours, and beyond the ends that of photographs."""
        if not self._points:
            return float(self._body_bytes * (side_px / self._usual_px) ** (2.0 * SIZE_EXPONENT))
        sides = [side for side, _ in self._points]
        index = bisect_left(sides, side_px)
        if index < len(sides) and sides[index] == side_px:
            return self._points[index][1]
        if index in (0, len(sides)):
            side, size = self._points[min(index, len(sides) - 1)]
            return float(size * (side_px / side) ** (2.0 * SIZE_EXPONENT))
        (low, small), (high, large) = self._points[index - 1], self._points[index]
        slope = math.log(large / small) / math.log(high / low)
        return float(small * (side_px / low) ** slope)
